"""Reading the topic of dead letters: its records folded into letters, each with what became of it. Pure.

A letter may be there several times (a stage reads a record again after a crash): the newest copy stands for all.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from consumers.dead_letters.writing import MarkKind, digest

_NUMBER: Final = re.compile("[0-9]{1,18}")
State: TypeAlias = Literal["open", "replayed", "dropped"]


class Place(NamedTuple):
    """Where a record lies."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


class Mark(msgspec.Struct, kw_only=True, frozen=True):
    """What became of a letter, at which time (Unix ms), and where its record went."""

    id: str
    letter: str
    kind: MarkKind
    at: int
    to: str


class Letter(msgspec.Struct, kw_only=True, frozen=True):
    """A dead letter without its bytes.

    `id` is the position of the record that was put aside. `source` is the same, and None for a record that is no
    letter of ours: its id is its own position then. `place` is where the newest copy lies. `size` is that of the
    whole record in bytes, `cut` whether the letter holds only its start. `at` is the time of the letter (Unix ms).
    """

    id: str
    place: Place
    source: Place | None
    stage: str
    reason: str
    key: bytes | None
    tenant: str
    session_id: str
    size: int
    cut: bool
    whole: str
    digest: str
    at: int
    copies: int = 1
    mark: Mark | None = None

    @property
    def state(self) -> State:
        """What became of it."""
        return "open" if self.mark is None else self.mark.kind


class Letters:
    """Takes in the records of the topic in their order. Keeps the letters that are wanted, and every mark."""

    def __init__(self, wanted: Callable[[Letter], bool]) -> None:
        self._wanted = wanted
        self._letters: dict[str, Letter] = {}
        self._copies: Counter[str] = Counter()
        self._marks: dict[tuple[str, str], Mark] = {}

    def take(self, record: Any) -> None:
        """Take in a record."""
        found = read(record)
        if isinstance(found, Mark):
            self._marks[found.id, found.letter] = found
        elif found is not None and self._wanted(found):
            self._letters[found.id] = found
            self._copies[found.id] += 1

    def all(self) -> list[Letter]:
        """Give the letters with their marks, in the order of their newest copies."""
        found = [
            msgspec.structs.replace(
                letter, copies=self._copies[letter.id], mark=self._marks.get((letter.id, letter.digest))
            )
            for letter in self._letters.values()
        ]
        return sorted(found, key=lambda letter: (letter.place.partition, letter.place.offset))


def read(record: Any) -> Letter | Mark | None:
    """Read a record of the topic; None for one that says nothing."""
    headers = headers_of(record)
    if "mark" in headers:
        return _mark(record, headers)
    if record.value is None and not headers:
        return None
    place = Place(record.topic, record.partition, record.offset)
    source = _source(headers)
    value = record.value or b""
    # A foreign record may have any headers: without a position of ours none of them means anything.
    own = headers if source is not None else {}
    tenant, session_id = _session(own)
    return Letter(
        id=str(source or place),
        place=place,
        source=source,
        stage=_text(own.get("stage")),
        reason=_text(own.get("reason")) or "foreign",
        key=own.get("key"),
        tenant=tenant,
        session_id=session_id,
        size=_number(own.get("length"), len(value)),
        cut="length" in own,
        whole=_text(own.get("blake2b")),
        digest=digest(value),
        at=record.timestamp,
    )


def headers_of(record: Any) -> dict[str, bytes]:
    """Give a record's headers by name; of several the last."""
    return {name: value or b"" for name, value in record.headers or ()}


def _mark(record: Any, headers: dict[str, bytes]) -> Mark | None:
    kind = _text(headers["mark"])
    if kind not in {"replayed", "dropped"}:
        return None
    return Mark(
        id=_text(record.key),
        letter=_text(headers.get("letter")),
        kind="replayed" if kind == "replayed" else "dropped",
        at=record.timestamp,
        to=_text(headers.get("to")),
    )


def _source(headers: dict[str, bytes]) -> Place | None:
    topic = _text(headers.get("topic"))
    partition, offset = (_number(headers.get(name), -1) for name in ("partition", "offset"))
    if not topic or not headers.get("stage") or partition < 0 or offset < 0:
        return None
    return Place(topic, partition, offset)


def _session(headers: dict[str, bytes]) -> tuple[str, str]:
    """Say whose it is; where the stage didn't know, the key of its record does, unless it is a job's."""
    if "session_id" in headers:
        return _text(headers.get("tenant")), _text(headers["session_id"])
    tenant, slash, session_id = _text(headers.get("key")).partition("/")
    return (tenant, session_id) if slash else ("", "")


def _number(raw: bytes | None, default: int) -> int:
    text = _text(raw)
    return int(text) if _NUMBER.fullmatch(text) else default


def _text(raw: bytes | None) -> str:
    return (raw or b"").decode("utf-8", "replace")
