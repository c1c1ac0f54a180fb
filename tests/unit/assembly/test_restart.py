"""A1, A4, A5: the same log gives the same sessions, byte for byte, wherever it is cut and replayed."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.assembly import Late, Orphan
from monitor.assembly.open_session import AssemblyPolicy
from monitor.events import (
    Correction,
    Escalation,
    Event,
    Evidence,
    Feedback,
    Passage,
    SessionEnd,
    Tick,
    Turn,
)
from monitor.session import decode_content, session_view
from tests.unit.assembly.log import POLICY, Broker, LogRecord, run_whole

SESSIONS = st.sampled_from([("acme", "s1"), ("acme", "s2"), ("other", "s1"), ("acme", "s3")])


@st.composite
def logs(draw: st.DrawFn, max_size: int = 60) -> list[LogRecord]:
    """Arbitrary logs: many tenants, disorder, duplicates, late events, idle ticks, events dated years ahead."""
    records: list[LogRecord] = []
    now = 1_000_000
    for number in range(draw(st.integers(1, max_size))):
        now += draw(st.sampled_from([0, 5, 20, 80, 300, 901, 2_500]))
        if records and draw(st.integers(0, 9)) == 0:
            records.append(LogRecord(draw(st.sampled_from(records)).event, now))
            continue
        time = now - draw(st.sampled_from([0, 0, 0, 10, 50, 700, 3_000]))
        if draw(st.integers(0, 30)) == 0:
            time = now + 100_000_000
        records.append(LogRecord(draw(events(number, time)), now))
    records.append(LogRecord(Tick(ts=(now + 50_000) / 1000), now + 50_000))
    return records


@st.composite
def events(draw: st.DrawFn, number: int, time: int) -> Event:  # noqa: PLR0911 - one a type
    tenant, session_id = draw(SESSIONS)
    head: Any = {"event_id": f"e{number}", "session_id": session_id, "tenant": tenant, "ts": time / 1000}
    turn_id = f"t{draw(st.integers(max(0, number - 6), number))}"
    kind = draw(st.integers(0, 13))
    if kind == 0:
        return Tick(ts=time / 1000)
    if kind == 1:
        return SessionEnd(**head)
    if kind == 2:
        return Evidence(**head, turn_id=turn_id, passages=(Passage(id="p", text="x"),))
    if kind == 3:
        return Feedback(**head, rating="up", turn_id=draw(st.sampled_from([None, turn_id])))
    if kind == 4:
        return Escalation(**head)
    if kind == 5:
        return Correction(**head, turn_id=turn_id)
    return Turn(
        **head,
        turn_id=f"t{number}",
        role=draw(st.sampled_from(["user", "assistant"])),
        text="x" * draw(st.sampled_from([1, 10, 900])),
        turn_index=draw(st.sampled_from([None, number, max(0, number - 2)])),
    )


def shown(broker: Broker, kind: type[Late | Orphan]) -> set[bytes]:
    return {msgspec.json.encode(output) for output in broker.outputs if isinstance(output, kind)}


def copies(broker: Broker) -> dict[tuple[tuple[str, str], str], set[bytes]]:
    found: dict[tuple[tuple[str, str], str], set[bytes]] = {}
    for key, record in broker.sessions:
        segment = decode_content(record.content).segment
        raw = bytes(record.content) + repr(record.span).encode()
        found.setdefault((key, segment), set()).add(raw)
    return found


# The second closes by bytes of the log, and forgets by its records, long before their times come.
POLICIES = (POLICY, msgspec.structs.replace(POLICY, max_pinned=12, max_pinned_bytes=1_500, memory=10**6))


@settings(max_examples=300, deadline=None)
@given(logs(), st.sampled_from(POLICIES), st.data())
def test_a5_any_cut_and_replay_gives_byte_equal_sessions(
    log: list[LogRecord], policy: AssemblyPolicy, data: st.DataObject
) -> None:
    whole = run_whole(log, policy)
    cut = Broker(log, policy)
    for _ in range(data.draw(st.integers(1, 4))):
        until = data.draw(st.integers(cut.commit.offset, len(log)))
        commit_at = data.draw(st.none() | st.integers(cut.commit.offset, len(log)))
        cut.run(until, commit_at=commit_at, flushed=data.draw(st.booleans()))
    cut.run(len(log))

    assert copies(cut) == copies(whole)
    assert {raw for values in copies(cut).values() for raw in values} == {
        raw for values in copies(whole).values() for raw in values
    }


@settings(max_examples=100, deadline=None)
@given(logs(), st.data())
def test_a3_addenda_and_orphans_are_the_same_after_a_restart(log: list[LogRecord], data: st.DataObject) -> None:
    whole, cut = run_whole(log), Broker(log)
    until = data.draw(st.integers(0, len(log)))
    cut.run(until, commit_at=data.draw(st.none() | st.integers(0, len(log))))
    cut.run(len(log))
    for kind in (Late, Orphan):
        assert shown(whole, kind) <= shown(cut, kind)


@settings(max_examples=100, deadline=None)
@given(logs())
def test_every_turn_is_in_exactly_one_session(log: list[LogRecord]) -> None:
    # A duplicate that comes after its session was forgotten can't be known; here nothing is forgotten.
    broker = run_whole(log, msgspec.structs.replace(POLICY, memory=10**12, max_pinned=10**6))
    placed: list[tuple[tuple[str, str], str]] = []
    for key, record in broker.sessions:
        view = session_view(record.content)
        placed.extend((key, turn.turn_id) for turn in view.turns)
    sent = {((r.event.tenant, r.event.session_id), r.event.turn_id) for r in log if isinstance(r.event, Turn)}
    assert len(placed) == len(set(placed))
    assert set(placed) == sent
