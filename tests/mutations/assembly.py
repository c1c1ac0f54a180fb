"""Mutants of assembly: rules A1 to A10, and what J5 asks of it."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutant import Mutant

ASSEMBLER: Final = "monitor/assembly/assembler.py"
OPEN: Final = "monitor/assembly/open_session.py"
CLOSED: Final = "monitor/assembly/closed_segment.py"
MEMORY: Final = "monitor/assembly/memory.py"
PROCESS: Final = "consumers/assemble.py"
PARTITION: Final = "consumers/partition.py"
OUTBOX: Final = "consumers/outbox.py"
LOADING: Final = "consumers/read_back.py"

SKEW: Final = "tests/unit/assembly/test_skew.py::"
CLOSING: Final = "tests/unit/assembly/test_closing.py::"
LIMITS: Final = "tests/unit/assembly/test_limits.py::"
IDENTITY: Final = "tests/unit/assembly/test_identity.py::"
ORDER: Final = "tests/unit/assembly/test_order.py::"
READ_BACK: Final = "tests/unit/assembly/test_read_back.py::"
TRUNCATED: Final = "tests/unit/assembly/test_truncated.py::"
CRASHES: Final = "tests/unit/consumers/test_assemble_crashes.py::"
REBALANCE: Final = "tests/unit/consumers/test_assemble_rebalance.py::"
STEPS: Final = "tests/unit/consumers/test_assemble_steps.py::"
TOPICS: Final = "tests/consumers/test_topics.py::"

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
        old="""        if due or self._log_bytes > self._pinned_from_bytes:
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
        if due or self._log_bytes > self._pinned_from_bytes:
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
        old="oldest.first <= below or ",
        new="",
        tests=(LIMITS + "test_a2_offsets_pinned",),
    ),
    Mutant(
        rule="A2",
        title="no maximum of pinned bytes",
        path=ASSEMBLER,
        old=" or oldest.log_bytes < bytes_below",
        new="",
        tests=(
            LIMITS + "test_a2_a_session_closes_when_too_many_bytes_of_the_log_lie_behind_its_first_event",
            LIMITS + "test_a2_skipped_records_count_as_bytes_of_the_log_with_their_size_there",
        ),
    ),
    Mutant(
        rule="A2",
        title="bytes are those of the events taken in, not of the log",
        path=ASSEMBLER,
        old="self._log_bytes += size",
        new="pass",
        tests=(LIMITS + "test_a2_skipped_records_count_as_bytes_of_the_log_with_their_size_there",),
    ),
    Mutant(
        rule="A3",
        title="a closed segment is remembered whatever the number of records since",
        path=MEMORY,
        old="return offset - closed.last >= self._policy.max_pinned",
        new="return False",
        tests=(LIMITS + "test_a3_a_closed_session_is_remembered_for_max_pinned_records_at_most",),
    ),
    Mutant(
        rule="A2",
        title="closed segments are remembered for ever",
        path=MEMORY,
        old="while self._order and (self._order.first[0] < now or",
        new="while self._order and (False or",
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
        old="return next((segment for segment in reversed(known) if segment.has_turn(turn_id)), None)",
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
        old="if self._late is not None and self._late.get(event.event_id, offset) < offset:",
        new="if False:",
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
        path=MEMORY,
        old="return recent and closed.closed_at + self._policy.memory >= (committed.stream_time or 0)",
        new="return closed.last >= committed.offset",
        tests=(READ_BACK + "test_a4_the_bound_includes_what_was_still_remembered_at_the_position",),
    ),
    Mutant(
        rule="A4",
        title="the bound leaves out what closed before the position",
        path=MEMORY,
        old="recent and closed.closed_at + self._policy.memory >=",
        new="recent and closed.closed_at >=",
        tests=(READ_BACK + "test_a4_the_bound_passes_what_is_forgotten",),
    ),
    Mutant(
        rule="A4",
        title="the bound leaves out copies that were read back",
        path=MEMORY,
        old="        self.written(closed, offset)\n",
        new="",
        tests=(READ_BACK + "test_a4_the_bound_counts_every_copy",),
    ),
)

