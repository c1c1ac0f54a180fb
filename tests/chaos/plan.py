"""What happens in each round, and the table of what came of it. Pure."""

from __future__ import annotations

import random
import statistics
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from tests.chaos.faults import FAULTS

if TYPE_CHECKING:
    from tests.chaos.lane import Result

TWO_AT_ONCE: Final = 0.35


class Plan(msgspec.Struct, frozen=True):
    """One round. The seed decides about its load and its faults, down to their moments."""

    number: int
    seed: int
    faults: tuple[str, ...]


def plan_round(campaign: int, number: int, store: str, only: Collection[str] = ()) -> Plan:
    """Plan a round of a campaign; `only` restricts the faults."""
    seed = random.Random(f"{campaign}/{number}").getrandbits(48)
    dice = random.Random(f"{seed}/plan")
    names = [name for name, fault in FAULTS.items() if store in fault.stores and (not only or name in only)]
    first = _draw(names, dice)
    others = [name for name in names if name != first and not _clash(name, first)]
    if others and dice.random() < TWO_AT_ONCE:
        return Plan(number, seed, (first, _draw(others, dice)))
    return Plan(number, seed, (first,))


def _draw(names: Sequence[str], dice: random.Random) -> str:
    return dice.choices(names, [FAULTS[name].weight for name in names])[0]


def _clash(one: str, other: str) -> bool:
    """Two faults of the store undo each other; a broker that is down can't be reached anyway."""
    return {one, other} == {"broker_kill", "unreachable"} or (
        one.startswith("store") and other.startswith("store")
    )


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
