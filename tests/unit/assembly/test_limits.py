"""A2: caps on turns, bytes and pinned offsets; soft ones split only before a user turn."""

from __future__ import annotations

import itertools
import time
import tracemalloc

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.assembly import Duplicate, Position
from monitor.assembly.open_session import AssemblyPolicy
from monitor.events import Role, encode
from tests.unit.assembly.feed import (
    START,
    Feed,
    addenda,
    closings,
    evidence,
    feedback,
    orphans,
    sessions,
    tick,
    turn,
    turns,
)
from tests.unit.assembly.log import POLICY


def fill(feed: Feed, number: int, *, role: Role = "user", text: str = "x", first: int = 1) -> list[str]:
    names = [f"e{index}" for index in range(first, first + number)]
    for name in names:
        assert closings(feed(turn(name, START, role=role, text=text))) == []
    return names


def test_a2_max_turns_splits_before_a_user_turn() -> None:
    feed = Feed()
    names = fill(feed, 6)
    assert closings(feed(turn("e7", START))) == [(names, "max_turns")]
    (session,) = sessions(feed(tick(START + 901)))
    assert turns(session) == ["e7"]
    assert session.previous_segment == "e1"


def test_a2_max_turns_waits_for_a_user_turn() -> None:
    feed = Feed()
    names = fill(feed, 6)
    names += fill(feed, 3, role="assistant", first=7)
    assert closings(feed(evidence("v", START, "turn-e9"), feedback("f", START))) == []
    assert closings(feed(turn("u", START))) == [(names, "max_turns")]


def test_a2_twice_max_turns_splits_before_any_turn() -> None:
    feed = Feed()
    names = fill(feed, 12, role="tool")
    assert closings(feed(turn("e13", START, role="assistant"))) == [(names, "max_turns")]


def test_a2_events_other_than_turns_do_not_count_as_turns() -> None:
    feed = Feed()
    names = fill(feed, 12, role="tool")
    assert closings(feed(*(feedback(f"f{number}", START) for number in range(5)))) == []
    assert closings(feed(tick(START + 901))) == [(names, "inactivity")]


def test_a2_max_bytes_splits_before_a_user_turn() -> None:
    feed = Feed()
    names = fill(feed, 4, text="x" * 1_000, role="assistant")
    assert closings(feed(turn("e5", START, text="x" * 1_000))) == [(names, "max_bytes")]


def test_a2_max_bytes_are_those_of_the_raw_events() -> None:
    one = len(encode(turn("e1", START, text="é" * 100)))
    feed = Feed(msgspec.structs.replace(POLICY, max_bytes=3 * one))
    names = fill(feed, 3, text="é" * 100)
    assert closings(feed(turn("e4", START, text="é" * 100))) == [(names, "max_bytes")]


def test_a2_twice_max_bytes_splits_before_any_event() -> None:
    feed = Feed()
    names = fill(feed, 8, text="x" * 1_000, role="assistant")
    outputs = feed(evidence("v", START, "turn-e8", text="x" * 1_500))
    # The evidence belongs to the segment that it closed, so it follows as an addendum.
    assert closings(outputs) == [(names, "max_bytes")]
    assert addenda(outputs) == [("e1", 8)]


def test_a2_evidence_for_the_next_turn_may_split_and_waits_for_it() -> None:
    feed = Feed()
    names = fill(feed, 8, text="x" * 1_000, role="assistant")
    assert closings(feed(evidence("v", START, "turn-e9", text="x" * 1_500))) == [(names, "max_bytes")]
    feed(turn("e9", START, role="assistant"))
    (session,) = sessions(feed(tick(START + 901)))
    assert turns(session) == ["e9"]
    assert session.turns[0].evidence is not None


def test_a2_one_event_over_every_cap_is_a_session_of_its_own() -> None:
    feed = Feed()
    assert closings(feed(turn("e1", START, text="x" * 50_000))) == []
    assert closings(feed(turn("e2", START, role="assistant"))) == [(["e1"], "max_bytes")]


