"""Commit tracking: what a commit of the assembler carries, and the lowest unfinished offset of a partition."""

from __future__ import annotations

import heapq

import msgspec


class CommitNote(msgspec.Struct, kw_only=True, frozen=True):
    """What the assembler keeps in a commit's metadata (A4).

    `time` is the stream time just before the committed offset (ms), `partitions` the partition count of the source
    topic, `bound` the offset of the sessions topic to read back from, `truncated_until` the stream time (ms) up to
    which new sessions may lack a start because the log before them is gone (A9).
    """

    time: int | None
    partitions: int
    bound: int
    truncated_until: int | None = None


def encode_note(note: CommitNote) -> str:
    """Encode a note for a commit's metadata."""
    return msgspec.json.encode(note).decode()


def decode_note(metadata: str | None) -> CommitNote | None:
    """Decode a commit's metadata; None when it holds no note of ours."""
    if not metadata:
        return None
    try:
        return msgspec.json.decode(metadata, type=CommitNote)
    except msgspec.DecodeError:
        return None


class UnfinishedOffsets:
    """Offsets of one partition under way: the commit may go up to the lowest one that is unfinished."""

    def __init__(self, start: int) -> None:
        self._next = start
        self._unfinished: list[int] = []
        self._done: set[int] = set()

    def begin(self, offset: int) -> None:
        """Take an offset in hand. Offsets come in order."""
        heapq.heappush(self._unfinished, offset)
        self._next = offset + 1

    def finish(self, offset: int) -> None:
        """Put an offset down."""
        self._done.add(offset)
        while self._unfinished and self._unfinished[0] in self._done:
            self._done.remove(heapq.heappop(self._unfinished))

    @property
    def committable(self) -> int:
        """The offset to commit: everything below it is finished."""
        return self._unfinished[0] if self._unfinished else self._next

    @property
    def span(self) -> int:
        """How many offsets lie between the lowest unfinished one and the newest."""
        return self._next - self.committable
