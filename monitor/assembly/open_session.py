"""One open session: its events so far, its clock, and the record it becomes when it closes."""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple, TypeAlias

import msgspec

from monitor.events import SessionEnd, SessionEvent, Turn, event_type
from monitor.session import CloseReason, LogSpan, SessionContent, SessionRecord

Key: TypeAlias = tuple[str, str]


class AssemblyPolicy(msgspec.Struct, kw_only=True, frozen=True):
    """When a session is over (A2). Times in milliseconds of stream time, sizes in bytes of raw events.

    `max_turns` and `max_bytes` split before a user turn; twice as much splits before any event.
    """

    gap: int = 900_000
    grace: int = 60_000
    max_age: int = 14_400_000
    max_turns: int = 500
    max_bytes: int = 400_000
    max_pinned: int = 2_000_000
    memory: int = 3_600_000
    allowed_skew: int = 60_000


class HeldTurn(NamedTuple):
    """A turn, with what its order depends on. `time` is its own event time in milliseconds."""

    turn_index: int | None
    time: int
    offset: int
    event_id: str
    turn_id: str
    raw: bytes


class HeldEvent(NamedTuple):
    """Any other event."""

    time: int
    offset: int
    kind: str
    raw: bytes


class OpenSession:
    """The events of a session that is still open."""

    __slots__ = (
        "closed",
        "end_at",
        "event_ids",
        "first",
        "key",
        "last",
        "last_arrival",
        "newest",
        "opened_at",
        "others",
        "previous",
        "size",
        "stream_time_before",
        "truncated",
        "turn_ids",
        "turns",
    )

    def __init__(
        self,
        key: Key,
        offset: int,
        *,
        opened_at: int,
        stream_time_before: int | None,
        previous: str | None,
        truncated: bool,
    ) -> None:
        self.key = key
        self.first = offset
        self.last = offset
        self.opened_at = opened_at
        self.last_arrival = opened_at
        self.stream_time_before = stream_time_before
        self.previous = previous
        self.truncated = truncated
        self.newest: int | None = None
        self.end_at: int | None = None
        self.size = 0
        self.turns: list[HeldTurn] = []
        self.others: list[HeldEvent] = []
        self.event_ids: set[str] = set()
        self.turn_ids: set[str] = set()
        self.closed = False

    def add(self, event: SessionEvent, raw: bytes, offset: int, time: int, now: int) -> None:
        """Take in an event. `time` is its time bounded by the broker's, `now` the stream time (A1)."""
        self.last = offset
        self.last_arrival = now
        self.newest = time if self.newest is None else max(self.newest, time)
        self.size += len(raw)
        self.event_ids.add(event.event_id)
        own_time = round(event.ts * 1000)
        if isinstance(event, Turn):
            self.turn_ids.add(event.turn_id)
            self.turns.append(HeldTurn(event.turn_index, own_time, offset, event.event_id, event.turn_id, raw))
            return
        self.others.append(HeldEvent(own_time, offset, event_type(event), raw))
        if isinstance(event, SessionEnd) and self.end_at is None:
            self.end_at = now

    def deadline(self, policy: AssemblyPolicy) -> int:
        """Give the stream time behind which the session is over."""
        deadline = min(self.last_arrival + policy.gap, self.opened_at + policy.max_age)
        return deadline if self.end_at is None else min(deadline, self.end_at + policy.grace)

    def due_reason(self, policy: AssemblyPolicy) -> CloseReason:
        """Say which of its deadlines was the first."""
        deadline = self.deadline(policy)
        if self.end_at is not None and deadline == self.end_at + policy.grace:
            return "ended"
        return "max_age" if deadline == self.opened_at + policy.max_age else "inactivity"

    def split_reason(
        self, event: SessionEvent, size: int, time: int, policy: AssemblyPolicy
    ) -> CloseReason | None:
        """Say why the session has to close before this event, or None when it may take it in (A2)."""
        if self.newest is not None and time - self.newest > policy.gap:
            return "inactivity"
        factor = 1 if isinstance(event, Turn) and event.role == "user" else 2
        if isinstance(event, Turn) and len(self.turns) >= factor * policy.max_turns:
            return "max_turns"
        return "max_bytes" if self.size + size > factor * policy.max_bytes else None

    def finish(self, partition: int, reason: CloseReason, now: int) -> tuple[str, SessionRecord]:
        """Join the raw events into the record of a finished segment; its id is its first turn's event_id (A3)."""
        turns = final_order(self.turns)
        others = sorted(self.others, key=lambda held: (held.time, held.offset))
        segment = turns[0].event_id
        content = SessionContent(
            tenant=self.key[0],
            session_id=self.key[1],
            segment=segment,
            previous_segment=self.previous,
            close_reason=reason,
            events=[msgspec.Raw(turn.raw) for turn in turns] + [msgspec.Raw(held.raw) for held in others],
        )
        span = LogSpan(partition=partition, first=self.first, last=self.last, closed_at=now)
        return segment, SessionRecord(content=msgspec.Raw(msgspec.json.encode(content)), span=span)


def final_order(turns: list[HeldTurn]) -> list[HeldTurn]:
    """Order turns by index, then time, then arrival; a turn without an index goes where its time puts it (A3)."""
    indexed = sorted(
        (t for t in turns if t.turn_index is not None), key=lambda t: (t.turn_index, t.time, t.offset)
    )
    if len(indexed) == len(turns):
        return indexed
    places = {turn.offset: place for place, turn in enumerate(indexed)}
    newest: list[int] = []
    for turn in indexed:
        newest.append(max(turn.time, newest[-1]) if newest else turn.time)

    def order(turn: HeldTurn) -> tuple[int, int, int, int]:
        if turn.turn_index is not None:
            return places[turn.offset], 0, 0, 0
        return bisect_right(newest, turn.time) - 1, 1, turn.time, turn.offset

    return sorted(turns, key=order)
