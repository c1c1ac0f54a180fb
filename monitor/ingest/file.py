"""A JSONL file as wire events: what a line holds is seen from the line itself.

An object with one of the wire types in `type` is an event, one with `turns` a session (see `sessions`); with a
mapping, every line is read by it alone (see `mapping`). Empty lines are passed over. A line is taken in as a whole
or not at all.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

import msgspec

from monitor.errors import InputError, InvalidEvent
from monitor.events import EVENT_TYPES, EventDecoder, mend
from monitor.ingest.mapping import Mapping
from monitor.ingest.sessions import session_events

STDIN: Final = "-"
MAX_LINE: Final = 64 * 1024 * 1024
_MARK: Final = b"\xef\xbb\xbf"
_Candidate = tuple[str, dict[str, Any]]


class Raw(NamedTuple):
    """An event that has been checked: its time in Unix seconds, and its JSON."""

    ts: float
    json: bytes


class EventFile:
    """The events of a file (`-`: standard input), in its own order; iterate it once.

    Raises `InputError` that names file, line and field at the first line that can't be taken in; with
    `skip_invalid` such lines are counted in `invalid` by reason (see `EVENT_ERRORS`) and passed over.
    `passed_over` counts lines and items that a mapping leaves out on purpose.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        mapping: Mapping | None = None,
        max_event_bytes: int = 262_144,
        skip_invalid: bool = False,
    ) -> None:
        self._path = path
        self._name = "<stdin>" if str(path) == STDIN else str(path)
        self._mapping = mapping
        self._decoder = EventDecoder(max_bytes=max_event_bytes)
        self._skip_invalid = skip_invalid
        self.lines = 0
        self.passed_over = 0
        self.invalid: Counter[str] = Counter()

    def __iter__(self) -> Iterator[Raw]:
        """Give the events, line by line."""
        with self._open() as file:
            for line in self._lines(file):
                try:
                    yield from self._events(line)
                except InvalidEvent as error:
                    if not self._skip_invalid:
                        raise InputError(f"{self._name}: line {self.lines}: {error}") from None
                    self.invalid[error.reason] += 1

    @contextmanager
    def _open(self) -> Iterator[IO[bytes]]:
        if self._name == "<stdin>":
            yield sys.stdin.buffer
            return
        try:
            file = Path(self._path).open("rb")  # noqa: SIM115 - only opening it is guarded
        except OSError as error:
            raise InputError(f"{self._name}: can't be read: {error.strerror}") from None
        with file:
            yield file

    def _lines(self, file: IO[bytes]) -> Iterator[bytes]:
        while line := file.readline(MAX_LINE + 1):
            self.lines += 1
            if self.lines == 1:
                line = line.removeprefix(_MARK)
            if len(line) > MAX_LINE:
                # Never to be skipped: what follows in the file may not begin where a line does.
                raise InputError(f"{self._name}: line {self.lines}: longer than {MAX_LINE} bytes; is it JSONL?")
            if line.strip():
                yield line.strip()

    def _events(self, line: bytes) -> list[Raw]:
        value = self._object(line)
        if self._mapping is not None:
            found = self._mapping.read(value, self.lines)
            self.passed_over += found.passed_over
            return self._checked(found.events)
        if value.get("type") in EVENT_TYPES or "turns" not in value:
            event, kept = self._decoder.decode(line)
            return [Raw(event.ts, kept)]
        return self._checked(session_events(value, self.lines))

    def _object(self, line: bytes) -> dict[str, Any]:
        try:
            value = msgspec.json.decode(line)
        except msgspec.DecodeError as error:
            value = msgspec.json.decode(mend(line, error))
        except RecursionError:
            raise InvalidEvent("undecodable", "nested too deeply") from None
        if not isinstance(value, dict):
            raise InvalidEvent("invalid_field", f"must be a JSON object, not {type(value).__name__}")
        if self._mapping is None and "type" not in value and "turns" not in value:
            raise InvalidEvent(
                "unknown_type", "neither an event (`type`) nor a session (`turns`); other formats need a mapping"
            )
        return value

    def _checked(self, candidates: Iterable[_Candidate]) -> list[Raw]:
        checked = []
        for place, candidate in candidates:
            try:
                event, kept = self._decoder.decode(msgspec.json.encode(candidate))
            except InvalidEvent as error:
                raise InvalidEvent(error.reason, f"{place}: {error}" if place else str(error)) from None
            checked.append(Raw(event.ts, kept))
        return checked
