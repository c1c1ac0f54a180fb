"""A4 and A5: what may be committed, how far to read back, and what a replay has to skip."""

from __future__ import annotations

import msgspec

from monitor.assembly import Late, Output, SafePosition, SessionAssembler
from monitor.events import Event
from monitor.session import LogSpan, SessionRecord, decode_content
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
from tests.unit.assembly.log import POLICY, Broker, Commit, LogRecord, finished, run_whole


def restarted(since: SafePosition, *copies: SessionRecord) -> Feed:
    """Start a worker from a commit, with what it read back."""
    feed = Feed(since=since)
    for offset, copy in enumerate(copies):
        feed.assembler.restore(copy, offset)
    return feed


def written(assembler: SessionAssembler, outputs: list[Output], offset: int) -> SessionRecord:
    (output,) = finished(outputs)
    assembler.acknowledge(output, offset)
    return output.record


# -- A4: the position --------------------------------------------------------------------------------------


def test_a4_an_empty_assembler_is_safe_at_the_next_offset() -> None:
    feed = Feed()
    assert feed.assembler.safe_position() == SafePosition(0, None)
    feed(tick(START))
    assert feed.assembler.safe_position() == SafePosition(1, START)


def test_a4_the_position_is_the_first_offset_of_the_oldest_open_session() -> None:
    feed = Feed()
    feed(tick(START), turn("a1", START + 5, "a"), turn("b1", START + 10, "b"), turn("a2", START + 20, "a"))
    # With the stream time just before it: the replay must see the same clock.
    assert feed.assembler.safe_position() == SafePosition(1, START)
    feed(end("a3", START + 30, "a"), tick(START + 100))
    assert feed.assembler.safe_position() == SafePosition(2, START + 5)
    feed(tick(START + 2_000))
    assert feed.assembler.safe_position() == SafePosition(7, START + 2_000)


def test_a4_an_event_that_waits_for_its_turn_holds_the_position() -> None:
    feed = Feed()
    feed(tick(START), evidence("v", START + 5, "t"), tick(START + 6))
    assert feed.assembler.safe_position() == SafePosition(1, START)


def test_a4_a_start_somewhere_in_the_log_is_the_position_until_something_is_read() -> None:
    feed = Feed(since=SafePosition(70, START))
    assert feed.assembler.safe_position() == SafePosition(70, START)


def test_a4_gaps_in_the_offsets_do_no_harm() -> None:
    feed = Feed()
    feed(tick(START))
    feed.offset = 500
    feed(tick(START))
    assert feed.assembler.safe_position().offset == 501


# -- A4: the read-back bound -------------------------------------------------------------------------------


def test_a4_nothing_to_read_back_before_anything_is_written() -> None:
    feed = Feed()
    feed(turn("e1", START), tick(START + 901))
    assert feed.assembler.read_back_bound(feed.assembler.safe_position()) is None


def test_a4_the_bound_is_the_lowest_copy_that_reaches_behind_the_position() -> None:
    feed = Feed(msgspec.structs.replace(POLICY, memory=0))
    feed(turn("a1", START, "a"), turn("b1", START, "b"), end("b2", START, "b"), turn("c1", START, "c"))
    feed(end("c2", START, "c"))
    for offset, output in enumerate(finished(feed(tick(START + 500)))):
        feed.assembler.acknowledge(output, 30 + offset)
    feed(tick(START + 600))
    # Session a is still open at offset 0; b and c lie behind it, though they are forgotten by now.
    position = feed.assembler.safe_position()
    assert position.offset == 0
    assert feed.assembler.read_back_bound(position) == 30


def test_a4_the_bound_includes_what_was_still_remembered_at_the_position() -> None:
    feed = Feed()
    feed(turn("a1", START, "a"), end("a2", START, "a"))
    written(feed.assembler, feed(tick(START + 61)), 30)
    feed(turn("b1", START + 61 + 1_999, "b"))
    feed(turn("b2", START + 61 + 2_500, "b"))
    # By now a is forgotten; a replay starts at b1, where it was not.
    position = feed.assembler.safe_position()
    assert position == SafePosition(3, START + 61)
    assert feed.assembler.read_back_bound(position) == 30


def test_a4_the_bound_passes_what_is_forgotten() -> None:
    feed = Feed()
    feed(turn("a1", START, "a"), end("a2", START, "a"))
    written(feed.assembler, feed(tick(START + 61)), 30)
    feed(tick(START + 61 + 2_000))
    assert feed.assembler.read_back_bound(feed.assembler.safe_position()) == 30
    feed(tick(START + 61 + 2_001))
    assert feed.assembler.read_back_bound(feed.assembler.safe_position()) is None


