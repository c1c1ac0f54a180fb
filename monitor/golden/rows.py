"""Read a golden set: `prompts/<rubric>/golden.jsonl`, a hand-graded conversation a line.

    {"id": "locksmith", "level": "easy", "language": "en",
     "session": {"session_id": "golden-refusal-locksmith", "turns": [...]},
     "expected": {"kind": "verdict", "units": [...], "pass": true},
     "why": "Each reply declines and gives nothing.", "constraints": ""}

The session is as in any session file. Each rubric has its own units; `constraints` is what the assistant's policy
says, where the right verdict rests on it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from importlib.resources.abc import Traversable
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar

import msgspec

from monitor.decision import Job
from monitor.errors import ConfigError, InvalidEvent
from monitor.golden.conversation import CONVERSATION
from monitor.golden.correction import CORRECTION
from monitor.golden.hallucination import HALLUCINATION
from monitor.golden.refusal import REFUSAL
from monitor.golden.scale import Expected, NotJudged, Scale
from monitor.ingest.finished import finished_content
from monitor.recorded import unsampled_job
from monitor.session import Session, session_view

Level: TypeAlias = Literal["easy", "borderline", "trap"]
E = TypeVar("E")

LEVELS: Final = ("easy", "borderline", "trap")
SCALES: Final[Mapping[str, Scale]] = {
    "conversation": CONVERSATION,
    "correction": CORRECTION,
    "correction_whole": CORRECTION,
    "hallucination": HALLUCINATION,
    "refusal": REFUSAL,
}


class _Line(msgspec.Struct, Generic[E], kw_only=True, frozen=True, forbid_unknown_fields=True):
    id: str
    level: Level
    language: str
    session: dict[str, Any]
    expected: E
    why: str
    constraints: str = ""


class GoldenRow(msgspec.Struct, kw_only=True, frozen=True):
    """One conversation, with the verdict that it should get and why."""

    id: str
    level: Level
    language: str
    why: str
    constraints: str
    expected: Expected | NotJudged
    session: Session
    content: msgspec.Raw

    def job(self, rubric: str) -> Job:
        """Make the job of judging it; its id is that of no live job."""
        return unsampled_job(self.content, rubric, "golden")


class GoldenSet(msgspec.Struct, kw_only=True, frozen=True):
    """A rubric's golden set; `sha256` is that of its file."""

    rubric: str
    sha256: str
    rows: tuple[GoldenRow, ...]


def read(folder: Traversable, rubric: str) -> GoldenSet:
    """Read a rubric's golden set in a folder of prompts. Raises `ConfigError` that names file, line and field."""
    where = f"prompts/{rubric}/golden.jsonl"
    if rubric not in SCALES:
        raise ConfigError(f"rubric {rubric!r}: no golden set can be graded; there are {', '.join(sorted(SCALES))}")
    try:
        raw = folder.joinpath(rubric, "golden.jsonl").read_bytes()
    except OSError:
        raise ConfigError(f"{where}: there is no such file") from None
    rows: list[GoldenRow] = []
    for number, line in enumerate(raw.splitlines(), 1):
        try:
            rows += [_row(line, rubric)] if line.strip() else []
            _told_apart(rows)
        except (msgspec.DecodeError, InvalidEvent, ValueError) as error:
            raise ConfigError(f"{where}, line {number}: {error}") from None
    if not rows:
        raise ConfigError(f"{where}: no conversation stands in it")
    return GoldenSet(rubric=rubric, sha256=hashlib.sha256(raw).hexdigest(), rows=tuple(rows))


def _row(line: bytes, rubric: str) -> GoldenRow:
    """Read a line. Raises `ValueError`, `InvalidEvent` or `msgspec.DecodeError`."""
    scale = SCALES[rubric]
    kind: Any = _Line[scale.expected | NotJudged]  # type: ignore[name-defined]
    try:
        given = msgspec.json.decode(line, type=kind)
    except msgspec.ValidationError as error:
        raise ValueError(_named(str(error), kind)) from None
    try:
        content = finished_content(given.session | ({"assistant": given.id} if given.constraints else {}))
    except InvalidEvent as error:
        raise ValueError(f"session.{error}") from None
    session = session_view(content)
    fault = next(_faults(given, session, scale), None)
    if fault is not None:
        raise ValueError(f"{given.id}: {fault}")
    return GoldenRow(
        id=given.id, level=given.level, language=given.language, why=given.why, constraints=given.constraints,
        expected=given.expected, session=session, content=msgspec.Raw(content),
    )  # fmt: skip


def _faults(given: Any, session: Session, scale: Scale) -> Iterator[str]:
    if not given.why.strip():
        yield "why: is empty, but it must say why that is the verdict"
    if isinstance(given.expected, Expected):
        for field, sentence in scale.faults(given.expected, session):
            yield f"expected.{field}: {sentence}"
        if given.expected.passes != scale.passes(given.expected):
            yield f"expected.pass: is {str(given.expected.passes).lower()}, but its units say otherwise"


def _told_apart(rows: list[GoldenRow]) -> None:
    for name in ("id", "session_id"):
        values = [row.id if name == "id" else row.session.session_id for row in rows]
        if len(set(values)) < len(values):
            raise ValueError(f"{name}: {values[-1]!r} stands in another line too")


def _named(sentence: str, kind: Any) -> str:
    """Put the field first: msgspec names it at the end, as in "Invalid enum value 'x' - at `$.level`"."""
    said, _, path = sentence.partition(" - at `$")
    field = path.removesuffix("`").lstrip(".")
    allowed = _allowed(kind, field.rpartition(".")[2]) if said.startswith("Invalid enum") else []
    more = f"; allowed are {', '.join(allowed)}" if allowed else ""
    return f"{field}: {said}{more}" if path else said


def _allowed(kind: Any, name: str) -> list[str]:
    """Give the values that a field of a line may have, wherever it stands in its schema."""
    _, parts = msgspec.json.schema_components([kind])
    found = [part["properties"].get(name, {}) for part in parts.values() if "properties" in part]
    return sorted({str(value) for item in found for value in item.get("enum", [])})
