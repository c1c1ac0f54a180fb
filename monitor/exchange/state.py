"""What an export keeps beside its questions, so that answers find their sessions: `NAME.state`, JSON lines.

The first line says what was exported, each other one holds a job and the replies that it had in earlier rounds. It
holds whole sessions and stays here; only the questions go out.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO

import msgspec

from monitor.decision import Job
from monitor.errors import InputError
from monitor.exchange.forms import FileJudge, Form
from monitor.judging.flow import Failure, Reply
from monitor.judging.model import Completion


class Head(msgspec.Struct, kw_only=True, frozen=True, tag_field="type", tag="export"):
    """What was exported, in which form, and who is to answer."""

    rubric: str
    rubric_version: str
    form: Form
    judge: FileJudge
    max_tokens: int


class Told(msgspec.Struct, kw_only=True, frozen=True):
    """A reply that a question has had: one of the two."""

    id: str
    completion: Completion | None = None
    failure: Failure | None = None

    @classmethod
    def of(cls, question_id: str, reply: Reply) -> Told:
        """Note a reply."""
        if isinstance(reply, Failure):
            return cls(id=question_id, failure=reply)
        return cls(id=question_id, completion=reply)

    @property
    def reply(self) -> Reply:
        """The reply."""
        reply = self.failure if self.completion is None else self.completion
        if reply is None:
            raise ValueError("neither a completion nor a failure")
        return reply


class Pending(msgspec.Struct, kw_only=True, frozen=True, tag_field="type", tag="job"):
    """A job and its replies so far, in their order. `prompt_hash` is None for one that comes from no export."""

    job: Job
    closed_at: int
    prompt_hash: str | None = None
    told: list[Told] = []


_LINE = msgspec.json.Decoder(Head | Pending)


def state_path(questions: Path) -> Path:
    """Name the file that belongs to a file of questions."""
    return questions.with_name(f"{questions.name}.state")


def create(path: Path) -> IO[bytes]:
    """Open a new file for writing. Raises `InputError` if it is there, or can't be written."""
    try:
        return path.open("xb")
    except FileExistsError:
        raise InputError(f"{path}: exists; name another file") from None
    except OSError as error:
        raise InputError(f"{path}: can't be written: {error.strerror}") from None


def read_head(path: Path) -> Head:
    """Read what an export says of itself. Raises `InputError`."""
    for line in _lines(path):
        if isinstance(line, Head):
            return line
        break
    raise InputError(f"{path}: line 1: doesn't begin as an export; is it the file beside the questions?")


def read_pending(path: Path) -> Iterator[Pending]:
    """Read the jobs of an export. Raises `InputError` that names file and line."""
    for line in _lines(path):
        if isinstance(line, Pending):
            yield line


def _lines(path: Path) -> Iterator[Head | Pending]:
    try:
        file = path.open("rb")
    except OSError as error:
        raise InputError(f"{path}: can't be read: {error.strerror}") from None
    with file:
        for number, line in enumerate(file, 1):
            try:
                yield _LINE.decode(line)
            except msgspec.DecodeError as error:
                raise InputError(f"{path}: line {number}: no part of an export: {error}") from None