def test_a4_the_bound_counts_every_copy() -> None:
    first = Feed()
    first(turn("a1", START, "a"), turn("b1", START, "b"), end("a2", START, "a"))
    record = written(first.assembler, first(tick(START + 61)), 30)
    second = Feed(since=SafePosition(0, None))
    second.assembler.restore(record, 7)
    second.assembler.restore(record, 9)
    second(tick(START))
    assert second.assembler.read_back_bound(second.assembler.safe_position()) == 7


def test_a4_a_session_whose_record_was_never_written_is_closed_again() -> None:
    feed = Feed()
    feed(turn("a1", START, "a"), turn("b1", START, "b"), end("a2", START, "a"))
    lost = finished(feed(tick(START + 61)))
    # The commit is the one before: a position is committed only when the outbox is empty.
    again = restarted(SafePosition(0, None))
    again(turn("a1", START, "a"), turn("b1", START, "b"), end("a2", START, "a"))
    assert [output.record for output in finished(again(tick(START + 61)))] == [output.record for output in lost]


# -- A5: the replay ----------------------------------------------------------------------------------------


def interleaved() -> list[LogRecord]:
    """Session b opens, a opens and closes, b goes on: a commit in b lies in the middle of a."""
    events: list[Event] = [
        turn("a1", START, "a"),
        turn("b1", START + 1, "b"),
        turn("a2", START + 2, "a"),
        end("a3", START + 3, "a"),
        tick(START + 70),
        turn("b2", START + 80, "b"),
        tick(START + 3_000),
    ]
    return [LogRecord(event, round(event.ts * 1000)) for event in events]


def test_a5_without_the_read_back_a_truncated_twin_appears() -> None:
    log = interleaved()
    broker = Broker(log)
    broker.run(6, commit_at=5)
    assert broker.commit.offset == 1
    broker.commit = Commit(broker.commit.offset, broker.commit.stream_time, len(broker.topic))
    broker.run(len(log))
    assert closings(broker.outputs)[:2] == [(["a1", "a2"], "ended"), (["a2"], "ended")]


def test_a5_with_the_read_back_it_does_not() -> None:
    log = interleaved()
    broker = Broker(log)
    broker.run(6, commit_at=5)
    broker.run(len(log))
    assert closings(broker.outputs) == [(["a1", "a2"], "ended"), (["b1", "b2"], "inactivity")]
    assert broker.topic == run_whole(log).topic


def test_a5_an_event_inside_of_an_emitted_segment_is_skipped_without_a_count() -> None:
    feed = Feed()
    feed(turn("b1", START, "b"), turn("a1", START, "a"), end("a2", START, "a"))
    copy = written(feed.assembler, feed(tick(START + 61)), 0)
    again = restarted(SafePosition(0, None), copy)
    assert again(turn("b1", START, "b"), turn("a1", START, "a"), end("a2", START, "a")) == []
    assert again.assembler.open_sessions == 1


def test_a5_a_duplicate_behind_an_emitted_segment_is_known_by_its_id() -> None:
    feed = Feed()
    feed(turn("a1", START, "a"), end("a2", START, "a"))
    copy = written(feed.assembler, feed(tick(START + 61)), 0)
    again = restarted(feed.assembler.safe_position(), copy)
    assert kinds_of(again(turn("a1", START, "a"), end("a2", START, "a"))) == ["Duplicate", "Duplicate"]
    assert addenda(again(feedback("a3", START + 62, "turn-a1", "a"))) == [("a1", 5)]


def test_a5_copies_of_a_segment_count_as_their_union() -> None:
    # Two builds with different policies ran for a while, and one closed the session earlier than the other.
    short = Feed(msgspec.structs.replace(POLICY, gap=10))
    short(turn("a1", START, "a"))
    early = written(short.assembler, short(tick(START + 20)), 0)
    long = Feed()
    long(turn("a1", START, "a"), tick(START + 20), turn("a2", START + 30, "a"))
    late = written(long.assembler, long(tick(START + 1_000)), 0)
    for copies in ((early, late), (late, early)):
        again = restarted(SafePosition(0, None), *copies)
        assert again(turn("a1", START, "a"), tick(START + 20), turn("a2", START + 30, "a")) == []
        assert again.assembler.open_sessions == 0
        assert addenda(again(feedback("f", START + 40, "turn-a2", "a"))) == [("a1", 3)]
        assert kinds_of(again(turn("a2", START + 40, "a"), turn("a1", START + 40, "a"))) == ["Duplicate"] * 2


