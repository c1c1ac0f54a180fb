"""Which question went into which batch: what all judge processes know, from the same notes in one order. Pure.

Before a batch is created its questions are claimed under a key; afterwards the batch's id is noted. The order of
the notes decides: a question belongs to the first claim on it, so that two processes that have the same job in
hand never pay for its question twice. A claim that no batch came of is dropped, and its questions are free again.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec


class Claim(msgspec.Struct, kw_only=True, frozen=True, tag_field="type", tag="claim"):
    """Questions that are about to go into a batch. `at` is Unix time."""

    key: str
    at: float
    ids: list[str]


class Opened(msgspec.Struct, kw_only=True, frozen=True, tag_field="type", tag="opened"):
    """The batch of a claim is there."""

    key: str
    batch: str


class Dropped(msgspec.Struct, kw_only=True, frozen=True, tag_field="type", tag="dropped"):
    """No batch came of a claim."""

    key: str


Note: TypeAlias = Claim | Opened | Dropped


class Entry(msgspec.Struct, kw_only=True, eq=False):
    """A claim with the questions that are its own. `batch` is None until it was opened."""

    key: str
    at: float
    ids: tuple[str, ...]
    batch: str | None = None


class BatchBook:
    """The state that notes add up to."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._owners: dict[str, Entry] = {}

    def apply(self, note: Note) -> None:
        """Take in a note; one that came before changes nothing."""
        match note:
            case Claim():
                self._claim(note)
            case Opened(key=key, batch=batch):
                entry = self._entries.get(key)
                if entry is not None and entry.batch is None:
                    entry.batch = batch
            case Dropped(key=key):
                entry = self._entries.get(key)
                if entry is not None and entry.batch is None:
                    self._forget(entry)

    def entry_of(self, question_id: str) -> Entry | None:
        """Give the claim that a question belongs to; None when it is free."""
        return self._owners.get(question_id)

    def entry(self, key: str) -> Entry | None:
        """Give a claim by its key."""
        return self._entries.get(key)

    def batches(self) -> set[str]:
        """Give the ids of all batches that are known."""
        return {entry.batch for entry in self._entries.values() if entry.batch is not None}

    def prune(self, before: float) -> None:
        """Forget claims made before a time: their jobs are done with, or come too late for their results."""
        for entry in [entry for entry in self._entries.values() if entry.at < before]:
            self._forget(entry)

    def _claim(self, note: Claim) -> None:
        if note.key in self._entries:
            return
        ids = tuple(item for item in dict.fromkeys(note.ids) if item not in self._owners)
        entry = Entry(key=note.key, at=note.at, ids=ids)
        self._entries[note.key] = entry
        self._owners.update(dict.fromkeys(ids, entry))

    def _forget(self, entry: Entry) -> None:
        del self._entries[entry.key]
        for item in entry.ids:
            del self._owners[item]