RESTORE: Final = (
    Mutant(
        rule="A5",
        title="events inside of an emitted segment aren't skipped",
        path=CLOSED,
        old="if self.first <= offset <= self.last:",
        new="if False:",
        tests=(READ_BACK + "test_a5_an_event_inside_of_an_emitted_segment_is_skipped_without_a_count",),
    ),
    Mutant(
        rule="A5",
        title="an addendum that is out is sent again",
        path=CLOSED,
        old="return self._late is not None and self._late.get(event_id) == offset",
        new="return False",
        tests=(READ_BACK + "test_a5_an_addendum_that_is_out_is_not_sent_again",),
    ),
    Mutant(
        rule="A5",
        title="addenda aren't restored",
        path=MEMORY,
        old="closed.note_late(event_id, addendum.offset)",
        new="pass",
        tests=(READ_BACK + "test_a5_an_addendum_read_back_keeps_its_duplicate_out_of_the_next_segment",),
    ),
    Mutant(
        rule="A5",
        title="the span of copies is that of the last one",
        path=MEMORY,
        old="closed.last = max(closed.last, span.last)",
        new="closed.last = span.last",
        tests=(READ_BACK + "test_a5_copies_of_a_segment_count_as_their_union",),
    ),
    Mutant(
        rule="A5",
        title="the span of copies begins with the last one",
        path=MEMORY,
        old="closed.first = min(closed.first, span.first)",
        new="closed.first = span.first",
        tests=(READ_BACK + "test_a5_the_union_of_copies_begins_with_the_first_of_them",),
    ),
    Mutant(
        rule="A5",
        title="the event ids of copies are those of the last one",
        path=CLOSED,
        old="_hashes(event_ids, self._event_ids)",
        new="_hashes(event_ids)",
        tests=(READ_BACK + "test_a5_copies_of_a_segment_count_as_their_union",),
    ),
    Mutant(
        rule="A5",
        title="the turn ids of copies are those of the first one",
        path=CLOSED,
        old="_hashes(turn_ids, self._turn_ids)",
        new="self._turn_ids or _hashes(turn_ids)",
        tests=(READ_BACK + "test_a5_copies_of_a_segment_count_as_their_union",),
    ),
    Mutant(
        rule="A5",
        title="copies are forgotten by the clock of the first one",
        path=MEMORY,
        old="closed.closed_at = max(closed.closed_at, span.closed_at)",
        new="pass",
        tests=(READ_BACK + "test_a5_a_union_is_remembered_as_long_as_the_copy_that_closed_last",),
    ),
    Mutant(
        rule="A5",
        title="segments of one id far apart are taken for copies",
        path=MEMORY,
        old="other.segment == content.segment and other.first <= span.last and span.first <= other.last",
        new="other.segment == content.segment",
        tests=(READ_BACK + "test_a5_segments_of_one_id_far_apart_are_no_copies",),
    ),
    Mutant(
        rule="A5",
        title="the latest segment is the one read back last",
        path=MEMORY,
        old="        self._by_key[key].sort(key=lambda other: other.last)\n",
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

TICKS: Final = (
    Mutant(
        rule="A1",
        title="ticks are dated by the wall clock",
        path=PARTITION,
        old="value = encode(Tick(ts=stream_time / 1000 + silence))",
        new='value = encode(Tick(ts=__import__("time").time()))',
        tests=(STEPS + "test_a1_an_idle_partition_closes_by_ticks_that_go_on_from_the_time_of_its_log",),
    ),
    Mutant(
        rule="A1",
        title="a tick counts any silence, be it an outage",
        path=PARTITION,
        old="min(now - self.silent_since, 2 * self._settings.assembly.tick_interval_s)",
        new="now - self.silent_since",
        tests=(STEPS + "test_a1_a_process_that_was_stopped_counts_no_silence_of_the_producers",),
    ),
    Mutant(
        rule="A1",
        title="ticks pile up while the broker is away",
        path=PARTITION,
        old="if self._ticking or stream_time is None:",
        new="if stream_time is None:",
        tests=(STEPS + "test_a1_an_outage_of_the_broker_is_no_silence",),
    ),
    Mutant(
        rule="A1",
        title="an idle partition gets no ticks",
        path=PROCESS,
        old="            state.tick(now)\n",
        new="            pass\n",
        tests=(STEPS + "test_a1_an_idle_partition_closes_by_ticks_that_go_on_from_the_time_of_its_log",),
    ),
    Mutant(
        rule="A1",
        title="the source topic may keep the time of its producers",
        path="consumers/topics.py",
        old='"LogAppendTime"',
        new='"CreateTime"',
        tests=(TOPICS + "test_a1_a5_time_is_the_brokers_and_sessions_have_the_partitions_of_events",),
    ),
)

COMMIT: Final = (
    Mutant(
        rule="A4",
        title="the read-back begins where the sessions topic ends",
        path=PARTITION,
        old="bound=self._sessions_end if bound is None else bound",
        new="bound=self._sessions_end",
        tests=(CRASHES + "test_a7_a_crash_behind_any_step_changes_nothing",),
    ),
    Mutant(
        rule="A4",
        title="the read-back always begins at the beginning",
        path=PARTITION,
        old="bound=self._sessions_end if bound is None else bound",
        new="bound=0",
        tests=(STEPS + "test_a4_a_restart_reads_back_no_more_than_it_needs",),
    ),
    Mutant(
        rule="A4",
        title="the stream time of a commit is lost",
        path=LOADING,
        old="stream_time=note.time if note else None",
        new="stream_time=None",
        tests=(CRASHES + "test_a7_a_crash_behind_any_step_changes_nothing",),
    ),
    Mutant(
        rule="A4",
        title="a commit without metadata is taken for a position",
        path=LOADING,
        old="wanted = commit.offset if commit and note else 0",
        new="wanted = commit.offset if commit else 0",
        tests=(STEPS + "test_a4_a_commit_without_metadata_is_no_position",),
    ),
    Mutant(
        rule="A5",
        title="nothing is read back",
        path=LOADING,
        old="        while position < end:",
        new="        while False:",
        tests=(CRASHES + "test_a7_a_crash_behind_any_step_changes_nothing",),
    ),
    Mutant(
        rule="A5",
        title="the read-back goes to the end of another partition",
        path=LOADING,
        old="tp = TopicPartition(settings.topics.sessions, partition)",
        new="tp = TopicPartition(settings.topics.sessions, 0)",
        tests=(CRASHES + "test_a7_a_crash_behind_any_step_changes_nothing",),
    ),
)

HAND_OVER: Final = (
    Mutant(
        rule="A6",
        title="partitions are read while they load",
        path=PROCESS,
        old="        self._consumer.pause(*partitions)\n",
        new="",
        tests=(
            STEPS + "test_a9_behind_a_hole_nothing_is_committed_before_the_first_event_and_sessions_are_marked",
            REBALANCE + "test_a6_a_partition_that_goes_while_it_loads_is_left_alone",
        ),
    ),
    Mutant(
        rule="A6",
        title="the callback waits for the loading",
        path=PROCESS,
        old="self._start_loading(list(assigned))",
        new="""self._start_loading(list(assigned))
            await asyncio.gather(*self._loading.values())""",
        tests=(REBALANCE + "test_a6_while_a_partition_loads_the_callback_has_returned_and_no_record_is_lost",),
    ),
    Mutant(
        rule="A6",
        title="a loading that was overtaken takes the partition",
        path=PROCESS,
        old="if self._tokens.get(tp) is token:",
        new="if True:",
        tests=(REBALANCE + "test_a6_a_loading_that_a_second_assignment_overtook_comes_to_nothing",),
    ),
    Mutant(
        rule="A6",
        title="a loading that failed is only logged",
        path=PROCESS,
        old="""        except Exception as error:  # noqa: BLE001 - A6: any failure in here is fatal
            self._fail(error)""",
        new="""        except Exception as error:
            self._log.error("failed", error=str(error))""",
        tests=(REBALANCE + "test_a6_whatever_fails_while_loading_ends_the_process_without_a_commit",),
    ),
    Mutant(
        rule="A6",
        title="an error of the callback is only logged",
        path=PROCESS,
        old="aiokafka would only log it, and the partition stand still\n            self._fail(error)",
        new="\n            raise error",
        tests=(REBALANCE + "test_a6_whatever_fails_while_loading_ends_the_process_without_a_commit",),
    ),
    Mutant(
        rule="A6",
        title="what failed is forgotten, and the process ends as if it had been stopped",
        path=PROCESS,
        old="            self._fatal = error\n",
        new="",
        tests=(REBALANCE + "test_a6_whatever_fails_while_loading_ends_the_process_without_a_commit",),
    ),
    Mutant(
        rule="A6",
        title="the state of a revoked partition stays",
        path=PROCESS,
        old="state = self._states.pop(tp, None)",
        new="state = self._states.get(tp)",
        tests=(REBALANCE + "test_a6_a_member_that_joins_at_any_step_changes_nothing_and_nothing_is_said_twice",),
    ),
    Mutant(
        rule="A6",
        title="a revoked partition goes without a commit",
        path=PROCESS,
        old="            await asyncio.wait_for(self._commit_states(states), REVOKE_S)\n",
        new="            pass\n",
        tests=(REBALANCE + "test_a6_what_is_taken_away_is_committed_first",),
    ),
    Mutant(
        rule="A6",
        title="the token outlives a revocation",
        path=PROCESS,
        old="""            self._tokens.pop(tp, None)
            task = self._loading.pop(tp, None)
            if task is not None:
                task.cancel()
""",
        new="            self._loading.pop(tp, None)\n",
        tests=(REBALANCE + "test_a6_a_partition_that_goes_while_it_loads_is_left_alone",),
    ),
)

SENDING: Final = (
    Mutant(
        rule="A7",
        title="a commit does not wait for the outbox",
        path=PARTITION,
        old="""        if not await self.outbox.drain():
            return None
""",
        new="",
        tests=(CRASHES + "test_a7_a_crash_behind_any_step_changes_nothing",),
    ),
    Mutant(
        rule="A7",
        title="the offset to commit is taken after the outbox has drained",
        path=PARTITION,
        old="""        position = self._assembler.safe_position()
        if not await self.outbox.drain():
            return None
""",
        new="""        if not await self.outbox.drain():
            return None
        position = self._assembler.safe_position()
""",
        tests=(CRASHES + "test_a7_a_crash_behind_any_step_changes_nothing",),
    ),
    Mutant(
        rule="A7",
        title="a closed outbox counts as drained",
        path=OUTBOX,
        old="        return not self._closed\n",
        new="        return True\n",
        tests=(REBALANCE + "test_a7_an_outbox_that_was_closed_has_not_drained",),
    ),
    Mutant(
        rule="A7",
        title="a commit that failed counts as done",
        path=PROCESS,
        old="        else:\n            for tp, offset in offsets.items():",
        new="        finally:\n            for tp, offset in offsets.items():",
        tests=(REBALANCE + "test_a7_a_commit_that_failed_is_tried_again",),
    ),
    Mutant(
        rule="A7",
        title="partitions that went are committed with the others",
        path=PROCESS,
        old="offsets = {tp: offset for tp, offset in offsets.items() if tp in assigned}",
        new="offsets = dict(offsets)",
        tests=(REBALANCE + "test_a7_a_partition_that_went_does_not_spoil_the_commit_of_the_others",),
    ),
    Mutant(
        rule="J5",
        title="an over-size session has no stub",
        path=OUTBOX,
        old="if item.outgoing.stub is None:",
        new="if True:",
        tests=(STEPS + "test_j5_an_over_size_session_is_a_stub_whatever_step_a_crash_comes_behind",),
    ),
    Mutant(
        rule="J5",
        title="a stub leaves the ids of its events out",
        path=PARTITION,
        old="stub = self._to_sessions(finished, msgspec.structs.replace(bare, omitted=ids))",
        new="stub = self._to_sessions(finished, bare)",
        tests=(STEPS + "test_j5_an_over_size_session_is_a_stub_whatever_step_a_crash_comes_behind",),
    ),
    Mutant(
        rule="J5",
        title="the ids of a stub are not restored",
        path=MEMORY,
        old="for raw in content.events), *record.omitted]",
        new="for raw in content.events)]",
        tests=(STEPS + "test_j5_an_over_size_session_is_a_stub_whatever_step_a_crash_comes_behind",),
    ),
)

ROUTING: Final = (
    Mutant(
        rule="A8",
        title="misrouted events stay where they are",
        path=PARTITION,
        old="if right == self._partition:",
        new="if True:",
        tests=(STEPS + "test_a8_misrouted_events_end_up_in_one_session_whatever_step_a_crash_comes_behind",),
    ),
    Mutant(
        rule="A8",
        title="misrouted events are dropped",
        path=PARTITION,
        old="self.outbox.put(Outgoing(topic=topic, value=raw, key=key, partition=right))",
        new="pass",
        tests=(STEPS + "test_a8_misrouted_events_end_up_in_one_session_whatever_step_a_crash_comes_behind",),
    ),
    Mutant(
        rule="A8",
        title="a partition count that changes goes unnoticed",
        path=PROCESS,
        old="if count not in {0, self._partitions}:",
        new="if False:",
        tests=(STEPS + "test_a8_a_partition_count_that_changes_while_it_runs_ends_it_with_the_remedy",),
    ),
    Mutant(
        rule="A8",
        title="a partition count that changed since the commit goes unnoticed",
        path=LOADING,
        old="if note is not None and note.partitions != partitions:",
        new="if False:",
        tests=(STEPS + "test_a8_a_partition_count_that_changed_since_the_commit_is_refused",),
    ),
)

WATCHED: Final = (
    Mutant(
        rule="A9",
        title="behind a hole the first commit comes too soon",
        path=PARTITION,
        old="        if self._behind_gap:\n            return None  #",
        new="        if False:\n            return None  #",
        tests=(
            STEPS + "test_a9_behind_a_hole_nothing_is_committed_before_the_first_event_and_sessions_are_marked",
        ),
    ),
    Mutant(
        rule="A9",
        title="a commit below the start of the log is not counted",
        path=PROCESS,
        old='self._meters.counter("commits_below_log_start").inc()',
        new="pass",
        tests=(
            STEPS + "test_a9_behind_a_hole_nothing_is_committed_before_the_first_event_and_sessions_are_marked",
        ),
    ),
    Mutant(
        rule="A9",
        title="the retention of the source ignores the maximum age",
        path="consumers/topics.py",
        old="events_ms = max(round(topics.events_retention_h * HOUR_MS), 2 * age_ms)",
        new="events_ms = round(topics.events_retention_h * HOUR_MS)",
        tests=(TOPICS + "test_a9_retention_covers_what_a_replay_may_need",),
    ),
    Mutant(
        rule="A10",
        title="a stall goes unnoticed",
        path=PROCESS,
        old="if silent > self._settings.assembly.stall_timeout_s:",
        new="if False:",
        tests=(STEPS + "test_a10_lag_without_progress_ends_the_process",),
    ),
    Mutant(
        rule="A10",
        title="to have nothing to do is a stall",
        path=PROCESS,
        old="        state.active_at = now  # to have",
        new="        # to have",
        tests=(STEPS + "test_a10_lag_without_progress_ends_the_process",),
    ),
    Mutant(
        rule="A10",
        title="a read-back has no deadline",
        path=PROCESS,
        old="asyncio.timeout(self._settings.assembly.load_timeout_s)",
        new="asyncio.timeout(None)",
        tests=(REBALANCE + "test_a10_a_read_back_has_a_deadline",),
    ),
)

MUTANTS: Final = (
    *TIME,
    *TICKS,
    *CLOSE,
    *IDENTIFY,
    *POSITION,
    *COMMIT,
    *RESTORE,
    *HAND_OVER,
    *SENDING,
    *ROUTING,
    *RETENTION,
    *WATCHED,
)