def test_a5_the_union_of_copies_begins_with_the_first_of_them() -> None:
    # With the longer grace the feedback waited for its turn; with the shorter one it was an orphan.
    events = (tick(START), feedback("f", START, None, "a"), turn("a1", START + 50, "a"), end("z", START + 50, "a"))
    spans = []
    for grace in (60, 40):
        feed = Feed(msgspec.structs.replace(POLICY, grace=grace))
        feed(*events)
        spans.append(written(feed.assembler, feed(tick(START + 200)), 0))
    assert [copy.span.first for copy in spans] == [1, 2]
    for copies in (spans, spans[::-1]):
        again = restarted(SafePosition(0, None), *copies)
        assert again(*events) == []
        assert again.assembler.open_sessions == 0


def test_a5_a_union_is_remembered_as_long_as_the_copy_that_closed_last() -> None:
    # Forgotten by the clock of the copy that a shorter gap closed early, a2 would open a twin.
    long = Feed(msgspec.structs.replace(POLICY, gap=3_000))
    short = Feed(msgspec.structs.replace(POLICY, gap=10))
    events = (turn("a1", START, "a"), tick(START + 20), turn("a2", START + 2_500, "a"))
    early, late = (finished(feed(*events, tick(START + 5_501)))[0].record for feed in (short, long))
    for copies in ((early, late), (late, early)):
        again = restarted(SafePosition(0, None), *copies)
        assert again(*events) == []
        assert again.assembler.open_sessions == 0


def test_a5_segments_of_one_id_far_apart_are_no_copies() -> None:
    # A duplicate that comes when its segment is forgotten opens another one under the same id.
    feed = Feed()
    feed(turn("a1", START, "a"), end("a2", START, "a"))
    first = written(feed.assembler, feed(tick(START + 61)), 0)
    feed(tick(START + 2_100))
    feed(turn("a1", START + 2_100, "a"))
    second = written(feed.assembler, feed(tick(START + 3_100)), 1)
    again = restarted(SafePosition(2, START + 61), first, second)
    again(tick(START + 61))
    # Between the two it is not inside of either: a merged span would swallow it.
    again(turn("a9", START + 80, "a"))
    assert again.assembler.open_sessions == 1


def test_a5_a_segment_read_back_is_not_there_yet_for_an_event_before_it() -> None:
    feed = Feed()
    feed(turn("b1", START, "b"), feedback("f", START, None, "a"))
    assert orphans(feed(tick(START + 61))) == [("feedback", 1)]
    feed(turn("a1", START + 70, "a"), end("a2", START + 70, "a"))
    copy = written(feed.assembler, feed(tick(START + 140)), 0)
    again = restarted(SafePosition(0, None), copy)
    assert addenda(again(turn("b1", START, "b"), feedback("f", START, None, "a"))) == []
    assert orphans(again(tick(START + 61))) == [("feedback", 1)]


def test_a5_copies_out_of_order_are_forgotten_each_at_its_own_time() -> None:
    # A worker that was stopped and continued appends its copy of the older one behind the newer one.
    feed = Feed()
    feed(turn("a1", START, "a"), end("a2", START, "a"))
    older = written(feed.assembler, feed(tick(START + 61)), 0)
    feed(turn("b1", START + 1_900, "b"), end("b2", START + 1_900, "b"))
    newer = written(feed.assembler, feed(tick(START + 2_000)), 1)
    again = restarted(SafePosition(6, START + 2_000), newer, older)
    again(tick(START + 2_062))
    again(turn("a3", START + 2_062, "a"))
    # Never stopped, it has forgotten a1 by then, so that there is nothing to link to.
    feed(tick(START + 2_062))
    feed(turn("a3", START + 2_062, "a"))
    (one,), (other,) = finished(again(tick(START + 3_000))), finished(feed(tick(START + 3_000)))
    assert one.record == other.record
    assert decode_content(one.record.content).previous_segment is None


