"""A file of judgements, one a line, each written when it is there: what a canceled command leaves is whole.

The lines are what the topic of judgements holds. One that the end of a process cut in half is taken off when the
file is gone on with.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Self, TypeAlias

import msgspec

from monitor.decision import Job
from monitor.errors import InputError
from monitor.judgement import Judgement, Unscored, decode_judgement

JobKey: TypeAlias = tuple[str, str]


class JudgementFile:
    """An open file; a context manager. Make it with `create` or `resume`.

    `known` holds what was in it before, by job id and content hash.
    """

    def __init__(self, path: Path, file: IO[bytes], known: dict[JobKey, Judgement]) -> None:
        self.path = path
        self.known = known
        self._file = file

    @classmethod
    def create(cls, path: Path) -> Self:
        """Start a new file. Raises `InputError` if there is one, or it can't be written."""
        try:
            return cls(path, path.open("xb"), {})
        except FileExistsError:
            raise InputError(f"{path}: exists; go on with it (--resume) or name another (--out)") from None
        except OSError as error:
            raise InputError(f"{path}: can't be written: {error.strerror}") from None

    @classmethod
    def resume(cls, path: Path, *, again: bool) -> Self:
        """Go on with a file, or start it. With `again` judgements that the judge failed on are taken out.

        Raises `InputError` when it holds anything but judgements, or can't be read or written.
        """
        if not path.exists():
            return cls.create(path)
        known = read_judgements(path, cut=True)
        kept = [item for item in known if not (again and isinstance(item.result, Unscored))]
        # The old file stays until the new one is whole.
        fresh = path.with_name(f"{path.name}.resumed")
        try:
            file = fresh.open("wb")
            for judgement in kept:
                file.write(msgspec.json.encode(judgement) + b"\n")
            file.flush()
            os.replace(fresh, path)  # noqa: PTH105 - Path.replace gives no more
        except OSError as error:
            raise InputError(f"{path}: can't be written: {error.strerror}") from None
        return cls(path, file, {(item.job_id, item.content_hash): item for item in kept})

    def __enter__(self) -> Self:
        """Take judgements with `append`."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self._file.close()

    def known_for(self, job: Job) -> Judgement | None:
        """Give the judgement that the file held before for a job on the same content."""
        return self.known.get((job.job_id, job.content_hash))

    def append(self, judgement: Judgement) -> None:
        """Write a judgement through to the operating system."""
        self._file.write(msgspec.json.encode(judgement) + b"\n")
        self._file.flush()


def read_judgements(path: Path, *, cut: bool = False) -> Iterator[Judgement]:
    """Read judgements. With `cut` a last line without its end is passed over.

    Raises `InputError` that names the file and the line.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise InputError(f"{path}: can't be read: {error.strerror}") from None
    last = lines.pop()
    for number, line in enumerate(lines if cut else [*lines, last], 1):
        if not line.strip():
            continue
        try:
            yield decode_judgement(line)
        except msgspec.DecodeError as error:
            raise InputError(f"{path}: line {number}: not a judgement: {error}") from None
