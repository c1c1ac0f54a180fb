"""What came of the rounds, and the table that tells of it. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

import msgspec

from tests.chaos.check import Report
from tests.chaos.faults import FAULTS
from tests.chaos.fleet import Exit


class Result(msgspec.Struct, kw_only=True):
    """What came of one round. `recovery_s`: the longest that anything waited after the fault was over."""

    number: int
    seed: int
    faults: list[str]
    lane: int
    events: int
    sessions: int
    jobs: int
    copies: int
    superseded: int
    report: Report
    recovery_s: float
    took_s: float
    exits: list[Exit]
    kept: str = ""


def table(results: Iterable[Result]) -> str:
    """Tell of all rounds by fault. A round with two faults stands in a row of its own kind."""
    found = list(results)
    rows = [_row(name, [result for result in found if result.faults == [name]]) for name in FAULTS]
    rows.append(_row("two at once", [result for result in found if len(result.faults) > 1]))
    rows = [row for row in rows if row[1] != "0"]
    rows.append(_row("all", found))
    head = ("fault", "rounds", "events", "sessions", "lost", "differing", "doubled", "copies",
            "recovery p50", "max")  # fmt: skip
    return "\n".join(_line(row) for row in (head, tuple("---" for _ in head), *rows))


def _row(name: str, results: Sequence[Result]) -> tuple[str, ...]:
    reports = [result.report for result in results]
    waits = [result.recovery_s for result in results]
    return (
        name,
        str(len(results)),
        f"{sum(result.events for result in results):,}",
        f"{sum(result.sessions for result in results):,}",
        str(sum(report.lost + report.truncated for report in reports)),
        str(sum(report.differing for report in reports)),
        str(sum(report.doubled for report in reports)),
        str(sum(result.copies for result in results)),
        f"{statistics.median(waits):.1f} s" if waits else "",
        f"{max(waits):.1f} s" if waits else "",
    )


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