def test_a5_copies_out_of_order_leave_the_latest_segment_the_latest() -> None:
    feed = Feed()
    feed(turn("e1", START), end("e2", START))
    older = written(feed.assembler, feed(tick(START + 61)), 0)
    feed(turn("e3", START + 70), end("e4", START + 70))
    newer = written(feed.assembler, feed(tick(START + 140)), 1)
    again = restarted(feed.assembler.safe_position(), newer, older)
    assert addenda(again(feedback("f", START + 150))) == [("e3", 6)]
    again(turn("e5", START + 160))
    (session,) = sessions(again(tick(START + 1_100)))
    assert session.previous_segment == "e3"


def test_a5_an_addendum_read_back_keeps_its_duplicate_out_of_the_next_segment() -> None:
    event = feedback("f", START + 100)
    events: list[Event] = [
        turn("e1", START),
        end("e2", START),
        tick(START + 61),
        event,
        turn("e3", START + 110),
        event,
        turn("e4", START + 120),
        tick(START + 3_000),
    ]
    log = [LogRecord(each, START + 100) for each in events[:-1]] + [LogRecord(events[-1], START + 3_000)]
    whole, cut = run_whole(log), Broker(log)
    cut.run(6, commit_at=5)
    assert cut.commit.offset == 4
    cut.run(len(log))
    assert [turns(session) for session in sessions(whole.outputs)] == [["e1"], ["e3", "e4"]]
    assert cut.topic == whole.topic


def test_a5_an_addendum_that_is_out_is_not_sent_again() -> None:
    feed = Feed()
    feed(turn("b1", START, "b"), turn("a1", START, "a"), end("a2", START, "a"))
    copy = written(feed.assembler, feed(tick(START + 61)), 0)
    (late,) = feed(feedback("f", START + 62, None, "a"))
    again = restarted(SafePosition(0, None), copy)
    assert isinstance(late, Late)
    again.assembler.restore(late.addendum, 1)
    outputs = again(
        turn("b1", START, "b"),
        turn("a1", START, "a"),
        end("a2", START, "a"),
        tick(START + 61),
        feedback("f", START + 62, None, "a"),
    )
    assert outputs == []


def test_a5_an_addendum_of_a_segment_that_is_not_needed_is_passed_over() -> None:
    feed = Feed()
    feed(turn("a1", START, "a"), end("a2", START, "a"))
    feed(tick(START + 61))
    (late,) = feed(feedback("f", START + 62, None, "a"))
    again = restarted(feed.assembler.safe_position())
    assert isinstance(late, Late)
    again.assembler.restore(late.addendum, 1)
    assert again(turn("c1", START + 63, "c")) == []


def test_a5_a_commit_between_two_events_that_wait_for_a_turn_changes_nothing() -> None:
    # The evidence is given up when the turn comes; the feedback has a clock of its own and is joined, whether a
    # replay has seen the evidence or not.
    events: list[Event] = [
        evidence("v", START, "turn-nobody"),
        turn("b1", START + 10, "b"),
        feedback("f", START + 20),
        turn("e1", START + 70),
        turn("b2", START + 80, "b"),
        tick(START + 3_000),
    ]
    log = [LogRecord(event, round(event.ts * 1000)) for event in events]
    whole, cut = run_whole(log), Broker(log)
    cut.run(5, commit_at=4)
    assert cut.commit.offset == 1
    cut.run(len(log))
    assert cut.topic == whole.topic


def test_a5_restored_spans_do_not_reach_into_other_sessions() -> None:
    feed = Feed()
    feed(turn("a1", START, "a"), turn("b1", START, "b"), end("a2", START, "a"))
    copy = written(feed.assembler, feed(tick(START + 61)), 0)
    again = restarted(SafePosition(0, None), copy)
    again(turn("a1", START, "a"), turn("b1", START, "b"), end("a2", START, "a"), tick(START + 61))
    assert again.assembler.safe_position().offset == 1
    assert closings(again(tick(START + 1_000))) == [(["b1"], "inactivity")]


def test_a4_the_span_is_not_part_of_the_content() -> None:
    feed, shifted = Feed(), Feed()
    shifted(tick(START), tick(START))
    for each in (feed, shifted):
        each(turn("a1", START, "a"))
    (one,), (other,) = finished(feed(tick(START + 901))), finished(shifted(tick(START + 950)))
    assert one.record.content == other.record.content
    assert one.record.span == LogSpan(partition=3, first=0, last=0, closed_at=START + 901)
    assert other.record.span == LogSpan(partition=3, first=2, last=2, closed_at=START + 950)


def kinds_of(outputs: list[Output]) -> list[str]:
    return [type(output).__name__ for output in outputs]
