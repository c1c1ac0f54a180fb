"""What the assembler remembers of a segment that is out, and which segment a late event belongs to (A3, A5)."""

from __future__ import annotations

from collections.abc import Sequence

from monitor.assembly.open_session import OpenSession
from monitor.events import SessionEvent, Turn


class ClosedSegment:
    """What is remembered of a segment that is out: enough to know its events again.

    `late` are the events that went out as its addenda: event_id and offset.
    """

    __slots__ = ("closed_at", "event_ids", "first", "last", "late", "segment", "turn_ids")

    def __init__(
        self, segment: str, first: int, last: int, closed_at: int, event_ids: set[str], turn_ids: set[str]
    ) -> None:
        self.segment = segment
        self.first = first
        self.last = last
        self.closed_at = closed_at
        self.event_ids = event_ids
        self.turn_ids = turn_ids
        self.late: dict[str, int] = {}

    def is_out(self, event_id: str, offset: int) -> bool:
        """Whether this very record is already out, in the segment or as an addendum of it (A5)."""
        return self.first <= offset <= self.last or self.late.get(event_id) == offset

    def has_event(self, event: SessionEvent, offset: int) -> bool:
        """Whether an earlier copy of an event is in the segment or an addendum of it (A3).

        A turn is in one segment at most, whichever copy of it comes by; anything else may have been an orphan
        before the segment that took in its duplicate began.
        """
        if isinstance(event, Turn):
            return event.event_id in self.event_ids
        if self.first > offset:
            return False
        return event.event_id in self.event_ids or self.late.get(event.event_id, offset) < offset


def known_at(closed: Sequence[ClosedSegment], offset: int) -> list[ClosedSegment]:
    """Leave out segments that begin behind an event: read back, but not there yet when it came."""
    return [segment for segment in closed if segment.first <= offset]


def late_target(
    event: SessionEvent, offset: int, session: OpenSession | None, closed: Sequence[ClosedSegment]
) -> ClosedSegment | None:
    """Find the closed segment that an event other than a turn belongs to, if it belongs to none that is open."""
    known = () if isinstance(event, Turn) else known_at(closed, offset)
    if not known:
        return None
    turn_id = getattr(event, "turn_id", None)
    if turn_id is not None:
        if session is not None and turn_id in session.turn_ids:
            return None
        return next((segment for segment in reversed(known) if turn_id in segment.turn_ids), None)
    return None if session is not None else known[-1]
