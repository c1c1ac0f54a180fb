"""What an export and an import came to, as values and as tables for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from monitor.judge_summary import JudgeSummary
from monitor.judgement import AttemptKind
from monitor.replay_summary import listed, table

UnusedReason: TypeAlias = Literal["duplicate", "told", "unknown"]
RefusedState: TypeAlias = Literal["repaired", "open", "unscored"]

_SHOWN: Final = 50


class ExportSummary(msgspec.Struct, kw_only=True, frozen=True):
    """What was written: `questions` about `sessions` sessions; `silent` ones have nothing to be asked about."""

    rubric: str
    judge: str
    form: str
    out: str
    state: str
    sessions: int
    silent: int
    questions: int
    invalid: dict[str, int] = {}

    def to_text(self) -> str:
        """Lay it out for a terminal."""
        return "\n".join(_export_lines(self))


class Refused(msgspec.Struct, kw_only=True, frozen=True):
    """An answer that didn't pass, where it stands, and why.

    `now`: a later answer to its window passed (`repaired`), it is asked again (`open`), or no round is left
    (`unscored`).
    """

    place: str
    id: str
    session_id: str
    segment: str
    window: str
    attempt: int
    kind: AttemptKind
    error: str
    now: RefusedState


class Unused(msgspec.Struct, kw_only=True, frozen=True):
    """An answer that belongs to nothing that is asked.

    `duplicate`: its question had an answer before, the first of which holds. `told`: it counted in an earlier
    round. `unknown`: it answers another request, from another export, prompt, rubric version or session, or from a
    round that isn't reached: `attempt` is the one that its id names, 2 for a repair.
    """

    place: str
    id: str
    reason: UnusedReason
    attempt: int


class ImportSummary(msgspec.Struct, kw_only=True, frozen=True):
    """What was read. Each of `answers` was `used` or is in `unused`; each used one is valid or in `refused`.

    `open` questions are in `repairs` if that was asked for: `never_answered` ones were asked and have no answer,
    `asked_next` ones are of windows whose turn it is only now, and the others are asked again.
    """

    answers: int
    used: int
    refused: list[Refused]
    unused: list[Unused]
    open: int
    never_answered: int
    asked_next: int
    repairs: str | None
    judged: JudgeSummary

    def to_text(self) -> str:
        """Lay it out for a terminal, without any text of a session."""
        return "\n".join(_import_lines(self))


def _export_lines(summary: ExportSummary) -> Iterator[str]:
    yield f"{summary.questions} questions about {summary.sessions} sessions in {summary.out} ({summary.form})"
    if summary.silent:
        yield f"{summary.silent} sessions have nothing to be asked about"
    if summary.invalid:
        yield f"{sum(summary.invalid.values())} invalid, left out{listed(summary.invalid)}"
    yield f"keep {summary.state} beside it: the import needs it; it holds the sessions, so don't send it along"


def _import_lines(summary: ImportSummary) -> Iterator[str]:
    passed = summary.used - len(summary.refused)
    states = Counter[str](item.now for item in summary.refused)
    refused = f"{len(summary.refused)} refused{listed(states)}"
    yield f"{summary.answers} answers: {passed} passed, {refused}, {len(summary.unused)} unused"
    if summary.refused:
        yield ""
        heads = ("refused", "session", "window", "attempt", "kind", "now", "why")
        yield from _first(table(heads, [_refused_cells(item) for item in summary.refused]))
    if summary.unused:
        yield ""
        rows = [[item.place, item.id, item.reason] for item in summary.unused]
        yield from _first(table(("unused", "id", "reason"), rows))
        yield from _why_unknown(summary.unused)
    yield ""
    lost = {(item.session_id, item.segment, item.window) for item in summary.refused if item.now == "unscored"}
    if lost:
        yield f"{len(lost)} windows have no round left after these refusals: their sessions are unscored"
    if summary.open:
        where = f", in {summary.repairs}" if summary.repairs else "; write them with --repairs"
        yield f"{summary.open} questions are open{listed(_open(summary))}{where}"
    yield summary.judged.to_text()


def _why_unknown(unused: Sequence[Unused]) -> Iterator[str]:
    attempts = Counter(item.attempt for item in unused if item.reason == "unknown")
    later = sum(count for attempt, count in attempts.items() if attempt > 1)
    if later:
        yield (
            f"{later} of the unknown are answers to a later round: give the answer files of all rounds together, "
            "or --requests with the file that --repairs wrote for that round"
        )
    if (others := attempts.total() - later) > 0:
        yield f"{others} of the unknown answer other questions than those of --requests or --sessions"


def _open(summary: ImportSummary) -> dict[str, int]:
    again = summary.open - summary.never_answered - summary.asked_next
    counts = {"asked again": again, "never answered": summary.never_answered, "asked next": summary.asked_next}
    return {name: count for name, count in counts.items() if count}


def _refused_cells(item: Refused) -> list[str]:
    return [item.place, item.session_id, item.window, str(item.attempt), item.kind, item.now, item.error]


def _first(lines: Iterator[str]) -> Iterator[str]:
    left = 0
    for number, line in enumerate(lines):
        if number <= _SHOWN:
            yield line
        else:
            left += 1
    if left:
        yield f"... and {left} more (--json shows all)"
