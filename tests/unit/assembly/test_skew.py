"""A1: time enters only through the log, and no further than the broker's timestamps allow."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.assembly import Position, SessionAssembler, Skewed
from monitor.assembly.open_session import AssemblyPolicy
from monitor.events import encode
from tests.unit.assembly.feed import START, Feed, closings, evidence, tick, turn
from tests.unit.assembly.log import POLICY

YEAR_2030 = 1_893_456_000_000


def test_a1_no_stream_time_before_the_first_record() -> None:
    assert SessionAssembler(POLICY).stream_time is None


def test_a1_stream_time_is_bounded_by_the_broker_plus_the_skew() -> None:
    feed = Feed()
    outputs = feed(turn("e1", YEAR_2030), at=START)
    assert feed.assembler.stream_time == START + POLICY.allowed_skew
    assert outputs == [Skewed("future")]


def test_a1_event_time_within_the_skew_is_taken_as_it_is() -> None:
    feed = Feed()
    assert feed(turn("e1", START + 100), at=START) == []
    assert feed.assembler.stream_time == START + 100


def test_a1_without_a_broker_timestamp_event_time_counts() -> None:
    assembler = SessionAssembler(POLICY)
    event = turn("e1", YEAR_2030)
    assert assembler.on_event(event, encode(event), Position(0)) == []
    assert assembler.stream_time == YEAR_2030


def test_a1_one_event_dated_2030_closes_no_other_session() -> None:
    feed = Feed()
    feed(turn("a1", START, "a"))
    assert closings(feed(turn("b1", YEAR_2030, "b"), at=START + 10)) == []
    assert closings(feed(turn("a2", START + 20, "a"), turn("a3", START + 800, "a"))) == []
    assert sorted(closings(feed(tick(START + 5_000)))) == [
        (["a1", "a2", "a3"], "inactivity"),
        (["b1"], "inactivity"),
    ]


def test_a1_one_event_dated_2030_does_not_split_what_follows() -> None:
    feed = Feed()
    feed(turn("e1", START))
    feed(turn("e2", YEAR_2030), at=START + 10)
    assert closings(feed(turn("e3", START + 20))) == []
    # Its own time still orders it, and it lies behind.
    assert closings(feed(tick(START + 2_000))) == [(["e1", "e3", "e2"], "inactivity")]


def test_a1_an_event_dated_2030_may_not_itself_be_split_off() -> None:
    feed = Feed()
    feed(turn("e1", START))
    assert closings(feed(turn("e2", YEAR_2030), at=START + 10)) == []


def test_a1_an_event_of_the_past_does_not_turn_time_back() -> None:
    feed = Feed()
    feed(turn("e1", START))
    assert feed(turn("e2", START - 4_000), at=START + 10) == []
    assert feed.assembler.stream_time == START
    assert feed(turn("e3", START - 6_000), at=START + 20) == [Skewed("past")]
    assert closings(feed(tick(START + 1_000))) == [(["e3", "e2", "e1"], "inactivity")]


def test_a1_events_of_the_past_keep_their_session_open() -> None:
    # The clock starts at the stream time of arrival, so that a backlog of old events is not closed at once.
    feed = Feed()
    feed(turn("a1", START, "a"), turn("b1", START - 3_000, "b"))
    assert closings(feed(turn("b2", START - 2_900, "b"), at=START + 100)) == []
    assert feed.assembler.open_sessions == 2


def test_a1_a_tick_moves_time_and_joins_no_session() -> None:
    feed = Feed()
    feed(turn("e1", START), tick(START + 900))
    assert feed.assembler.open_sessions == 1
    assert closings(feed(tick(START + 901))) == [(["e1"], "inactivity")]
    assert feed.assembler.safe_position().offset == 3


def test_a1_a_tick_dated_ahead_is_bounded_too() -> None:
    feed = Feed()
    feed(turn("e1", START))
    assert feed(tick(YEAR_2030), at=START + 10) == [Skewed("future")]
    assert feed.assembler.stream_time == START + 110


def test_a1_nothing_closes_without_a_record() -> None:
    # An idle partition stays as it is however long it lasts: the owner's ticks are its only time.
    feed = Feed()
    feed(turn("e1", START))
    before = feed.assembler.safe_position()
    assert feed.assembler.read_back_bound(before) is None
    assert feed.assembler.safe_position() == before
    assert feed.assembler.open_sessions == 1


def test_a1_a_skewed_event_is_counted_once_and_taken_in() -> None:
    feed = Feed(AssemblyPolicy())
    outputs = feed(evidence("e1", YEAR_2030, "t1"), at=START)
    assert outputs == [Skewed("future")]
    assert feed.assembler.open_sessions == 1


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10_000), st.integers(-50_000, 50_000)), min_size=1, max_size=40))
def test_a1_stream_time_never_goes_back_nor_beyond_the_log(steps: list[tuple[int, int]]) -> None:
    feed = Feed()
    newest, shown = 0, 0
    for number, (timestamp, shift) in enumerate(steps):
        time = max(0, START + timestamp + shift)
        feed(turn(f"e{number}", time), at=START + timestamp)
        newest = max(newest, min(time, START + timestamp + POLICY.allowed_skew))
        now = feed.assembler.stream_time
        assert now is not None
        assert now >= shown
        assert now == newest
        shown = now
