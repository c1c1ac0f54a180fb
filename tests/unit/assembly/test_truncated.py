"""A9: behind a hole in the log, sessions that may lack a start close as `truncated`."""

from __future__ import annotations

from monitor.assembly import SafePosition
from tests.unit.assembly.feed import START, Feed, closings, end, evidence, orphans, sessions, tick, turn


def test_a9_a_session_first_seen_behind_the_hole_is_truncated() -> None:
    feed = Feed(since=SafePosition(100, START), truncated=True)
    feed(turn("e7", START + 10_000), end("e8", START + 10_000))
    outputs = feed(tick(START + 10_061))
    assert closings(outputs) == [(["e7"], "truncated")]
    assert sessions(outputs)[0].was_cut


def test_a9_the_window_is_one_maximum_age_of_stream_time_behind_the_first_record() -> None:
    feed = Feed(since=SafePosition(100, START), truncated=True)
    feed(tick(START + 10_000))
    feed(turn("a1", START + 15_000, "a"), turn("b1", START + 15_001, "b"))
    assert closings(feed(tick(START + 20_000))) == [(["a1"], "truncated"), (["b1"], "inactivity")]


def test_a9_a_session_that_began_in_the_window_stays_truncated_when_it_ends_after_it() -> None:
    feed = Feed(since=SafePosition(100, START), truncated=True)
    feed(tick(START), turn("e1", START + 4_900), turn("e2", START + 5_700))
    assert closings(feed(tick(START + 9_000))) == [(["e1", "e2"], "truncated")]


def test_a9_a_start_without_a_hole_truncates_nothing() -> None:
    feed = Feed(since=SafePosition(100, START))
    feed(turn("e1", START + 10))
    assert closings(feed(tick(START + 1_000))) == [(["e1"], "inactivity")]


def test_a9_the_hole_does_not_hide_the_orphans() -> None:
    feed = Feed(since=SafePosition(100, START), truncated=True)
    feed(evidence("v", START + 10, "t"))
    assert orphans(feed(tick(START + 100))) == [("evidence", 100)]


def test_a9_a_restart_within_the_window_still_knows_of_the_hole() -> None:
    feed = Feed(since=SafePosition(100, START), truncated=True)
    feed(tick(START), turn("e1", START + 10))
    position = feed.assembler.safe_position()
    assert position == SafePosition(101, START, START + 5_000)
    again = Feed(since=position)
    again(turn("e1", START + 10), turn("f1", START + 10, "f"))
    assert closings(again(tick(START + 1_000))) == [(["e1"], "truncated"), (["f1"], "truncated")]


def test_a9_the_first_start_of_all_has_no_stream_time_and_no_hole() -> None:
    feed = Feed()
    feed(turn("e1", START))
    assert feed.assembler.safe_position() == SafePosition(0, None, None)
    assert closings(feed(tick(START + 901))) == [(["e1"], "inactivity")]
