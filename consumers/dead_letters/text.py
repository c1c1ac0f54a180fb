"""Dead letters for people and for programs. Pure; lists never hold anything that users said."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from consumers.dead_letters.desk import Done
from consumers.dead_letters.reading import Letter
from consumers.dead_letters.remedies import remedy
from monitor.web.text import visible

COLUMNS = ("id", "state", "stage", "reason", "session", "bytes", "time", "copies")


def table(letters: Sequence[Letter]) -> str:
    """Show letters, a line each, and how many there are."""
    rows = [COLUMNS, *(_row(letter) for letter in letters)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    states = [letter.state for letter in letters]
    counts = ", ".join(f"{states.count(state)} {state}" for state in ("open", "replayed", "dropped"))
    return "\n".join([*(lines if letters else ()), f"{len(letters)} dead letters: {counts}"])


def line(letter: Letter) -> dict[str, Any]:
    """Give a letter as JSON."""
    at = letter.source or letter.place
    return {
        "id": letter.id,
        "state": letter.state,
        "stage": letter.stage,
        "reason": letter.reason,
        "topic": at.topic,
        "partition": at.partition,
        "offset": at.offset,
        "key": None if letter.key is None else _text(letter.key),
        "tenant": letter.tenant,
        "session_id": letter.session_id,
        "bytes": letter.size,
        "cut": letter.cut,
        "time": _time(letter.at),
        "copies": letter.copies,
        "marked_at": None if letter.mark is None else _time(letter.mark.at),
        "went_to": None if letter.mark is None else letter.mark.to or None,
    }


def whole(letter: Letter, value: bytes, headers: Mapping[str, bytes]) -> dict[str, Any]:
    """Give all of a letter as JSON, what users said included."""
    return line(letter) | {
        "error": _text(headers.get("error", b"")),
        "remedy": remedy(letter.stage, letter.reason),
        "headers": {name: _text(text) for name, text in headers.items()},
        "value": _text(value),
        "value_base64": base64.b64encode(value).decode(),
    }


def page(letter: Letter, value: bytes, headers: Mapping[str, bytes]) -> str:
    """Show all of a letter; hidden and control characters are made visible."""
    facts = {name: "" if fact is None else str(fact) for name, fact in line(letter).items()}
    facts |= {f"header {name}": _text(text) for name, text in headers.items() if name not in _KNOWN}
    facts |= {"error": _text(headers.get("error", b"")), "remedy": remedy(letter.stage, letter.reason)}
    width = max(map(len, facts))
    lines = [f"{name.ljust(width)}  {visible(fact)}".rstrip() for name, fact in facts.items()]
    cut = f", the first {len(value)} of them follow" if letter.cut else ""
    return "\n".join([*lines, f"--- {letter.size} bytes{cut}", visible(_text(value))])


def outcome(done: Done, verb: str) -> str:
    """Say what became of a letter."""
    if done.problem:
        return f"{visible(done.id)}  left as it is: {visible(done.problem)}"
    return f"{visible(done.id)}  {verb}" + (f" -> {visible(done.to)}" if done.to else "")


def total(outcomes: Iterable[Done], verb: str, skipped: int) -> str:
    """Sum up what was done."""
    problems = [bool(done.problem) for done in outcomes]
    parts = [f"{problems.count(False)} {verb}"]
    if any(problems):
        parts.append(f"{problems.count(True)} left as they are")
    if skipped:
        parts.append(f"{skipped} skipped: replayed or dropped before (--again takes them too)")
    return "; ".join(parts)


_KNOWN = {"stage", "reason", "error", "topic", "partition", "offset", "key", "tenant", "session_id", "length"}


def _row(letter: Letter) -> tuple[str, ...]:
    session = f"{letter.tenant}/{letter.session_id}" if letter.session_id else "-"
    cells = (
        letter.id,
        letter.state,
        letter.stage or "-",
        letter.reason,
        session,
        str(letter.size),
        _time(letter.at),
        str(letter.copies),
    )
    return tuple(visible(cell).replace("\n", " ").replace("\t", " ") for cell in cells)


def _time(unix_ms: int) -> str:
    return datetime.fromtimestamp(unix_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")
