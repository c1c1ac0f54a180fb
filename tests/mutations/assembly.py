"""Mutants of assembly: rules A1 to A10, and what J5 asks of it."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutant import Mutant

ASSEMBLER: Final = "monitor/assembly/assembler.py"
OPEN: Final = "monitor/assembly/open_session.py"
CLOSED: Final = "monitor/assembly/closed_segment.py"

SKEW: Final = "tests/unit/assembly/test_skew.py::"
CLOSING: Final = "tests/unit/assembly/test_closing.py::"
LIMITS: Final = "tests/unit/assembly/test_limits.py::"
IDENTITY: Final = "tests/unit/assembly/test_identity.py::"
ORDER: Final = "tests/unit/assembly/test_order.py::"
READ_BACK: Final = "tests/unit/assembly/test_read_back.py::"
TRUNCATED: Final = "tests/unit/assembly/test_truncated.py::"

TIME: Final = (
    Mutant(
        rule="A1",
        title="an event dated 2030 moves stream time there",
        path=ASSEMBLER,
        old="return min(time, limit)",
        new="return time",
        tests=(SKEW + "test_a1_one_event_dated_2030_closes_no_other_session",),
    ),
    Mutant(
        rule="A1",
        title="stream time goes back",
        path=ASSEMBLER,
        old="now = time if before is None or time > before else before",
        new="now = time",
        tests=(SKEW + "test_a1_an_event_of_the_past_does_not_turn_time_back",),
    ),
)

CLOSE: Final = (
    Mutant(
        rule="A2",
        title="deadlines are checked after the event",
        path=ASSEMBLER,
        old="""        if now > self._quiet_until or offset >= self._pinned_from:
            self._do_due(now, offset, outputs)
        if not isinstance(event, Tick):
            session = self._open.get((event.tenant, event.session_id))
            if session is None or not session.is_plain(event, len(raw), time, self._policy):
                self._apply(event, raw, offset, time, before, outputs)
            elif session.add(event, raw, offset, time, now):
                self._schedule(session)
""",
        new="""        if not isinstance(event, Tick):
            session = self._open.get((event.tenant, event.session_id))
            if session is None or not session.is_plain(event, len(raw), time, self._policy):
                self._apply(event, raw, offset, time, before, outputs)
            elif session.add(event, raw, offset, time, now):
                self._schedule(session)
        if now > self._quiet_until or offset >= self._pinned_from:
            self._do_due(now, offset, outputs)
