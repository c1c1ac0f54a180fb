"""Events of one partition in, finished sessions out: rules A1-A5 of the design, pure and without a clock.

`SessionAssembler` is fed every event of a partition in log order. The same log gives the same sessions, byte for
byte, wherever it is cut and replayed: time enters through the log alone (A1), the commit position is the first
offset of the oldest open session (A4), and what is already out is restored before the replay (A5).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import count
from typing import Final

import msgspec

from monitor.assembly.closed_segment import ClosedSegment, known_at, late_target
from monitor.assembly.memory import ClosedSegments
from monitor.assembly.open_session import NEVER, AssemblyPolicy, Key, OpenSession
from monitor.assembly.ordered import OrderedQueue
from monitor.assembly.outputs import (
    Duplicate,
    Finished,
    Late,
    Orphan,
    Output,
    SafePosition,
    Skewed,
)
from monitor.assembly.waiting import WaitingEvent, WaitingEvents
from monitor.events import Event, SessionEvent, Tick, Turn, event_type
from monitor.session import Addendum, CloseReason, FinishedRecord, SessionRecord

FOREVER: Final = 2**63


class SessionAssembler:
    """Assembles the sessions of one partition. Not thread-safe; state changes only inside its methods."""

    def __init__(
        self,
        policy: AssemblyPolicy,
        partition: int = 0,
        stream_time: int | None = None,
        truncated_until: int | None = None,
    ) -> None:
        self._policy = policy
        self._partition = partition
        self._stream_time = stream_time
        self._next_offset = 0
        self._log_bytes = 0
        self._open: dict[Key, OpenSession] = {}
        self._by_first: OrderedQueue[OpenSession] = OrderedQueue()
        self._waiting = WaitingEvents()
        self._deadlines: list[tuple[int, int, OpenSession]] = []
        self._tie = count()
        self._closed = ClosedSegments(policy)
        self._behind_gap = False
        self._truncated_until = truncated_until
        # Lower bounds, so that most events cost a comparison: nothing is due up to this stream time, and nothing
        # is pinned for too long below this offset.
        self._quiet_until = NEVER
        # The offset, and the place in bytes, from which on something may have to be closed or forgotten.
        self._pinned_from = 0
        self._pinned_from_bytes = 0

    # -- what the caller asks ------------------------------------------------------------------------------

    @property
    def stream_time(self) -> int | None:
        """Stream time in milliseconds; None before the first event."""
        return self._stream_time

    @property
    def open_sessions(self) -> int:
        """How many sessions are open; events that wait for a turn count as one each."""
        return len(self._open) + len(self._waiting)

    def safe_position(self) -> SafePosition:
        """Give the position to commit: replaying from here loses nothing (A4)."""
        position = SafePosition(self._next_offset, self._stream_time, self._truncated_until)
        session, waiting = self._oldest(), self._waiting.oldest
        if session is not None:
            position = position._replace(offset=session.first, stream_time=session.stream_time_before)
        if waiting is not None and waiting.offset < position.offset:
            position = position._replace(offset=waiting.offset, stream_time=waiting.stream_time_before)
        return position

    def read_back_bound(self, committed: SafePosition) -> int | None:
        """Give the lowest offset of the sessions topic that a replay from `committed` needs, if any (A4).

        Positions must not go back from call to call.
        """
        return self._closed.read_back_bound(committed)

    def knows(self, tenant: str, session_id: str) -> bool:
        """Whether a session of this key is open, or events wait for its first turn."""
        return (tenant, session_id) in self._open or (tenant, session_id) in self._waiting

    # -- what the caller tells -----------------------------------------------------------------------------

    def resume_at(self, offset: int, *, truncated: bool = False) -> None:
        """Start at an offset. `truncated`: the log before it is gone; sessions seen soon may lack a start (A9).

        How soon is known with the first event; commit no position before it.
        """
        self._next_offset = offset
        self._behind_gap = truncated
        self._quiet_until = NEVER

    def acknowledge(self, finished: Finished, offset: int) -> None:
        """Note where in the sessions topic a finished segment was written."""
        self._closed.written(finished.closed, offset)

    def restore(self, record: FinishedRecord, offset: int) -> None:
        """Take in a record that was read back from the sessions topic, in its order, before the replay (A5).

        Several copies of one segment count as their union. Addenda count too: a duplicate of a late event must
        not get into a later segment. Raises `msgspec.DecodeError` on a broken record.
        """
        if not isinstance(record, SessionRecord):
            self._closed.restore_addendum(record)
        elif (closed := self._closed.restore(record, offset)) is not None:
            self._remembered(closed)

    def skip(self, offset: int, size: int) -> None:
        """Pass a record of `size` bytes that is not an event of this partition."""
        self._next_offset = offset + 1
        self._log_bytes += size

    def on_event(self, event: Event, raw: bytes, position: tuple[int, int | None, int | None]) -> list[Output]:
        """Apply the next event of the log and give what came of it, in order.

        `raw` is the event's JSON as it is to be kept. Deadlines are checked before the event is applied (A2).
        """
        offset, timestamp, size = position
        before = self._stream_time
        outputs: list[Output] = []
        time = round(event.ts * 1000)
        if timestamp is not None and not (
            timestamp - self._policy.max_age <= time <= timestamp + self._policy.allowed_skew
        ):
            time = self._skewed(time, timestamp, outputs)
        now = time if before is None or time > before else before
        self._stream_time = now
        due = now > self._quiet_until or offset >= self._pinned_from
        if due or self._log_bytes > self._pinned_from_bytes:
            self._do_due(now, offset, outputs)
        if not isinstance(event, Tick):
            session = self._open.get((event.tenant, event.session_id))
            if session is None or not session.is_plain(event, len(raw), time, self._policy):
                self._apply(event, raw, offset, time, before, outputs)
            elif session.add(event, raw, offset, time, now):
                self._schedule(session)
        self._next_offset = offset + 1
        self._log_bytes += len(raw) if size is None else size
        if offset >= self._pinned_from or self._log_bytes > self._pinned_from_bytes:
            self._unpin(offset, outputs)
        return outputs

    def _skewed(self, time: int, timestamp: int, outputs: list[Output]) -> int:
        """Say that an event time is far from the broker's, and bound it by that plus the allowed skew (A1)."""
        limit = timestamp + self._policy.allowed_skew
        outputs.append(Skewed("future" if time > limit else "past"))
        return min(time, limit)

    # -- closing -------------------------------------------------------------------------------------------

    def _do_due(self, now: int, offset: int, outputs: list[Output]) -> None:
        """Do what is due by stream time or offset, and note until when nothing more will be."""
        if self._behind_gap:
            self._behind_gap = False
            self._truncated_until = now + self._policy.max_age
        self._give_up_waiting(now, offset, outputs)
        self._close_due(now, outputs)
        self._forget(now, offset)
        closed = self._closed.oldest
        deadline = self._deadlines[0][0] if self._deadlines else FOREVER
        forgotten_at = closed[0] if closed else FOREVER
        oldest = self._waiting.oldest
        given_up_at = oldest.arrived + self._policy.grace if oldest else FOREVER
        self._quiet_until = min(deadline, forgotten_at, given_up_at)

    def _give_up_waiting(self, now: int, offset: int, outputs: list[Output]) -> None:
        policy = self._policy
        given_up = self._waiting.expire(
            now - policy.grace, offset - policy.max_pinned + 1, self._log_bytes - policy.max_pinned_bytes
        )
        outputs.extend(_orphan(waiting) for waiting in given_up)

    def _close_due(self, now: int, outputs: list[Output]) -> None:
        due: list[tuple[int, OpenSession]] = []
        while self._deadlines and self._deadlines[0][0] < now:
            _, _, session = heapq.heappop(self._deadlines)
            if session.closed:
                continue
            deadline = session.deadline(self._policy)
            # The heap holds one entry a session, which may be older than its clock.
            if deadline < now:
                session.closed = True
                due.append((deadline, session))
            else:
                heapq.heappush(self._deadlines, (deadline, next(self._tie), session))
        # Sorted, so that the order does not depend on how the heap came about.
        if len(due) > 1:
            due.sort(key=lambda item: (item[0], item[1].first))
        for _, session in due:
            self._close(session, session.due_reason(self._policy), now, outputs)

    def _unpin(self, offset: int, outputs: list[Output]) -> None:
        now, below = self._stream_time or 0, offset - self._policy.max_pinned
        bytes_below = self._log_bytes - self._policy.max_pinned_bytes
        while (oldest := self._oldest()) and (oldest.first <= below or oldest.log_bytes < bytes_below):
            self._close(oldest, "pinned", now, outputs)
        waiting = self._waiting.oldest
        self._pinned_from = offset + 1 + self._policy.max_pinned
        self._pinned_from_bytes = self._log_bytes + self._policy.max_pinned_bytes
        if oldest:
            self._pin(oldest.first, oldest.log_bytes)
        if waiting:
            self._pin(waiting.offset, waiting.log_bytes)
        self._pin_memory()

    def _pin(self, offset: int, log_bytes: int | None = None) -> None:
        """Note that something hangs on a place in the log: so far behind it `_unpin` has to look."""
        self._pinned_from = min(self._pinned_from, offset + self._policy.max_pinned)
        if log_bytes is not None:
            self._pinned_from_bytes = min(self._pinned_from_bytes, log_bytes + self._policy.max_pinned_bytes)

    def _oldest(self) -> OpenSession | None:
        """Give the open session with the lowest offset."""
        while self._by_first and self._by_first.first[1].closed:
            self._by_first.pop()
        return self._by_first.first[1] if self._by_first else None

    def _close(self, session: OpenSession, reason: CloseReason, now: int, outputs: list[Output]) -> None:
        session.closed = True
        del self._open[session.key]
        if session.truncated:
            reason = "truncated"
        segment, record = session.finish(self._partition, reason, now)
        closed = ClosedSegment(segment, session.first, session.last, now, session.event_ids, session.turn_ids)
        self._closed.remember(session.key, closed)
        self._remembered(closed)
        outputs.append(Finished(session.key, record, reason, len(session.turns), closed))
        session.release()

    # -- memory of closed segments -------------------------------------------------------------------------

    def _remembered(self, closed: ClosedSegment) -> None:
        self._pin(closed.last)
        self._quiet_until = min(self._quiet_until, closed.closed_at + self._policy.memory)

    def _forget(self, now: int, offset: int) -> None:
        self._closed.forget(now, offset)
        self._pin_memory()

    def _pin_memory(self) -> None:
        if (oldest := self._closed.oldest) is not None:
            self._pin(oldest[1].last)

    # -- applying ------------------------------------------------------------------------------------------

    def _apply(
        self, event: SessionEvent, raw: bytes, offset: int, time: int, before: int | None, outputs: list[Output]
    ) -> None:
        key = (event.tenant, event.session_id)
        closed = self._closed.of(key)
        session = self._open.get(key)
        if any(segment.is_out(event.event_id, offset) for segment in closed):
            return
        taken_in = session is not None and event.event_id in session.event_ids
        if taken_in or any(segment.has_event(event, offset) for segment in closed):
            outputs.append(Duplicate(event.event_id))
            return
        target = late_target(event, offset, session, closed)
        # What does not go into the open session can't be a reason to split it.
        if target is None and session is not None and self._must_split(session, event, raw, time, outputs):
            session = None
            closed = self._closed.of(key)
            target = late_target(event, offset, session, closed)
        if target is not None:
            self._late(event, raw, offset, target, outputs)
        elif session is not None:
            if session.add(event, raw, offset, time, self._stream_time or 0):
                self._schedule(session)
        else:
            now = self._stream_time or 0
            arrived = WaitingEvent(key, event, raw, offset, time, now, before, self._log_bytes)
            if isinstance(event, Turn):
                self._open_session(arrived, closed, outputs)
            else:
                self._wait(arrived)

    def _wait(self, event: WaitingEvent) -> None:
        self._waiting.add(event)
        self._quiet_until = min(self._quiet_until, event.arrived + self._policy.grace)
        self._pin(event.offset, event.log_bytes)

    def _must_split(
        self, session: OpenSession, event: SessionEvent, raw: bytes, time: int, outputs: list[Output]
    ) -> bool:
        reason = session.split_reason(event, len(raw), time, self._policy)
        if reason is None:
            return False
        self._close(session, reason, self._stream_time or 0, outputs)
        return True

    def _late(
        self, event: SessionEvent, raw: bytes, offset: int, target: ClosedSegment, outputs: list[Output]
    ) -> None:
        outputs.append(
            Late(
                Addendum(
                    tenant=event.tenant,
                    session_id=event.session_id,
                    segment=target.segment,
                    event=msgspec.Raw(raw),
                    partition=self._partition,
                    offset=offset,
                )
            )
        )
        target.note_late(event.event_id, offset)

    def _open_session(self, turn: WaitingEvent, closed: Sequence[ClosedSegment], outputs: list[Output]) -> None:
        """Open a session with its first turn, and take in what waited for it."""
        now = self._stream_time or 0
        known = known_at(closed, turn.offset) if closed else ()
        events = [*self._waiting.take(turn.key), turn] if self._waiting else [turn]
        session = OpenSession(
            turn.key,
            events[0].offset,
            opened_at=now,
            log_bytes=events[0].log_bytes,
            stream_time_before=events[0].stream_time_before,
            previous=max(known, key=lambda segment: segment.last).segment if known else None,
            followed=bool(closed),
            truncated=self._truncated_until is not None and now <= self._truncated_until,
        )
        for item in events:
            event_id = item.event.event_id
            # The turn itself is never the duplicate: without it the session would have no turn.
            if event_id in session.event_ids or (item is not turn and event_id == turn.event.event_id):
                outputs.append(Duplicate(event_id))
            elif item is not turn and session.size + len(item.raw) + len(turn.raw) > 2 * self._policy.max_bytes:
                outputs.append(_orphan(item))
            else:
                session.add(item.event, item.raw, item.offset, item.time, item.arrived)
        self._open[turn.key] = session
        self._by_first.push(session.first, session)
        self._pin(session.first, session.log_bytes)
        self._schedule(session)

    def _schedule(self, session: OpenSession) -> None:
        # A clock that moved on is noticed when its old entry comes up; only an earlier deadline needs a new one.
        deadline = session.deadline(self._policy)
        heapq.heappush(self._deadlines, (deadline, next(self._tie), session))
        self._quiet_until = min(self._quiet_until, deadline)


def _orphan(waiting: WaitingEvent) -> Orphan:
    return Orphan(waiting.key, waiting.raw, event_type(waiting.event), waiting.offset)
