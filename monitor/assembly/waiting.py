"""Events that came before any turn of their session, each with a deadline of its own (A3).

Only a turn opens a session. Each event waits for one by itself: were they to share a clock, a replay that starts
between two of them would give the second another deadline than the first run did.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

import msgspec

from monitor.assembly.open_session import Key
from monitor.events import SessionEvent


class WaitingEvent(msgspec.Struct, frozen=True):
    """One event. `time` is its own, bounded by the broker's, `arrived` the stream time then; in milliseconds.

    `log_bytes` is how much of the log the assembler had read before it.
    """

    key: Key
    event: SessionEvent
    raw: bytes
    offset: int
    time: int
    arrived: int
    stream_time_before: int | None
    log_bytes: int


class WaitingEvents:
    """All waiting events of a partition, in the order in which they came, which is that of their deadlines."""

    def __init__(self) -> None:
        self._events: OrderedDict[int, WaitingEvent] = OrderedDict()
        self._by_key: dict[Key, list[int]] = {}

    def __len__(self) -> int:
        return len(self._events)

    def __contains__(self, key: Key) -> bool:
        return key in self._by_key

    @property
    def oldest(self) -> WaitingEvent | None:
        """The one that has waited longest."""
        return next(iter(self._events.values()), None)

    def add(self, event: WaitingEvent) -> None:
        """Let an event wait."""
        self._events[event.offset] = event
        self._by_key.setdefault(event.key, []).append(event.offset)

    def take(self, key: Key) -> list[WaitingEvent]:
        """Take out the events of a session, in their order."""
        if key not in self._by_key:
            return []
        return [self._events.pop(offset) for offset in self._by_key.pop(key, ())]

    def expire(self, arrived_before: int, offset_below: int, bytes_below: int) -> Iterator[WaitingEvent]:
        """Take out those that arrived before a stream time, or lie below an offset or a place in bytes."""
        while (oldest := self.oldest) and (
            oldest.arrived < arrived_before or oldest.offset < offset_below or oldest.log_bytes < bytes_below
        ):
            del self._events[oldest.offset]
            offsets = self._by_key[oldest.key]
            offsets.remove(oldest.offset)
            if not offsets:
                del self._by_key[oldest.key]
            yield oldest
