"""Events of one partition in, finished sessions out: rules A1-A5 of the design, pure and without a clock.

`SessionAssembler` is fed every event of a partition in log order. The same log gives the same sessions, byte for
byte, wherever it is cut and replayed: time enters through the log alone (A1), the commit position is the first
offset of the oldest open session (A4), and what is already out is restored before the replay (A5).
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from itertools import count
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from monitor.events import Event, SessionEnd, SessionEvent, Tick, Turn
from monitor.open_session import AssemblyPolicy, Key, OpenSession
from monitor.session import Addendum, CloseReason, SessionRecord, decode_content

SkewDirection: TypeAlias = Literal["future", "past"]


class Position(NamedTuple):
    """Where an event lies in its partition; `timestamp` is the broker's, in milliseconds (None in a file)."""

    offset: int
    timestamp: int | None = None


class SafePosition(NamedTuple):
    """What may be committed: the offset to replay from, and the stream time just before it (A4)."""

    offset: int
    stream_time: int | None


class ClosedSegment:
    """What is remembered of a segment that is out: enough to know its events again."""

    __slots__ = ("closed_at", "event_ids", "first", "last", "segment", "turn_ids")

    def __init__(
        self, segment: str, first: int, last: int, closed_at: int, event_ids: set[str], turn_ids: set[str]
    ) -> None:
        self.segment = segment
        self.first = first
        self.last = last
        self.closed_at = closed_at
        self.event_ids = event_ids
        self.turn_ids = turn_ids


class Finished(NamedTuple):
    """A session segment closed. `closed` is what the assembler keeps of it; see `acknowledge`."""

    key: Key
    record: SessionRecord
    reason: CloseReason
    turns: int
    closed: ClosedSegment


class Late(NamedTuple):
    """An event for a segment that is already out."""

    addendum: Addendum


class Orphan(NamedTuple):
    """An event other than a turn that belongs to no known session (A3)."""

    raw: bytes
    kind: str
    offset: int


class Duplicate(NamedTuple):
    """An event whose event_id was taken in before; the first one wins."""

    event_id: str


class Skewed(NamedTuple):
    """An event whose time lies too far from the broker's; it was taken in all the same."""

    direction: SkewDirection


Output: TypeAlias = Finished | Late | Orphan | Duplicate | Skewed


