"""A2: when a session is over, by which deadline, and by which clock."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.assembly import Finished
from monitor.assembly.open_session import AssemblyPolicy
from monitor.session import CloseReason
from tests.unit.assembly.feed import (
    START,
    Feed,
    addenda,
    closings,
    end,
    evidence,
    feedback,
    orphans,
    sessions,
    tick,
    turn,
    turns,
)
from tests.unit.assembly.log import POLICY, finished


def test_a2_an_explicit_end_waits_for_the_grace_time() -> None:
    feed = Feed()
    feed(turn("e1", START), end("e2", START + 10))
    assert closings(feed(tick(START + 70))) == []
    outputs = feed(tick(START + 71))
    assert closings(outputs) == [(["e1"], "ended")]
    assert sessions(outputs)[0].ended


def test_a2_stragglers_within_the_grace_are_in() -> None:
    feed = Feed()
    feed(turn("e1", START), end("e2", START + 10))
    feed(turn("e3", START + 5), turn("e4", START + 40), evidence("e5", START + 70, "turn-e4"))
    (session,) = sessions(feed(tick(START + 200)))
    assert turns(session) == ["e1", "e3", "e4"]
    assert session.turns[2].evidence is not None


def test_a2_stragglers_do_not_prolong_the_grace_and_neither_does_a_second_end() -> None:
    feed = Feed()
    feed(turn("e1", START), end("e2", START + 10), turn("e3", START + 60), end("e4", START + 65))
    assert closings(feed(tick(START + 71))) == [(["e1", "e3"], "ended")]


def test_a2_an_end_that_overtakes_the_turns_counts_from_its_arrival() -> None:
    feed = Feed()
    feed(end("e1", START + 10), turn("e2", START + 20))
    assert closings(feed(tick(START + 70))) == []
    assert closings(feed(tick(START + 71))) == [(["e2"], "ended")]


def test_a2_the_end_is_inside_the_grace_even_when_the_gap_is_shorter() -> None:
    feed = Feed(msgspec.structs.replace(POLICY, gap=20))
    feed(turn("e1", START), end("e2", START + 10))
    assert closings(feed(tick(START + 31))) == [(["e1"], "inactivity")]


def test_a2_inactivity_is_measured_from_the_last_arrival_in_stream_time() -> None:
    feed = Feed()
    feed(turn("a1", START, "a"), turn("b1", START + 600, "b"))
    # Its own time is START, but it arrives at stream time START + 600.
    feed(turn("a2", START + 1, "a"), at=START + 601)
    assert closings(feed(tick(START + 1_500))) == []
    assert sorted(closings(feed(tick(START + 1_501)))) == [(["a1", "a2"], "inactivity"), (["b1"], "inactivity")]


def test_a2_events_other_than_turns_keep_a_session_open() -> None:
    feed = Feed()
    feed(turn("e1", START), feedback("e2", START + 800), evidence("e3", START + 1_600, "turn-e1"))
    assert closings(feed(tick(START + 2_500))) == []
    assert closings(feed(tick(START + 2_501))) == [(["e1"], "inactivity")]


def test_a2_a_duplicate_does_not_keep_a_session_open() -> None:
    feed = Feed()
    event = turn("e1", START)
    feed(event)
    feed(event, at=START + 800)
    assert closings(feed(tick(START + 901))) == [(["e1"], "inactivity")]


def test_a2_its_own_gap_splits_a_session_that_stream_time_would_not_close() -> None:
    # Another session keeps stream time ahead: e1 *arrives* late, so its clock runs on; its own times are apart.
    feed = Feed()
    feed(turn("b1", START + 900, "b"))
    feed(turn("e1", START), at=START + 900)
    outputs = feed(turn("e2", START + 901))
    assert closings(outputs) == [(["e1"], "inactivity")]
    (session,) = [s for s in sessions(feed(tick(START + 3_000))) if s.session_id == "s1"]
    assert turns(session) == ["e2"]
    assert session.previous_segment == "e1"


def test_a2_a_gap_of_exactly_the_limit_does_not_split() -> None:
    feed = Feed()
    feed(turn("b1", START + 900, "b"))
    feed(turn("e1", START), at=START + 900)
    assert closings(feed(turn("e2", START + 900))) == []


def test_a2_disorder_is_no_gap() -> None:
    feed = Feed()
    feed(turn("e1", START), turn("e2", START + 850), turn("e3", START + 10), turn("e4", START + 1_700))
    (session,) = sessions(feed(tick(START + 4_000)))
    assert turns(session) == ["e1", "e3", "e2", "e4"]


def test_a2_maximum_age_from_the_first_arrival() -> None:
    feed = Feed()
    for number in range(7):
        feed(turn(f"e{number}", START + number * 800, role="assistant"))
    assert closings(feed(tick(START + 5_000))) == []
    assert closings(feed(tick(START + 5_001))) == [([f"e{number}" for number in range(7)], "max_age")]


def test_a2_deadlines_are_checked_before_the_event_is_applied() -> None:
    feed = Feed()
    feed(turn("e1", START))
    # The event that lets time pass is itself of that session: it opens the next segment.
    outputs = feed(turn("e2", START + 901))
    assert closings(outputs) == [(["e1"], "inactivity")]
    assert feed.assembler.open_sessions == 1


def test_a2_deadlines_are_checked_before_a_late_event_is_applied() -> None:
    feed = Feed()
    feed(turn("e1", START), end("e2", START))
    outputs = feed(feedback("e3", START + 61))
    assert [type(output).__name__ for output in outputs] == ["Finished", "Late"]
    assert addenda(outputs) == [("e1", 2)]


def test_a2_the_deadline_itself_is_still_inside() -> None:
    feed = Feed()
    feed(turn("e1", START), turn("e2", START + 900))
    assert closings(feed(tick(START + 1_801))) == [(["e1", "e2"], "inactivity")]


def test_a2_the_first_of_the_deadlines_gives_the_reason() -> None:
    policy = msgspec.structs.replace(POLICY, gap=500, grace=500, max_age=500)
    feed = Feed(policy)
    feed(turn("a1", START, "a"), end("a2", START, "a"), turn("b1", START, "b"))
    assert closings(feed(tick(START + 501))) == [(["a1"], "ended"), (["b1"], "max_age")]


def test_a2_sessions_due_at_once_come_out_by_deadline_then_offset() -> None:
    feed = Feed()
    feed(turn("a1", START, "a"), turn("b1", START, "b"), turn("c1", START + 5, "c"), end("c2", START + 5, "c"))
    outputs = feed(tick(START + 60_000))
    assert closings(outputs) == [(["c1"], "ended"), (["a1"], "inactivity"), (["b1"], "inactivity")]


def test_a2_a_gap_shorter_than_the_grace_holds_for_a_session_opened_by_evidence() -> None:
    # The deadline of a session that waits for its turn lies behind the one it has with it.
    feed = Feed(msgspec.structs.replace(POLICY, gap=20))
    feed(evidence("e1", START, "turn-e2"), turn("e2", START + 5))
    assert closings(feed(tick(START + 26))) == [(["e2"], "inactivity")]


def test_a2_grace_of_an_event_without_a_turn_runs_on_the_same_clock() -> None:
    feed = Feed()
    feed(evidence("e1", START - 500, "turn-e9"), at=START)
    feed(evidence("e2", START - 450, "turn-e9"), at=START + 50)
    assert orphans(feed(tick(START - 440), at=START + 100)) == []
    assert orphans(feed(tick(START - 439), at=START + 101)) == [("evidence", 0)]
    assert orphans(feed(tick(START - 389), at=START + 151)) == [("evidence", 1)]
    assert feed.assembler.open_sessions == 0


def test_a2_memory_of_closed_sessions_runs_on_the_same_clock() -> None:
    feed = Feed()
    feed(turn("e1", START), end("e2", START))
    feed(tick(START + 100))
    # Closed at START + 100, remembered for 2,000 ms of stream time, however much the broker's clock moves.
    assert addenda(feed(feedback("e3", START + 90), at=START + 9_000)) == [("e1", 3)]
    assert addenda(feed(feedback("e4", START + 2_100))) == [("e1", 4)]
    assert addenda(feed(feedback("e5", START + 2_101))) == []
    assert orphans(feed(tick(START + 2_162))) == [("feedback", 5)]


def test_a2_the_record_says_when_and_where_it_closed() -> None:
    feed = Feed()
    feed(turn("x1", START, "x"), turn("e1", START), turn("x2", START, "x"), end("e2", START))
    (output,) = finished(feed(tick(START + 70)))
    span = output.record.span
    assert (span.partition, span.first, span.last, span.closed_at) == (3, 1, 3, START + 70)
    assert output.key == ("acme", "s1")
    assert output.turns == 1


@pytest.mark.parametrize(
    ("reason", "cut"),
    [
        ("ended", False),
        ("inactivity", False),
        ("max_age", True),
        ("max_turns", True),
        ("max_bytes", True),
        ("pinned", True),
        ("truncated", True),
    ],
)
def test_a2_a_session_that_we_cut_says_so(reason: CloseReason, cut: bool) -> None:
    feed = Feed()
    feed(turn("e1", START))
    (session,) = sessions(feed(tick(START + 901)))
    assert msgspec.structs.replace(session, close_reason=reason).was_cut is cut


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(0, 1_200), min_size=1, max_size=25),
    st.integers(1, 1_000),
    st.integers(0, 200),
)
def test_a2_a_session_in_order_splits_exactly_at_its_gaps(gaps: list[int], gap: int, grace: int) -> None:
    feed = Feed(AssemblyPolicy(gap=gap, grace=grace, allowed_skew=0))
    now, expected = START, [["e0"]]
    outputs = feed(turn("e0", now))
    for number, pause in enumerate(gaps, start=1):
        now += pause
        outputs += feed(turn(f"e{number}", now))
        if pause > gap:
            expected.append([])
        expected[-1].append(f"e{number}")
    outputs += feed(tick(now + gap + 1))
    assert closings(outputs) == [(segment, "inactivity") for segment in expected]
    assert all(isinstance(output, Finished) for output in outputs)
