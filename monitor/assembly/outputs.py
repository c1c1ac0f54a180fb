"""What goes into the assembler and what comes out of it."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import msgspec

from monitor.assembly.closed_segment import ClosedSegment
from monitor.assembly.open_session import Key
from monitor.session import Addendum, CloseReason, SessionRecord

SkewDirection: TypeAlias = Literal["future", "past"]


class Position(NamedTuple):
    """Where an event lies in its partition; `timestamp` is the broker's, in milliseconds (None in a file).

    `size` is that of the record in the log, in bytes; without it the event's own is taken.
    """

    offset: int
    timestamp: int | None = None
    size: int | None = None


class SafePosition(NamedTuple):
    """What may be committed: the offset to replay from, and the stream time just before it (A4).

    `truncated_until` is the stream time up to which new sessions may lack a start (A9); a restart needs it too.
    """

    offset: int
    stream_time: int | None
    truncated_until: int | None = None


class Finished(msgspec.Struct, frozen=True):
    """A session segment closed. `closed` is what the assembler keeps of it; see `acknowledge`."""

    key: Key
    record: SessionRecord
    reason: CloseReason
    turns: int
    closed: ClosedSegment


class Late(msgspec.Struct, frozen=True):
    """An event for a segment that is already out."""

    addendum: Addendum


class Orphan(msgspec.Struct, frozen=True):
    """An event other than a turn that belongs to no known session (A3)."""

    key: Key
    raw: bytes
    kind: str
    offset: int


class Duplicate(msgspec.Struct, frozen=True):
    """An event whose event_id was taken in before; the first one wins."""

    event_id: str


class Skewed(msgspec.Struct, frozen=True):
    """An event whose time lies too far from the broker's; it was taken in all the same."""

    direction: SkewDirection


Output: TypeAlias = Finished | Late | Orphan | Duplicate | Skewed