class SessionAssembler:
    """Assembles the sessions of one partition. Not thread-safe; state changes only inside its methods."""

    def __init__(self, policy: AssemblyPolicy, partition: int = 0, stream_time: int | None = None) -> None:
        self._policy = policy
        self._partition = partition
        self._stream_time = stream_time
        self._next_offset = 0
        # Ordered by first offset: a session is put in when its first event arrives.
        self._open: OrderedDict[Key, OpenSession] = OrderedDict()
        self._deadlines: list[tuple[int, int, OpenSession]] = []
        self._tie = count()
        self._closed: dict[Key, list[ClosedSegment]] = {}
        self._memory: deque[tuple[int, Key, ClosedSegment]] = deque()
        self._copies: list[tuple[int, int, ClosedSegment]] = []
        self._behind_gap = False
        self._truncated_until: int | None = None

    # -- what the caller asks ------------------------------------------------------------------------------

    @property
    def stream_time(self) -> int | None:
        """Stream time in milliseconds; None before the first event."""
        return self._stream_time

    @property
    def open_sessions(self) -> int:
        """How many sessions are open, those that still wait for a turn included."""
        return len(self._open)

    def safe_position(self) -> SafePosition:
        """Give the position to commit: replaying from here loses nothing (A4)."""
        if not self._open:
            return SafePosition(self._next_offset, self._stream_time)
        oldest = next(iter(self._open.values()))
        return SafePosition(oldest.first, oldest.stream_time_before)

    def read_back_bound(self, committed: SafePosition) -> int | None:
        """Give the lowest offset of the sessions topic that a replay from `committed` needs, if any (A4).

        Positions must not go back from call to call.
        """
        while self._copies and not self._needed(self._copies[0][2], committed):
            heapq.heappop(self._copies)
        return self._copies[0][0] if self._copies else None

    # -- what the caller tells -----------------------------------------------------------------------------

    def resume_at(self, offset: int, *, truncated: bool = False) -> None:
        """Start at an offset. `truncated`: the log before it is gone; sessions seen soon may lack a start (A9)."""
        self._next_offset = offset
        self._behind_gap = truncated

    def acknowledge(self, finished: Finished, offset: int) -> None:
        """Note where in the sessions topic a finished segment was written."""
        heapq.heappush(self._copies, (offset, next(self._tie), finished.closed))

    def restore(self, record: SessionRecord, offset: int) -> None:
        """Take in a copy that was read back from the sessions topic, before the replay starts (A5).

        Several copies of one segment count as their union. Raises `msgspec.DecodeError` on a broken record.
        """
        content = decode_content(record.content)
        ids = [msgspec.json.decode(raw, type=_Ids) for raw in content.events]
        key = (content.tenant, content.session_id)
        span = record.span
        # A duplicate that came after its segment was forgotten opens another one under the same id: no copy.
        closed = next(
            (
                other
                for other in self._closed.get(key, ())
                if other.segment == content.segment and other.first <= span.last and span.first <= other.last
            ),
            None,
        )
        if closed is None:
            closed = ClosedSegment(content.segment, span.first, span.last, span.closed_at, set(), set())
            self._remember(key, closed)
        closed.first = min(closed.first, span.first)
        closed.last = max(closed.last, span.last)
        closed.event_ids.update(item.event_id for item in ids)
        closed.turn_ids.update(item.turn_id for item in ids if item.type == "turn" and item.turn_id)
        heapq.heappush(self._copies, (offset, next(self._tie), closed))

    def on_event(self, event: Event, raw: bytes, position: Position) -> list[Output]:
        """Apply the next event of the log and give what came of it, in order.

        `raw` is the event's JSON as it is to be kept. Deadlines are checked before the event is applied (A2).
        """
        offset = position.offset
        before = self._stream_time
        outputs: list[Output] = []
        time = self._event_time(event, position, outputs)
        now = self._advance(time)
        self._close_due(now, outputs)
        self._forget(now)
        if not isinstance(event, Tick):
            self._apply(event, raw, offset, time, before, outputs)
        self._next_offset = offset + 1
        self._unpin(offset, outputs)
        return outputs

    # -- time ----------------------------------------------------------------------------------------------

    def _event_time(self, event: Event, position: Position, outputs: list[Output]) -> int:
        """Event time in milliseconds, at most the broker's time plus the allowed skew (A1)."""
        time = round(event.ts * 1000)
        if position.timestamp is None:
            return time
        limit = position.timestamp + self._policy.allowed_skew
        if time > limit:
            outputs.append(Skewed("future"))
            return limit
        if time < position.timestamp - self._policy.max_age:
            outputs.append(Skewed("past"))
        return time

    def _advance(self, time: int) -> int:
        if self._stream_time is None or time > self._stream_time:
            self._stream_time = time
        if self._behind_gap:
            self._behind_gap = False
            self._truncated_until = self._stream_time + self._policy.max_age
        return self._stream_time

    # -- closing -------------------------------------------------------------------------------------------

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
        for _, session in sorted(due, key=lambda item: (item[0], item[1].first)):
            self._close(session, session.due_reason(self._policy), now, outputs)

    def _unpin(self, offset: int, outputs: list[Output]) -> None:
        now = self._stream_time or 0
        while self._open:
            oldest = next(iter(self._open.values()))
            if offset - oldest.first < self._policy.max_pinned:
                return
            self._close(oldest, "pinned", now, outputs)

    def _close(self, session: OpenSession, reason: CloseReason, now: int, outputs: list[Output]) -> None:
        session.closed = True
        del self._open[session.key]
        if not session.turns:
            outputs.extend(Orphan(held.raw, held.kind, held.offset) for held in session.others)
            return
        if session.truncated:
            reason = "truncated"
        segment, record = session.finish(self._partition, reason, now)
        turn_ids = {turn.turn_id for turn in session.turns}
        closed = ClosedSegment(segment, session.first, session.last, now, session.event_ids, turn_ids)
        self._remember(session.key, closed)
        outputs.append(Finished(session.key, record, reason, len(session.turns), closed))

    # -- memory of closed segments -------------------------------------------------------------------------

    def _remember(self, key: Key, closed: ClosedSegment) -> None:
        self._closed.setdefault(key, []).append(closed)
        self._memory.append((closed.closed_at + self._policy.memory, key, closed))

    def _forget(self, now: int) -> None:
        while self._memory and self._memory[0][0] < now:
            _, key, closed = self._memory.popleft()
            kept = [other for other in self._closed[key] if other is not closed]
            if kept:
                self._closed[key] = kept
            else:
                del self._closed[key]

    def _needed(self, closed: ClosedSegment, committed: SafePosition) -> bool:
        # Remembered at the time of the position, not now: the replay starts with that stream time.
        forgotten_at = closed.closed_at + self._policy.memory
        return closed.last >= committed.offset or forgotten_at >= (committed.stream_time or 0)

    # -- applying ------------------------------------------------------------------------------------------

    def _apply(
        self, event: SessionEvent, raw: bytes, offset: int, time: int, before: int | None, outputs: list[Output]
    ) -> None:
        key = (event.tenant, event.session_id)
        closed = self._closed.get(key, [])
        if any(segment.first <= offset <= segment.last for segment in closed):
            return  # replayed: this event is inside a segment that is out (A5)
        session = self._open.get(key)
        if session is not None and self._must_split(session, event, raw, time, outputs):
            session = None
            closed = self._closed.get(key, [])
        if self._is_duplicate(event, offset, session, closed):
            outputs.append(Duplicate(event.event_id))
            return
        # Segments that begin behind this event exist only because they were read back: not yet, for this event.
        known = [segment for segment in closed if segment.first <= offset]
        target = None if isinstance(event, Turn) else _late_target(event, session, known)
        if target is not None:
            self._late(event, raw, offset, target, outputs)
            return
        if session is None:
            session = self._open_session(key, offset, before, known)
        now = self._stream_time or 0
        session.add(event, raw, offset, time, now)
        self._schedule(session, event)

    def _must_split(
        self, session: OpenSession, event: SessionEvent, raw: bytes, time: int, outputs: list[Output]
    ) -> bool:
        if event.event_id in session.event_ids:
            return False
        reason = session.split_reason(event, len(raw), time, self._policy)
        if reason is None:
            return False
        self._close(session, reason, self._stream_time or 0, outputs)
        return True

    @staticmethod
    def _is_duplicate(
        event: SessionEvent, offset: int, session: OpenSession | None, closed: list[ClosedSegment]
    ) -> bool:
        if session is not None and event.event_id in session.event_ids:
            return True
        # A turn is in one segment at most, whichever copy of it comes by; anything else may have been an
        # orphan before the segment that took in its duplicate began.
        return any(
            event.event_id in segment.event_ids
            for segment in closed
            if segment.first <= offset or isinstance(event, Turn)
        )

    def _late(
        self, event: SessionEvent, raw: bytes, offset: int, target: ClosedSegment, outputs: list[Output]
    ) -> None:
        if event.event_id in target.event_ids:
            outputs.append(Duplicate(event.event_id))
            return
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
        target.event_ids.add(event.event_id)

    def _open_session(self, key: Key, offset: int, before: int | None, known: list[ClosedSegment]) -> OpenSession:
        now = self._stream_time or 0
        previous = max(known, key=lambda segment: segment.last).segment if known else None
        truncated = self._truncated_until is not None and now <= self._truncated_until
        session = OpenSession(
            key, offset, opened_at=now, stream_time_before=before, previous=previous, truncated=truncated
        )
        self._open[key] = session
        return session

    def _schedule(self, session: OpenSession, event: SessionEvent) -> None:
        # A clock that moved on is noticed when its old entry comes up; only an earlier deadline needs a new one.
        if len(session.event_ids) == 1 or isinstance(event, SessionEnd):
            heapq.heappush(self._deadlines, (session.deadline(self._policy), next(self._tie), session))


class _Ids(msgspec.Struct):
    type: str
    event_id: str
    turn_id: str | None = None


def _late_target(
    event: SessionEvent, session: OpenSession | None, known: list[ClosedSegment]
) -> ClosedSegment | None:
    """Find the closed segment that an event other than a turn belongs to, if it belongs to none that is open."""
    if not known:
        return None
    turn_id = getattr(event, "turn_id", None)
    if turn_id is not None:
        if session is not None and session.has_turn(turn_id):
            return None
        return next((segment for segment in reversed(known) if turn_id in segment.turn_ids), None)
    return None if session is not None and session.turns else known[-1]
