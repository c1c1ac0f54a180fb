"""One open session: its events so far, its clock, and the record it becomes when it closes."""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, TypeAlias

import msgspec

from monitor.events import SessionEnd, SessionEvent, Turn, event_type
from monitor.session import CloseReason, LogSpan, SessionContent, SessionRecord

Key: TypeAlias = tuple[str, str]
NEVER: Final = -1


class AssemblyPolicy(msgspec.Struct, kw_only=True, frozen=True):
    """When a session is over (A2). Times in milliseconds of stream time, sizes in bytes of raw events.

    `max_turns` and `max_bytes` split before a user turn; twice as much splits before any event. `max_pinned`
    (records) and `max_pinned_bytes` say how much of the log may lie behind the first event of an open session:
    they bound the memory of a partition and the length of its replay, and depend on nothing but the log.
    """

    gap: int = 900_000
    grace: int = 60_000
    max_age: int = 14_400_000
    max_turns: int = 500
    max_bytes: int = 400_000
    max_pinned: int = 2_000_000
    max_pinned_bytes: int = 536_870_912
    memory: int = 3_600_000
    allowed_skew: int = 60_000


class HeldTurn(msgspec.Struct, frozen=True, order=True, gc=False):
    """A turn; ordered by its first three fields, of which no two offsets are equal.

    `time` is its own event time in milliseconds.
    """

    turn_index: int | None
    time: int
    offset: int
    event_id: str
    turn_id: str
    raw: bytes


class HeldEvent(msgspec.Struct, frozen=True, order=True, gc=False):
    """Any other event, ordered by time and arrival."""

    time: int
    offset: int
    kind: str
    raw: bytes


class OpenSession:
    """The events of a session that is still open.

    `followed`: closed segments of the same session were remembered when it opened, so that an event may be theirs.
    """

    __slots__ = (
        "closed",
        "end_at",
        "event_ids",
        "first",
        "followed",
        "key",
        "last",
        "last_arrival",
        "log_bytes",
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
        log_bytes: int,
        stream_time_before: int | None,
        previous: str | None,
        followed: bool,
        truncated: bool,
    ) -> None:
        self.key = key
        self.first = offset
        self.last = offset
        self.opened_at = opened_at
        self.last_arrival = opened_at
        self.log_bytes = log_bytes
        self.stream_time_before = stream_time_before
        self.previous = previous
        self.followed = followed
        self.truncated = truncated
        self.newest = NEVER
        self.end_at: int | None = None
        self.size = 0
        self.turns: list[HeldTurn] = []
        self.others: list[HeldEvent] = []
        self.event_ids: set[str] = set()
        self.turn_ids: set[str] = set()
        self.closed = False

    def is_plain(self, event: SessionEvent, size: int, time: int, policy: AssemblyPolicy) -> bool:
        """Whether an event may simply be added, as nearly all may; False means that it needs a closer look."""
        return (
            event.event_id not in self.event_ids
            and self.size + size <= policy.max_bytes
            and len(self.turns) < policy.max_turns
            and time - self.newest <= policy.gap
            and not self.followed
        )

    def add(self, event: SessionEvent, raw: bytes, offset: int, time: int, now: int) -> bool:
        """Take in an event; says whether it brought the deadline forward.

        `time` is its time bounded by the broker's, `now` the stream time (A1).
        """
        self.last = offset
        self.last_arrival = now
        if time > self.newest:  # noqa: PLR1730 - for every event: `max` would cost three times as much
            self.newest = time
        self.size += len(raw)
        self.event_ids.add(event.event_id)
        own_time = round(event.ts * 1000)
        if isinstance(event, Turn):
            self.turn_ids.add(event.turn_id)
            self.turns.append(HeldTurn(event.turn_index, own_time, offset, event.event_id, event.turn_id, raw))
            return False
        self.others.append(HeldEvent(own_time, offset, event_type(event), raw))
        if isinstance(event, SessionEnd) and self.end_at is None:
            self.end_at = now
            return True
        return False

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
        if time - self.newest > policy.gap:
            return "inactivity"
        factor = 1 if isinstance(event, Turn) and event.role == "user" else 2
        if isinstance(event, Turn) and len(self.turns) >= factor * policy.max_turns:
            return "max_turns"
        return "max_bytes" if self.size + size > factor * policy.max_bytes else None

    def finish(self, partition: int, reason: CloseReason, now: int) -> tuple[str, SessionRecord]:
        """Join the raw events into the record of a finished segment; its id is its first turn's event_id (A3)."""
        turns = final_order(self.turns)
        segment = turns[0].event_id
        empty = SessionContent(
            tenant=self.key[0],
            session_id=self.key[1],
            segment=segment,
            previous_segment=self.previous,
            close_reason=reason,
            events=[],
        )
        events = [turn.raw for turn in turns]
        events += [held.raw for held in sorted(self.others)]
        span = LogSpan(partition=partition, first=self.first, last=self.last, closed_at=now)
        return segment, SessionRecord(content=msgspec.Raw(_filled(empty, events)), span=span)

    def release(self) -> None:
        """Let go of all that was said: queues hold a closed session until its place in them comes up."""
        del self.turns, self.others, self.event_ids, self.turn_ids


def _filled(empty: SessionContent, events: list[bytes]) -> bytes:
    """Encode a content with its events, which are never encoded again; `events` is its last field."""
    head = msgspec.json.encode(empty)
    return b"".join((head[:-2], b",".join(events), head[-2:]))


def final_order(turns: list[HeldTurn]) -> list[HeldTurn]:
    """Order turns by index, then time, then arrival; a turn without an index goes where its time puts it (A3)."""
    try:
        return sorted(turns)
    except TypeError:  # some have an index and some don't: None compares with no number
        return _mixed_order(turns)


def _mixed_order(turns: list[HeldTurn]) -> list[HeldTurn]:
    indexed = sorted(turn for turn in turns if turn.turn_index is not None)
    places = {turn.offset: place for place, turn in enumerate(indexed)}
    newest: list[int] = []
    for turn in indexed:
        newest.append(max(turn.time, newest[-1]) if newest else turn.time)

    def order(turn: HeldTurn) -> tuple[int, int, int, int]:
        if turn.turn_index is not None:
            return places[turn.offset], 0, 0, 0
        return bisect_right(newest, turn.time) - 1, 1, turn.time, turn.offset

    return sorted(turns, key=order)