def test_a2_a_session_takes_in_no_more_of_what_waited_than_fits() -> None:
    feed = Feed()
    feed(*(evidence(f"v{number}", START, "t", text="x" * 2_000) for number in range(6)))
    outputs = feed(turn("t", START))
    assert orphans(outputs) == [("evidence", 4), ("evidence", 5)]
    (session,) = sessions(feed(tick(START + 1_000)))
    assert session.event_ids == ("t", "v0", "v1", "v2", "v3")


def test_a2_offsets_pinned() -> None:
    feed = Feed()
    feed(turn("a1", START, "a"), turn("b1", START, "b"))
    for _ in range(38):
        assert closings(feed(tick(START))) == []
    # At a distance of 40 offsets the oldest has to go, so that a restart replays no more than that.
    assert closings(feed(tick(START))) == [(["a1"], "pinned")]
    assert feed.assembler.safe_position().offset == 1
    assert closings(feed(tick(START))) == [(["b1"], "pinned")]
    assert feed.assembler.safe_position().offset == 42


def test_a2_an_event_may_pin_out_its_own_session() -> None:
    feed = Feed()
    feed(turn("a1", START, "a"), *(tick(START) for _ in range(39)))
    assert closings(feed(turn("a2", START, "a"))) == [(["a1", "a2"], "pinned")]


def test_a2_a_pinned_session_that_waits_for_its_turn_is_orphaned() -> None:
    feed = Feed()
    outputs = feed(evidence("v", START, "t"), *(tick(START) for _ in range(40)))
    assert orphans(outputs) == [("evidence", 0)]
    assert feed.assembler.safe_position().offset == 41


def test_a2_a_duplicate_of_a_closed_segment_does_not_split_the_open_one() -> None:
    feed = Feed()
    copy = turn("e1", START)
    fill(feed, 6)
    feed(turn("n1", START))
    names = ["n1", *fill(feed, 5, first=20)]
    # Six turns are in, so that any new user turn would split: this one isn't new.
    assert feed(copy) == [Duplicate("e1")]
    assert feed.assembler.open_sessions == 1
    assert closings(feed(turn("n2", START))) == [(names, "max_turns")]


def test_a2_a_session_closes_when_too_many_bytes_of_the_log_lie_behind_its_first_event() -> None:
    one = len(encode(turn("a1", START)))
    feed = Feed(msgspec.structs.replace(POLICY, max_pinned_bytes=4 * one))
    assert closings(feed(turn("a1", START), *(turn(f"b{n}", START, "s2") for n in range(3)))) == []
    # The bytes of others count as well: all of the log from here on is what a replay has to read.
    assert closings(feed(turn("b3", START, "s2"))) == [(["a1"], "pinned")]
    assert closings(feed(turn("b4", START, "s2"))) == [([f"b{n}" for n in range(5)], "pinned")]
    assert feed.assembler.open_sessions == 0


def test_a2_skipped_records_count_as_bytes_of_the_log_with_their_size_there() -> None:
    feed = Feed(msgspec.structs.replace(POLICY, max_pinned_bytes=10_000))
    feed(turn("a1", START))
    feed.assembler.skip(feed.offset, 9_000)
    feed.offset += 1
    event = turn("b1", START, "s2")
    outputs = feed.assembler.on_event(event, encode(event), Position(feed.offset, START, 2_000))
    assert closings(outputs) == [(["a1"], "pinned")]


def test_a3_an_event_without_a_turn_is_given_up_when_too_many_bytes_of_the_log_lie_behind_it() -> None:
    feed = Feed(msgspec.structs.replace(POLICY, max_pinned_bytes=4_000))
    feed(feedback("f", START, session_id="nobody"))
    assert orphans(feed(turn("b1", START, "s2", text="x" * 4_500))) == []
    assert orphans(feed(turn("b2", START, "s3"))) == [("feedback", 0)]


