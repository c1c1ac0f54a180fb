"""The memory of segments that are out: which are still known, and what a replay has to read back (A3 to A5)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from monitor.assembly.closed_segment import ClosedSegment
from monitor.assembly.open_session import AssemblyPolicy, Key
from monitor.assembly.ordered import OrderedQueue
from monitor.assembly.outputs import SafePosition
from monitor.session import Addendum, EventIds, SessionRecord, decode_content


class ClosedSegments:
    """The closed segments of one partition, each forgotten some time, or so many records, after it closed."""

    def __init__(self, policy: AssemblyPolicy) -> None:
        self._policy = policy
        self._by_key: dict[Key, list[ClosedSegment]] = {}
        self._order: OrderedQueue[tuple[Key, ClosedSegment]] = OrderedQueue()
        self._copies: OrderedQueue[ClosedSegment] = OrderedQueue()

    @property
    def oldest(self) -> tuple[int, ClosedSegment] | None:
        """The segment to be forgotten first, and at which stream time that is, if it isn't before."""
        if not self._order:
            return None
        until, (_, closed) = self._order.first
        return until, closed

    def of(self, key: Key) -> Sequence[ClosedSegment]:
        """Give what is remembered of a session, the latest segment last."""
        return self._by_key.get(key, ())

    def remember(self, key: Key, closed: ClosedSegment) -> None:
        """Take in a segment that closed now."""
        self._by_key.setdefault(key, []).append(closed)
        self._order.push(closed.closed_at + self._policy.memory, (key, closed))

    def forget(self, now: int, offset: int) -> None:
        """Forget what is due at a stream time and an offset.

        In the order of closing, so that a replay forgets at the same offset whatever it has read back.
        """
        while self._order and (self._order.first[0] < now or self._is_far(self._order.first[1][1], offset)):
            key, closed = self._order.pop()
            until = closed.closed_at + self._policy.memory
            if until >= now and not self._is_far(closed, offset):  # another copy was read back, which closed later
                self._order.push(until, (key, closed))
                continue
            kept = [other for other in self._by_key[key] if other is not closed]
            if kept:
                self._by_key[key] = kept
            else:
                del self._by_key[key]

    def written(self, closed: ClosedSegment, offset: int) -> None:
        """Note that a copy of a segment lies at an offset of the sessions topic."""
        self._copies.push(offset, closed)

    def read_back_bound(self, committed: SafePosition) -> int | None:
        """Give the lowest offset of the sessions topic that a replay from a position needs, if any (A4).

        Positions must not go back from call to call.
        """
        while self._copies and not self._needed(self._copies.first[1], committed):
            self._copies.pop()
        return self._copies.first[0] if self._copies else None

    def restore(self, record: SessionRecord, offset: int) -> ClosedSegment | None:
        """Take in a copy that was read back; give its segment if it is a new one (A5)."""
        content = decode_content(record.content)
        ids = [*(msgspec.json.decode(raw, type=EventIds) for raw in content.events), *record.omitted]
        key = (content.tenant, content.session_id)
        span = record.span
        # A duplicate that came after its segment was forgotten opens another one under the same id: no copy.
        known = next(
            (
                other
                for other in self.of(key)
                if other.segment == content.segment and other.first <= span.last and span.first <= other.last
            ),
            None,
        )
        closed = known or ClosedSegment(content.segment, span.first, span.last, span.closed_at, (), ())
        if known is None:
            self.remember(key, closed)
        closed.first = min(closed.first, span.first)
        closed.last = max(closed.last, span.last)
        closed.closed_at = max(closed.closed_at, span.closed_at)
        closed.take_in(
            (item.event_id for item in ids),
            (item.turn_id for item in ids if item.type == "turn" and item.turn_id),
        )
        # A stopped worker's copies may lie between another's; who is the latest must not depend on that.
        self._by_key[key].sort(key=lambda other: other.last)
        self.written(closed, offset)
        return closed if known is None else None

    def restore_addendum(self, addendum: Addendum) -> None:
        """Take in an addendum that was read back: a duplicate of it must not get into a later segment (A5)."""
        for closed in self.of((addendum.tenant, addendum.session_id)):
            if closed.segment == addendum.segment and closed.last < addendum.offset:
                event_id = msgspec.json.decode(addendum.event, type=EventIds).event_id
                closed.note_late(event_id, addendum.offset)

    def _is_far(self, closed: ClosedSegment, offset: int) -> bool:
        return offset - closed.last >= self._policy.max_pinned

    def _needed(self, closed: ClosedSegment, committed: SafePosition) -> bool:
        # Remembered at the time of the position, not now: the replay starts with that stream time. A segment that
        # reaches behind the position closed no earlier than that, so it is among them. By records: a segment
        # closes within max_pinned of its first event, and is forgotten max_pinned behind that at the latest.
        recent = committed.offset - closed.last < 2 * self._policy.max_pinned
        return recent and closed.closed_at + self._policy.memory >= (committed.stream_time or 0)
