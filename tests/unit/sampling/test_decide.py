"""S2 to S4: decisions and jobs, the same bytes every time."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.decision import Decision, decode_decision, decode_job, fingerprint, job_id
from monitor.events import Correction, Escalation, Role, SessionEnd, SessionEvent, Turn, encode
from monitor.sampling.coin import picked, toss
from monitor.sampling.decide import decide, oversized, resolve_labels, without_content
from monitor.sampling.policy import Policy, parse_policy
from monitor.session import LogSpan, SessionAttributes, SessionContent, SessionRecord, content_hash
from tests.unit.sampling.policies import built_in

ASSISTANTS = {"concierge": ["1", "2"]}
SALT = b"grain"
POLICY = built_in("correction")


def record(events: list[SessionEvent], session_id: str = "s", tenant: str = "t") -> SessionRecord:
    content = SessionContent(
        tenant=tenant,
        session_id=session_id,
        segment=events[0].event_id,
        previous_segment=None,
        close_reason="ended",
        events=[msgspec.Raw(encode(event)) for event in events],
    )
    return SessionRecord(
        content=msgspec.Raw(msgspec.json.encode(content)),
        span=LogSpan(partition=1, first=2, last=30, closed_at=4_000),
    )


def chat(session_id: str = "s", corrections: int = 0, escalated: bool = False, **attributes: Any) -> SessionRecord:
    events: list[SessionEvent] = []
    for number in range(4):
        role: Role = "user" if number % 2 == 0 else "assistant"
        events.append(
            Turn(
                event_id=f"e{number}",
                session_id=session_id,
                ts=float(number),
                tenant="t",
                turn_id=f"t{number}",
                role=role,
                text=f"line {number}",
                **attributes,
            )
        )
    named = [
        Correction(event_id=f"c{n}", session_id=session_id, ts=9.0, tenant="t", turn_id=f"t{2 * n}")
        for n in range(corrections)
    ]
    ends: list[SessionEvent] = (
        [Escalation(event_id="x", session_id=session_id, ts=9.0, tenant="t")] if escalated else []
    )
    return record(
        [*events, *named, *ends, SessionEnd(event_id="z", session_id=session_id, ts=10.0, tenant="t")], session_id
    )


def one(policy: Policy, item: SessionRecord) -> Decision:
    return decide(item, policy, salt=SALT, assistants=ASSISTANTS)[0]


@pytest.mark.parametrize(
    ("corrections", "escalated", "stratum", "weight16", "priority"),
    [
        (0, False, "base", 320, "routine"),
        (1, False, "base", 320, "routine"),
        (2, False, "corrected", 32, "routine"),
        (2, True, "escalated", 16, "urgent"),
    ],
)
def test_the_first_stratum_that_matches_takes_the_session(
    corrections: int, escalated: bool, stratum: str, weight16: int, priority: str
) -> None:
    got = one(POLICY, chat(corrections=corrections, escalated=escalated))
    assert (got.stratum, got.weight16, got.priority) == (stratum, weight16, priority)
    assert got.signals["corrections"] == corrections
    assert got.signals["escalations"] == int(escalated)
    assert got.frame == ["correction"]
    assert got.policy == POLICY.version


def test_a_selected_session_has_a_job_for_each_rubric_and_lists_it() -> None:
    policy = parse_policy(
        "strata: [{name: base, rate: 1, priority: urgent, rubrics: [correction, refusal]}]",
        source="p", rubrics={"correction", "refusal"},
    )  # fmt: skip
    item = chat(assistant="concierge", assistant_version="2")
    decision, jobs = decide(item, policy, salt=SALT, assistants=ASSISTANTS)
    assert decision.selected
    assert [(ref.job_id, ref.rubric) for ref in decision.jobs] == [(job.job_id, job.rubric) for job in jobs]
    assert [job.rubric for job in jobs] == ["correction", "refusal"]
    assert decision.fingerprints == [fingerprint(name) for name in ("e0", "e1", "e2", "e3", "z")]
    assert decision.turns == 4
    assert decision.labels.assistant_version == "2"
    for job in jobs:
        assert job.job_id == job_id("t", "s", "e0", job.rubric)
        assert bytes(job.content) == bytes(item.content)
        assert job.content_hash == decision.content_hash == content_hash(item.content)
        assert (job.priority, job.stratum, job.run) == ("urgent", "base", "live")


@settings(deadline=None)
@given(st.integers(0, 10_000))
def test_the_coin_alone_selects_and_the_transcript_goes_only_with_those_it_picks(number: int) -> None:
    item = chat(session_id=f"s{number}")
    decision, jobs = decide(item, POLICY, salt=SALT, assistants={})
    key = ("t", f"s{number}", "e0")
    assert decision.selected == picked(toss(SALT, "select", *key), decision.weight16)
    assert decision.holdout == picked(toss(SALT, "holdout", *key), 1_600)
    assert (decision.content is not None) == (decision.selected or decision.holdout)
    assert bool(jobs) == bool(decision.jobs) == decision.selected


@pytest.mark.parametrize(("rate", "weight16"), [(0.9, 18), (0.3, 53)])
def test_s2_the_coin_is_compared_with_the_probability_that_is_recorded(rate: float, weight16: int) -> None:
    """So coarse that the weight next to it would pick others."""
    policy = parse_policy(
        f"strata: [{{name: base, rate: {rate}, rubrics: [correction]}}]", source="p", rubrics={"correction"}
    )
    coins = {name: toss(SALT, "select", "t", name, "e0") for name in map(str, range(1_000))}
    near = {name for name, coin in coins.items() if picked(coin, weight16 - 1) != picked(coin, weight16 + 1)}
    assert len(near) > 10
    for name in near:
        decision = one(policy, chat(session_id=name))
        assert (decision.weight16, decision.selected) == (weight16, picked(coins[name], weight16))


def test_rates_nest() -> None:
    """S2: what is picked at 5 % is picked at every higher rate."""

    def selected(rate: float) -> set[str]:
        policy = parse_policy(
            f"strata: [{{name: base, rate: {rate}, rubrics: [correction]}}]", source="p", rubrics={"correction"}
        )
        return {name for name in map(str, range(2_000)) if one(policy, chat(session_id=name)).selected}

    few, some, many = selected(0.05), selected(0.3), selected(0.9)
    assert few < some < many
    assert 60 < len(few) < 145  # 100 expected, sd 9.7
    assert 515 < len(some) < 695  # 604 expected (16/53), sd 20.5


def test_no_holdout_without_a_rate_for_it() -> None:
    policy = parse_policy(
        "{strata: [{name: base, rate: 0.001, rubrics: [correction]}], holdout: 0}",
        source="p",
        rubrics={"correction"},
    )
    assert not any(one(policy, chat(session_id=str(number))).holdout for number in range(1_000))


def test_a_session_whose_start_is_lost_is_in_no_frame() -> None:
    """A9: it is not judged, whatever the policy says."""
    whole = chat(escalated=True)
    content = msgspec.json.decode(whole.content, type=SessionContent)
    cut = msgspec.structs.replace(content, close_reason="truncated")
    item = msgspec.structs.replace(whole, content=msgspec.Raw(msgspec.json.encode(cut)))
    decision, jobs = decide(item, POLICY, salt=SALT, assistants={})
    assert (decision.stratum, decision.selected, decision.frame, jobs) == ("truncated", False, [], [])
    assert one(POLICY, whole).selected


def test_a_stratum_without_rubrics_is_kept_out() -> None:
    policy = parse_policy(
        "strata: [{name: test, when: \"attributes.traffic_class == 'test'\", rate: 1, rubrics: []},"
        " {name: base, rate: 1, rubrics: [correction]}]",
        source="p", rubrics={"correction"},
    )  # fmt: skip
    decision, jobs = decide(chat(traffic_class="test"), policy, salt=SALT, assistants={})
    assert (decision.stratum, decision.selected, decision.frame, jobs) == ("test", False, [], [])
    assert one(policy, chat()).selected


@settings(deadline=None)
@given(
    st.lists(
        st.builds(
            Turn,
            event_id=st.text(min_size=1, max_size=8), session_id=st.just("s"), ts=st.floats(0, 1e9),
            tenant=st.just("t"), turn_id=st.text(min_size=1, max_size=8), text=st.text(max_size=80),
            role=st.sampled_from(["user", "assistant", "system", "tool"]),
        ),
        min_size=1, max_size=12,
    )
)  # fmt: skip
def test_the_same_record_gives_the_same_bytes(turns: list[Turn]) -> None:
    item = record(list(turns))
    again = msgspec.json.decode(msgspec.json.encode(item), type=SessionRecord)
    encoded = [
        [msgspec.json.encode(part) for part in (decision, *jobs)]
        for decision, jobs in (
            decide(each, built_in("correction"), salt=SALT, assistants=ASSISTANTS) for each in (item, again)
        )
    ]
    assert encoded[0] == encoded[1]
    read = decode_decision(encoded[0][0])
    assert isinstance(read, Decision)
    assert read.error is None
    for raw in encoded[0][1:]:
        assert decode_job(raw).session_id == "s"


@pytest.mark.parametrize(
    "broken",
    [
        b'{"type":"turn","event_id":"e1","session_id":"s","ts":1,"turn_id":"t","role":"user","text":7}',
        b'{"type":"mystery secret"}',
        b'"secret words"',
        b"null",
    ],
)
def test_a_body_that_raises_still_yields_a_decision(broken: bytes) -> None:
    """S3; and its error says nothing of what was said."""
    good = chat()
    content = msgspec.json.decode(good.content, type=SessionContent)
    content.events.append(msgspec.Raw(broken))
    item = msgspec.structs.replace(good, content=msgspec.Raw(msgspec.json.encode(content)))
    decision, jobs = decide(item, POLICY, salt=SALT, assistants=ASSISTANTS)
    assert (decision.stratum, decision.selected, decision.holdout, jobs) == ("error", False, False, [])
    assert (decision.tenant, decision.session_id, decision.segment) == ("t", "s", "e0")
    assert decision.content_hash == content_hash(item.content)
    assert decision.content is None
    assert decision.error
    assert "secret" not in decision.error
    assert decode_decision(msgspec.json.encode(decision)) == decision


def test_a_predicate_that_fails_on_a_session_gives_the_error_stratum() -> None:
    policy = parse_policy(
        "strata: [{name: odd, when: 'signals.assistant_turns != 2 || signals.turns / signals.corrections > 1',"
        " rate: 1, rubrics: [correction]}, {name: base, rate: 1, rubrics: [correction]}]",
        source="p", rubrics={"correction"},
    )  # fmt: skip
    decision = one(policy, chat())
    assert decision.stratum == "error"
    assert decision.error is not None


def test_a_record_that_names_no_session_is_no_decision() -> None:
    item = msgspec.structs.replace(chat(), content=msgspec.Raw(b'{"tenant":"t"}'))
    with pytest.raises(msgspec.DecodeError):
        decide(item, POLICY, salt=SALT, assistants=ASSISTANTS)


@pytest.mark.parametrize(
    ("assistant", "version", "labels"),
    [
        ("concierge", "2", ("concierge", "2")),
        ("concierge", "3", ("concierge", "other")),
        ("concierge", None, ("concierge", "other")),
        ("someone", "2", ("other", "other")),
        (None, None, ("other", "other")),
    ],
)
def test_labels_come_from_the_allow_list(
    assistant: str | None, version: str | None, labels: tuple[str, str]
) -> None:
    got = resolve_labels(SessionAttributes(assistant=assistant, assistant_version=version), ASSISTANTS)
    assert (got.assistant, got.assistant_version) == labels


def test_what_is_too_large_goes_on_as_a_stub() -> None:
    """J5."""
    decision = one(POLICY, chat(escalated=True))
    assert decision.selected
    slim = without_content(decision)
    assert slim.content is None
    assert slim.jobs == decision.jobs
    stub = oversized(decision)
    assert (stub.stratum, stub.selected, stub.jobs, stub.frame, stub.content) == ("error", False, [], [], None)
    assert stub.content_hash == decision.content_hash
