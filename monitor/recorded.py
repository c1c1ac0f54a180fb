"""Recorded events as finished sessions, through the same assembler as in production, without a broker.

There is one partition and no broker's time. At the end of the input a tick behind the last deadline closes what is
still open, so the last sessions close by inactivity or with their grace.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Final, Self

import msgspec

from monitor.assembly import Finished, Output, Position, SessionAssembler
from monitor.config import Settings, assembly_policy
from monitor.decision import Job, job_id
from monitor.errors import InvalidEvent
from monitor.events import Event, EventDecoder, Tick
from monitor.ingest import EventFile, by_time, load_mapping
from monitor.session import SessionRecord, content_hash, decode_content

_IN_MEMORY: Final = 64 * 1024 * 1024
_LENGTH_BYTES: Final = 8
_RECORD = msgspec.json.Decoder(SessionRecord)


class Recording:
    """Assembles recorded events; use it once. `events` and `invalid` (by reason) count what was taken in."""

    def __init__(self, settings: Settings) -> None:
        self._policy = assembly_policy(settings)
        self._assembler = SessionAssembler(self._policy)
        self._decoder = EventDecoder(max_bytes=settings.assembly.max_event_bytes)
        self.events = 0
        self.invalid: Counter[str] = Counter()

    def outputs(self, events: Iterable[bytes]) -> Iterator[Output]:
        """Take in events in order, each as JSON; one that can't be decoded is counted."""
        offsets = count()
        for raw in events:
            self.events += 1
            try:
                event, kept = self._decoder.decode(raw)
            except InvalidEvent as error:
                self.invalid[error.reason] += 1
                continue
            yield from self._assembler.on_event(event, kept, Position(next(offsets)))
        if self._assembler.stream_time is not None:
            yield from self._assembler.on_event(self._last_tick(), b"", Position(next(offsets)))

    def _last_tick(self) -> Event:
        """Make the tick behind every deadline: no open session waits longer than for the gap or the grace."""
        now = self._assembler.stream_time or 0
        return Tick(ts=(now + max(self._policy.gap, self._policy.grace) + 1) / 1000)


class SessionFile:
    """The finished sessions of a file (`-`: standard input), its events merged by time; iterate it once.

    Raises `InputError` that names file, line and field; with `skip_invalid` such lines are counted in `invalid`
    instead. A mapping that can't be read is a `ConfigError`.
    """

    def __init__(
        self, path: Path | str, settings: Settings, *, mapping: Path | None = None, skip_invalid: bool = False
    ) -> None:
        self._source = EventFile(
            path,
            mapping=None if mapping is None else load_mapping(mapping),
            max_event_bytes=settings.assembly.max_event_bytes,
            skip_invalid=skip_invalid,
        )
        self._recording = Recording(settings)

    def __iter__(self) -> Iterator[SessionRecord]:
        """Give the sessions in the order in which they close."""
        for output in self._recording.outputs(by_time(self._source)):
            if isinstance(output, Finished):
                yield output.record

    @property
    def invalid(self) -> dict[str, int]:
        """Lines and events that weren't taken in, by reason."""
        return dict(self._source.invalid + self._recording.invalid)


class Spool:
    """Finished sessions, put aside until all of them are known; a context manager.

    So a wrong line is found before any session costs money, and there is a total to compare with. What doesn't
    fit into memory lies in a temporary file without a name.
    """

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY, prefix="backslide-")  # noqa: SIM115
        self.sessions = 0

    def __enter__(self) -> Self:
        """Take in sessions with `fill`."""
        return self

    def __exit__(self, *_: object) -> None:
        """Remove them."""
        self._file.close()

    def fill(self, records: Iterable[SessionRecord]) -> None:
        """Put sessions aside. Raises what reading them raises."""
        for record in records:
            raw = msgspec.json.encode(record)
            self._file.write(len(raw).to_bytes(_LENGTH_BYTES, "big") + raw)
            self.sessions += 1

    def __iter__(self) -> Iterator[SessionRecord]:
        """Give the sessions in their order."""
        self._file.seek(0)
        while head := self._file.read(_LENGTH_BYTES):
            yield _RECORD.decode(self._file.read(int.from_bytes(head, "big")))


def file_job(record: SessionRecord, rubric: str) -> Job:
    """Make the job of judging a session of a file."""
    return unsampled_job(record.content, rubric, "file")


def unsampled_job(content: msgspec.Raw, rubric: str, kind: str) -> Job:
    """Make the job of judging a session outside of any sampling; its id is that of no live job."""
    head = decode_content(content)
    return Job(
        job_id=job_id(head.tenant, head.session_id, head.segment, rubric, kind),
        tenant=head.tenant,
        session_id=head.session_id,
        segment=head.segment,
        rubric=rubric,
        stratum=kind,
        priority="routine",
        content_hash=content_hash(content),
        content=content,
        run="file",
    )