def test_a3_a_closed_session_is_remembered_for_max_pinned_records_at_most() -> None:
    feed = Feed(msgspec.structs.replace(POLICY, max_pinned=10, memory=10**9))
    feed(turn("a1", START), tick(START + 901))
    assert addenda(feed(feedback("f1", START))) == [("a1", 2)]
    feed(*(tick(START + 901) for _ in range(6)))
    assert addenda(feed(feedback("f2", START))) == [("a1", 9)]
    assert addenda(feed(feedback("f3", START))) == []


def test_a3_a_remembered_session_of_eight_turns_takes_less_than_two_kilobytes() -> None:
    number = 2_000
    feed = Feed(AssemblyPolicy())
    tracemalloc.start()
    try:
        feed(turn("old1", START, "old"))
        for session in range(number):
            names = (f"{session}-{n}-0123456789abcdef0123456789" for n in range(8))
            feed(*(turn(name, START, f"session-{session:030}") for name in names))
        # One that stays open, the oldest of all, must not keep what was said in the others.
        feed(turn("old2", START + 899_000, "old"), tick(START + 900_001))
        assert feed.assembler.open_sessions == 1
        remembered = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert remembered / number < 1_750


def test_a2_late_evidence_for_a_closed_segment_does_not_split_the_open_one() -> None:
    feed = Feed()
    fill(feed, 6)
    feed(turn("n1", START))
    outputs = feed(
        evidence("v", START, "turn-e2", text="x" * 9_000), evidence("w", START, "turn-e2", text="y" * 9_900)
    )
    assert addenda(outputs) == [("e1", 7), ("e1", 8)]
    assert closings(outputs) == []


def test_a2_a_session_of_ten_thousand_turns_is_cut_into_linked_segments() -> None:
    feed = Feed(AssemblyPolicy())
    names = [f"e{number:05}" for number in range(10_000)]
    outputs = []
    started = time.perf_counter()
    for number, name in enumerate(names):
        role: Role = "user" if number % 2 == 0 else "assistant"
        outputs += feed(turn(name, START + number, role=role, index=number))
    outputs += feed(tick(START + 2_000_000))
    elapsed = time.perf_counter() - started
    segments = sessions(outputs)
    assert [name for segment in segments for name in turns(segment)] == names
    assert [len(segment.turns) for segment in segments] == [500] * 20
    assert [segment.previous_segment for segment in segments] == [None, *(s.segment for s in segments[:-1])]
    assert [segment.close_reason for segment in segments] == ["max_turns"] * 19 + ["inactivity"]
    assert elapsed < 5


def test_a2_a_session_of_ten_thousand_turns_whole_half_of_them_without_an_index() -> None:
    policy = AssemblyPolicy(max_turns=20_000, max_bytes=100_000_000)
    feed = Feed(policy)
    names = [f"e{number:05}" for number in range(10_000)]
    started = time.perf_counter()
    for number, name in enumerate(names):
        feed(turn(name, START + number, index=number if number % 2 == 0 else None))
        feed(evidence(f"v{number}", START + number, f"turn-{name}"))
    (session,) = sessions(feed(tick(START + 2_000_000)))
    assert turns(session) == names
    assert time.perf_counter() - started < 5


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["user", "assistant", "tool"]), st.integers(0, 3_000)), min_size=1, max_size=40
    )
)
def test_a2_caps_hold_for_any_session(steps: list[tuple[Role, int]]) -> None:
    policy = msgspec.structs.replace(POLICY, max_pinned=1_000)
    feed = Feed(policy)
    outputs = []
    for number, (role, size) in enumerate(steps):
        outputs += feed(turn(f"e{number}", START + number, role=role, text="x" * size))
    outputs += feed(tick(START + 10_000))
    segments = sessions(outputs)
    assert [name for segment in segments for name in turns(segment)] == [f"e{n}" for n in range(len(steps))]
    for before, segment in itertools.pairwise(segments):
        size = sum(len(each.text) for each in before.turns)
        if segment.turns[0].role != "user":
            # Split before something else: only a hard cap may do that.
            head = 200 * (len(before.turns) + 1)
            added = len(segment.turns[0].text)
            assert len(before.turns) >= 12 or size + added + head > 10_000
        assert len(before.turns) <= 12
