"""Merging by time (A2): an external sort, so that memory doesn't grow with the file.

Events are taken in until `run_bytes` are held, sorted, and written to a temporary file that has no name; the files
are merged at the end. What fits into one run never touches the disk. A file of n bytes takes about
n / `run_bytes` open files, and its own size again on the disk of the temporary folder.
"""

from __future__ import annotations

import heapq
import struct
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import IO, Final

from monitor.ingest.file import Raw

RUN_BYTES: Final = 256 * 1024 * 1024
# What Python keeps beside an event's bytes: the objects of the pair, its tuple and its place in the list.
_OVERHEAD: Final = 200
_HEAD: Final = struct.Struct("<dQI")

_Placed = tuple[float, int, bytes]


def by_time(events: Iterable[Raw], *, run_bytes: int = RUN_BYTES) -> Iterator[bytes]:
    """Give the events' JSON in order of event time; those of one time stay in the order of the input."""
    with ExitStack() as files:
        spilled: list[IO[bytes]] = []
        run: list[_Placed] = []
        held = 0
        for number, event in enumerate(events):
            run.append((event.ts, number, event.json))
            held += len(event.json) + _OVERHEAD
            if held >= run_bytes:
                spilled.append(_spill(run, files.enter_context(tempfile.TemporaryFile(prefix="backslide-"))))
                run, held = [], 0
        run.sort()
        for _, _, raw in heapq.merge(*(_read(file) for file in spilled), run):
            yield raw


def _spill(run: list[_Placed], file: IO[bytes]) -> IO[bytes]:
    run.sort()
    for ts, number, raw in run:
        file.write(_HEAD.pack(ts, number, len(raw)))
        file.write(raw)
    file.seek(0)
    return file


def _read(file: IO[bytes]) -> Iterator[_Placed]:
    while head := file.read(_HEAD.size):
        ts, number, size = _HEAD.unpack(head)
        yield ts, number, file.read(size)
