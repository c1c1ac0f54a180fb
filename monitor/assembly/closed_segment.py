"""What the assembler remembers of a segment that is out, and which segment a late event belongs to (A3, A5)."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence

from monitor.assembly.open_session import OpenSession
from monitor.events import SessionEvent, Turn


class ClosedSegment:
    """What is remembered of a segment that is out: enough to know its events again.

    A busy partition remembers a million of these, so ids are kept as Python's 64-bit keyed hashes, in order. They
    are compared only within one session: a false match takes a session of billions of events.
    """

    __slots__ = ("_event_ids", "_late", "_turn_ids", "closed_at", "first", "last", "segment")

    def __init__(
        self,
        segment: str,
        first: int,
        last: int,
        closed_at: int,
        event_ids: Iterable[str],
        turn_ids: Iterable[str],
    ) -> None:
        self.segment = segment
        self.first = first
        self.last = last
        self.closed_at = closed_at
        self._event_ids = _hashes(event_ids)
        self._turn_ids = _hashes(turn_ids)
        # Events that went out as its addenda: event_id and offset. Few segments have any.
        self._late: dict[str, int] | None = None

    def take_in(self, event_ids: Iterable[str], turn_ids: Iterable[str]) -> None:
        """Add the ids of another copy (A5)."""
        self._event_ids = _hashes(event_ids, self._event_ids)
        self._turn_ids = _hashes(turn_ids, self._turn_ids)

    def note_late(self, event_id: str, offset: int) -> None:
        """Note an event that went out as an addendum; of several copies the first in the log."""
        if self._late is None:
            self._late = {}
        self._late[event_id] = min(offset, self._late.get(event_id, offset))

    def has_turn(self, turn_id: str) -> bool:
        """Whether a turn is in the segment."""
        return _among(turn_id, self._turn_ids)

    def is_out(self, event_id: str, offset: int) -> bool:
        """Whether this very record is already out, in the segment or as an addendum of it (A5)."""
        if self.first <= offset <= self.last:
            return True
        return self._late is not None and self._late.get(event_id) == offset

    def has_event(self, event: SessionEvent, offset: int) -> bool:
        """Whether an earlier copy of an event is in the segment or an addendum of it (A3).

        A turn is in one segment at most, whichever copy of it comes by; anything else may have been an orphan
        before the segment that took in its duplicate began.
        """
        if isinstance(event, Turn):
            return _among(event.event_id, self._event_ids)
        if self.first > offset:
            return False
        if self._late is not None and self._late.get(event.event_id, offset) < offset:
            return True
        return _among(event.event_id, self._event_ids)


def _hashes(ids: Iterable[str], others: Iterable[int] = ()) -> array[int]:
    return array("q", sorted({*map(hash, ids), *others}))


def _among(name: str, hashes: array[int]) -> bool:
    wanted = hash(name)
    place = bisect_left(hashes, wanted)
    return place < len(hashes) and hashes[place] == wanted


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
        return next((segment for segment in reversed(known) if segment.has_turn(turn_id)), None)
    return None if session is not None else known[-1]
