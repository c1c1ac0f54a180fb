"""`assemble` killed behind each of its steps, and again: sessions are those of a run without a crash (A4-A7)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count

import pytest

from consumers.kafka import event_key, partition_for
from monitor.events import Event, Evidence, Feedback, Passage, SessionEnd, Tick, Turn
from tests.simulation.assembling import PARTITIONS, START_S, Bench
from tests.simulation.virtual_time import simulate


def homes(partition: int) -> list[str]:
    """Give session ids whose events belong to a partition."""
    names = (f"s{number}" for number in range(40))
    return [name for name in names if partition_for(event_key("default", name), PARTITIONS) == partition]


def turn(session_id: str, number: int, at: float) -> Turn:
    name = f"{session_id}-{number}"
    return Turn(event_id=name, session_id=session_id, ts=START_S + at, turn_id=name, role="user", text="hello")


def end(session_id: str, at: float, name: str = "end") -> SessionEnd:
    return SessionEnd(event_id=f"{session_id}-{name}", session_id=session_id, ts=START_S + at)


def feedback(session_id: str, at: float, name: str = "late") -> Feedback:
    return Feedback(event_id=f"{session_id}-{name}", session_id=session_id, ts=START_S + at, rating="down")


def evidence(session_id: str, number: int, at: float) -> Evidence:
    turn_id, passages = f"{session_id}-{number}", (Passage(id="p", text="x"),)
    return Evidence(
        event_id=f"{turn_id}-ev", session_id=session_id, ts=START_S + at, turn_id=turn_id, passages=passages
    )


def story(partition: int) -> list[Event]:
    """Give a partition's events: sessions across each other, late, doubled and lonely events, a second segment."""
    a, b, c, d, e, f, g, ghost = homes(partition)[:8]
    return [
        turn(a, 1, 0),
        turn(b, 1, 1),
        evidence(a, 2, 2),
        turn(a, 2, 3),
        end(a, 4),
        turn(b, 2, 15),  # closes a, while b is open across it
        feedback(a, 16),
        feedback(a, 17),
        turn(a, 1, 18),
        feedback(ghost, 19),
        turn(c, 1, 20),
        end(c, 21),
        turn(b, 3, 40),  # closes c
        turn(a, 3, 50),  # the next segment of a
        turn(b, 1, 60),
        Tick(ts=START_S + 141),  # closes b, and not a
        feedback(b, 142),
        end(a, 145, "end 2"),
        feedback(a, 146, "in grace"),
        turn(d, 1, 150),
        turn(e, 1, 160),  # closes the second segment of a
        end(d, 161),
        turn(e, 2, 172),  # closes d
        turn(f, 1, 173),
        end(e, 174),
        turn(f, 2, 185),  # closes e
        feedback(d, 186),
        end(f, 187),
        Tick(ts=START_S + 198),  # closes f: nothing is open, and much is remembered
        feedback(e, 199),
        turn(g, 1, 110),  # dated long before the time of the log, which goes on: g stays open
        turn(d, 2, 212),
        turn(g, 2, 209),
        Tick(ts=START_S + 2_000),
    ]


def written(bench: Bench) -> Bench:
    """Write both partitions' stories."""
    for partition in range(PARTITIONS):
        for event in story(partition):
            bench.say(event, partition=partition)
    return bench


async def run(bench: Bench, deaths: Iterable[int]) -> bool:
    """Run one process after another up to its death, and one more to the end; whether the last one died, too."""
    died = False
    for steps in deaths:
        async with bench.process(steps) as worker:
            await worker.until(bench.all_committed)
            died = worker.dead
    async with bench.process() as worker:
        await worker.until(bench.all_committed)
        worker.stop.set()
        await worker.until(lambda: False)
    return died


Outcome = tuple[list[bytes], list[tuple[bytes, bytes]]]


def outcome(monkeypatch: pytest.MonkeyPatch, deaths: Sequence[int]) -> tuple[Outcome, bool]:
    """Give what the sessions topic and the dead letters hold in the end, each record once."""

    async def main() -> tuple[Outcome, bool]:
        bench = written(Bench(monkeypatch))
        died = await run(bench, deaths)
        return (sorted(set(bench.sessions())), sorted(set(bench.letters()))), died

    return simulate(main())


def test_the_story_without_a_crash_says_everything_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        bench = written(Bench(monkeypatch))
        await run(bench, ())
        assert len(bench.sessions()) == len(set(bench.sessions()))
        for partition in range(PARTITIONS):
            a, b, c, d, e, f, g, ghost = homes(partition)[:8]
            segments = sorted(len(events) for name, events in bench.contents() if name == a)
            assert segments == [3, 4]
            assert sorted(len(events) for name, events in bench.contents() if name == d) == [1, 2]
            others = {name: len(events) for name, events in bench.contents() if name in {b, c, e, f, g}}
            assert others == {b: 3, c: 2, e: 3, f: 3, g: 2}
            late = sorted(addendum.session_id for addendum in bench.addenda())
            assert [name for name in late if name in {a, b, d, e}] == sorted([a, b, d, e])
            assert [value for _, value in bench.letters() if ghost.encode() in value] != []

    simulate(main())


def test_a7_a_crash_behind_any_step_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, _ = outcome(monkeypatch, ())
    for steps in count():
        cut, died = outcome(monkeypatch, [steps])
        assert cut == whole, f"a crash behind step {steps}"
        if not died:
            break
    assert steps > 20


def test_a7_crashes_again_and_again_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, _ = outcome(monkeypatch, ())
    for first in range(0, 30, 5):
        for second in range(1, 30, 4):
            cut, _ = outcome(monkeypatch, [first, second, second])
            assert cut == whole, f"crashes behind steps {first}, {second} and {second}"