""",
        tests=(
            CLOSING + "test_a2_deadlines_are_checked_before_the_event_is_applied",
            CLOSING + "test_a2_deadlines_are_checked_before_a_late_event_is_applied",
        ),
    ),
    Mutant(
        rule="A2",
        title="no grace after an explicit end",
        path=OPEN,
        old="min(deadline, self.end_at + policy.grace)",
        new="min(deadline, self.end_at)",
        tests=(CLOSING + "test_a2_an_explicit_end_waits_for_the_grace_time",),
    ),
    Mutant(
        rule="A2",
        title="a second end prolongs the grace",
        path=OPEN,
        old="isinstance(event, SessionEnd) and self.end_at is None",
        new="isinstance(event, SessionEnd)",
        tests=(CLOSING + "test_a2_stragglers_do_not_prolong_the_grace_and_neither_does_a_second_end",),
    ),
    Mutant(
        rule="A2",
        title="the clock starts at event time, not at arrival",
        path=OPEN,
        old="self.last_arrival = now",
        new="self.last_arrival = time",
        tests=(CLOSING + "test_a2_inactivity_is_measured_from_the_last_arrival_in_stream_time",),
    ),
    Mutant(
        rule="A2",
        title="a session's own gap doesn't split it",
        path=OPEN,
        old="if time - self.newest > policy.gap:",
        new="if False:",
        tests=(CLOSING + "test_a2_its_own_gap_splits_a_session_that_stream_time_would_not_close",),
    ),
    Mutant(
        rule="A2",
        title="no maximum age",
        path=OPEN,
        old="deadline = min(self.last_arrival + policy.gap, self.opened_at + policy.max_age)",
        new="deadline = self.last_arrival + policy.gap",
        tests=(CLOSING + "test_a2_maximum_age_from_the_first_arrival",),
    ),
    Mutant(
        rule="A2",
        title="soft caps split before any event",
        path=OPEN,
        old='factor = 1 if isinstance(event, Turn) and event.role == "user" else 2',
        new="factor = 1",
        tests=(LIMITS + "test_a2_max_turns_waits_for_a_user_turn",),
    ),
    Mutant(
        rule="A2",
        title="no maximum of turns",
        path=OPEN,
        old="len(self.turns) >= factor * policy.max_turns",
        new="False",
        tests=(LIMITS + "test_a2_max_turns_splits_before_a_user_turn",),
    ),
    Mutant(
        rule="A2",
        title="no maximum of bytes",
        path=OPEN,
        old='return "max_bytes" if self.size + size > factor * policy.max_bytes else None',
        new="return None",
        tests=(LIMITS + "test_a2_max_bytes_splits_before_a_user_turn",),
    ),
    Mutant(
        rule="A2",
        title="no maximum of pinned offsets",
        path=ASSEMBLER,
        old="offset - oldest.first >= self._policy.max_pinned",
        new="False",
        tests=(LIMITS + "test_a2_offsets_pinned",),
    ),
    Mutant(
        rule="A2",
        title="closed segments are remembered for ever",
        path=ASSEMBLER,
        old="while self._memory and self._memory.first[0] < now:",
        new="while False:",
        tests=(CLOSING + "test_a2_memory_of_closed_sessions_runs_on_the_same_clock",),
    ),
    Mutant(
        rule="A2",
        title="sessions due at once come out in the order of the heap",
        path=ASSEMBLER,
        old="due.sort(key=lambda item: (item[0], item[1].first))",
        new="due.reverse()",
        tests=(CLOSING + "test_a2_sessions_due_at_once_come_out_by_deadline_then_offset",),
    ),
)

IDENTIFY: Final = (
    Mutant(
        rule="A3",
        title="the tenant is no part of the key",
        path=ASSEMBLER,
        old="key = (event.tenant, event.session_id)\n        closed =",
        new='key = ("", event.session_id)\n        closed =',
        tests=(IDENTITY + "test_a3_equal_session_ids_of_two_tenants_stay_apart",),
    ),
    Mutant(
        rule="A3",
        title="any event opens a segment",
        path=ASSEMBLER,
        old="if isinstance(event, Turn):\n                self._open_session(",
        new="if True:\n                self._open_session(",
        tests=(IDENTITY + "test_a3_only_a_turn_opens_a_segment",),
    ),
    Mutant(
        rule="A3",
        title="what waits for a turn is never given up",
        path=ASSEMBLER,
        old="        self._give_up_waiting(now, offset, outputs)\n",
        new="",
        tests=(IDENTITY + "test_a3_only_a_turn_opens_a_segment",),
    ),
    Mutant(
        rule="A3",
        title="the segment is the first turn to arrive",
        path=OPEN,
        old="segment = turns[0].event_id",
        new="segment = self.turns[0].event_id",
        tests=(ORDER + "test_a3_the_segment_is_the_first_turn_in_final_order_not_the_first_to_arrive",),
    ),
    Mutant(
        rule="A3",
        title="turns are ordered by time, whatever their index",
        path=OPEN,
        old="return sorted(turns)\n",
        new="return sorted(turns, key=lambda t: (t.time, t.offset))\n",
        tests=(ORDER + "test_a3_turn_index_comes_before_event_time",),
    ),
    Mutant(
        rule="A3",
        title="segments aren't linked",
        path=ASSEMBLER,
        old="previous=max(known, key=lambda segment: segment.last).segment if known else None",
        new="previous=None",
        tests=(IDENTITY + "test_a3_a_turn_after_the_close_opens_the_next_segment_linked_to_the_one_before",),
    ),
    Mutant(
        rule="A3",
        title="a late event is no addendum",
        path=CLOSED,
        old="return None if session is not None else known[-1]",
        new="return None",
        tests=(IDENTITY + "test_a3_a_late_event_for_a_remembered_segment_is_an_addendum",),
    ),
    Mutant(
        rule="A3",
        title="an addendum goes to the latest segment, not to that of its turn",
        path=CLOSED,
        old="return next((segment for segment in reversed(known) if turn_id in segment.turn_ids), None)",
        new="return known[-1]",
        tests=(IDENTITY + "test_a3_an_addendum_goes_to_the_segment_that_has_its_turn",),
    ),
    Mutant(
        rule="A3",
        title="event ids of closed segments aren't known",
        path=ASSEMBLER,
        old="if taken_in or any(segment.has_event(event, offset) for segment in closed):",
        new="if taken_in:",
        tests=(IDENTITY + "test_a3_a_duplicate_of_a_closed_segment_is_dropped_and_counted",),
    ),
    Mutant(
        rule="A3",
        title="event ids of addenda aren't known",
        path=CLOSED,
        old="return event.event_id in self.event_ids or self.late.get(event.event_id, offset) < offset",
        new="return event.event_id in self.event_ids",
        tests=(IDENTITY + "test_a3_a_duplicate_of_an_addendum_is_dropped_and_counted",),
    ),
    Mutant(
        rule="A3",
        title="event ids of the open session aren't known",
        path=ASSEMBLER,
        old="taken_in = session is not None and event.event_id in session.event_ids",
        new="taken_in = False",
        tests=(IDENTITY + "test_a3_of_duplicates_the_first_wins_whatever_the_other_says",),
    ),
)

POSITION: Final = (
    Mutant(
        rule="A4",
        title="the commit passes open sessions",
        path=ASSEMBLER,
        old="        if session is not None:\n            position = position._replace",
        new="        if False:\n            position = position._replace",
        tests=(READ_BACK + "test_a4_the_position_is_the_first_offset_of_the_oldest_open_session",),
    ),
    Mutant(
        rule="A4",
        title="the commit passes what waits for a turn",
        path=ASSEMBLER,
        old="if waiting is not None and waiting.offset < position.offset:",
        new="if False:",
        tests=(READ_BACK + "test_a4_an_event_that_waits_for_its_turn_holds_the_position",),
    ),
    Mutant(
        rule="A4",
        title="the stream time committed is today's, not that of the position",
        path=ASSEMBLER,
        old="offset=session.first, stream_time=session.stream_time_before",
        new="offset=session.first",
        tests=(READ_BACK + "test_a4_the_position_is_the_first_offset_of_the_oldest_open_session",),
    ),
    Mutant(
        rule="A4",
        title="the bound is that of segments behind the position, not of remembered ones",
        path=ASSEMBLER,
        old="return closed.closed_at + self._policy.memory >= (committed.stream_time or 0)",
        new="return closed.last >= committed.offset",
        tests=(READ_BACK + "test_a4_the_bound_includes_what_was_still_remembered_at_the_position",),
    ),
    Mutant(
        rule="A4",
        title="the bound asks what is remembered now, not at the position",
        path=ASSEMBLER,
        old="self._policy.memory >= (committed.stream_time or 0)",
        new="self._policy.memory >= (self._stream_time or 0)",
        tests=(READ_BACK + "test_a4_the_bound_includes_what_was_still_remembered_at_the_position",),
    ),
    Mutant(
        rule="A4",
        title="the bound leaves out copies that were read back",
        path=ASSEMBLER,
        old="        self._copies.push(offset, closed)\n",
        new="",
        tests=(READ_BACK + "test_a4_the_bound_counts_every_copy",),
    ),
)

RESTORE: Final = (
    Mutant(
        rule="A5",
        title="events inside of an emitted segment aren't skipped",
        path=CLOSED,
        old="return self.first <= offset <= self.last or self.late",
        new="return self.late",
        tests=(READ_BACK + "test_a5_an_event_inside_of_an_emitted_segment_is_skipped_without_a_count",),
    ),
    Mutant(
        rule="A5",
        title="an addendum that is out is sent again",
        path=CLOSED,
        old=" or self.late.get(event_id) == offset",
        new="",
        tests=(READ_BACK + "test_a5_an_addendum_that_is_out_is_not_sent_again",),
    ),
    Mutant(
        rule="A5",
        title="addenda aren't restored",
        path=ASSEMBLER,
        old="closed.late.setdefault(event_id, addendum.offset)",
        new="pass",
        tests=(READ_BACK + "test_a5_an_addendum_read_back_keeps_its_duplicate_out_of_the_next_segment",),
    ),
    Mutant(
        rule="A5",
        title="the span of copies is that of the last one",
        path=ASSEMBLER,
        old="closed.last = max(closed.last, span.last)",
        new="closed.last = span.last",
        tests=(READ_BACK + "test_a5_copies_of_a_segment_count_as_their_union",),
    ),
    Mutant(
        rule="A5",
        title="the span of copies begins with the last one",
        path=ASSEMBLER,
        old="closed.first = min(closed.first, span.first)",
        new="closed.first = span.first",
        tests=(READ_BACK + "test_a5_the_union_of_copies_begins_with_the_first_of_them",),
    ),
    Mutant(
        rule="A5",
        title="the event ids of copies are those of the last one",
        path=ASSEMBLER,
        old="closed.event_ids.update(item.event_id for item in ids)",
        new="closed.event_ids = {item.event_id for item in ids}",
        tests=(READ_BACK + "test_a5_copies_of_a_segment_count_as_their_union",),
    ),
    Mutant(
        rule="A5",
        title="the turn ids of copies are those of the first one",
        path=ASSEMBLER,
        old="closed.turn_ids.update(item.turn_id for item",
        new="closed.turn_ids = closed.turn_ids or set(item.turn_id for item",
        tests=(READ_BACK + "test_a5_copies_of_a_segment_count_as_their_union",),
    ),
    Mutant(
        rule="A5",
        title="copies are forgotten by the clock of the first one",
        path=ASSEMBLER,
        old="closed.closed_at = max(closed.closed_at, span.closed_at)",
        new="pass",
        tests=(READ_BACK + "test_a5_a_union_is_remembered_as_long_as_the_copy_that_closed_last",),
    ),
    Mutant(
        rule="A5",
        title="segments of one id far apart are taken for copies",
        path=ASSEMBLER,
        old="other.segment == content.segment and other.first <= span.last and span.first <= other.last",
        new="other.segment == content.segment",
        tests=(READ_BACK + "test_a5_segments_of_one_id_far_apart_are_no_copies",),
    ),
    Mutant(
        rule="A5",
        title="the latest segment is the one read back last",
        path=ASSEMBLER,
        old="        self._closed[key].sort(key=lambda other: other.last)\n",
        new="",
        tests=(READ_BACK + "test_a5_copies_out_of_order_leave_the_latest_segment_the_latest",),
    ),
    Mutant(
        rule="A5",
        title="a segment read back is there for events before it",
        path=CLOSED,
        old="return [segment for segment in closed if segment.first <= offset]",
        new="return closed",
        tests=(READ_BACK + "test_a5_a_segment_read_back_is_not_there_yet_for_an_event_before_it",),
    ),
)

RETENTION: Final = (
    Mutant(
        rule="A9",
        title="a session behind a hole in the log isn't marked",
        path=ASSEMBLER,
        old="if session.truncated:",
        new="if False:",
        tests=(TRUNCATED + "test_a9_a_session_first_seen_behind_the_hole_is_truncated",),
    ),
    Mutant(
        rule="A9",
        title="the mark ends with the first record behind the hole",
        path=ASSEMBLER,
        old="self._truncated_until = now + self._policy.max_age",
        new="self._truncated_until = now",
        tests=(TRUNCATED + "test_a9_the_window_is_one_maximum_age_of_stream_time_behind_the_first_record",),
    ),
    Mutant(
        rule="A9",
        title="a restart forgets the hole",
        path=ASSEMBLER,
        old="SafePosition(self._next_offset, self._stream_time, self._truncated_until)",
        new="SafePosition(self._next_offset, self._stream_time)",
        tests=(TRUNCATED + "test_a9_a_restart_within_the_window_still_knows_of_the_hole",),
    ),
)

MUTANTS: Final = (*TIME, *CLOSE, *IDENTIFY, *POSITION, *RESTORE, *RETENTION)
