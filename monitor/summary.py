"""The table over the list of sessions: per assistant version, what is true and how well it is known. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Final, TypeAlias

import msgspec

from monitor.estimate import Z_95, Interval, StratumTotals, enough_data, interval, parts, raw_rate
from monitor.store import Sums, TotalKey, Totals
from monitor.store.ledger import CLEAR_SUMS

Group: TypeAlias = tuple[str, str, str, str]
"""rubric, judge, assistant, assistant_version."""

SMALLEST_SCALE: Final = 1e-6
# The metric behind each sum of the estimates, and what its whole numbers are counted in.
SUMS: Final = {
    "sw": ("weighted_sessions", 16),
    "swt": ("weighted_trials", 16),
    "swf": ("weighted_failures", 16),
    "qw": ("weight2", 256),
    "qt": ("weight2_trials", 256),
    "qtt": ("weight2_trials2", 256),
    "qtf": ("weight2_trials_failures", 256),
    "qff": ("weight2_failures2", 256),
}
CLEAR: Final = {field: (clear, unit) for (field, (_, unit)), clear in zip(SUMS.items(), CLEAR_SUMS, strict=True)}


class VersionSummary(msgspec.Struct, kw_only=True, frozen=True):
    """One assistant version under one rubric and judge; rates are of the chosen measure.

    `raw` is the share among judged trials, biased by the sampling; `interval` weighs sessions by 1/probability.
    `unscored` is the weighted share of sessions on which the judge failed.
    """

    rubric: str
    judge: str
    assistant: str
    assistant_version: str
    finished: int
    judged: int
    trials: int
    raw: float | None
    interval: Interval
    enough: bool
    unscored: float | None


class Choices(msgspec.Struct, kw_only=True, frozen=True):
    """The label values that the filters offer: those that totals know."""

    rubrics: tuple[str, ...]
    measures: tuple[str, ...]
    strata: tuple[str, ...]
    assistants: tuple[str, ...]
    assistant_versions: tuple[str, ...]


def choices(totals: Totals) -> Choices:
    """Give the label values that are there."""

    def known(name: str) -> tuple[str, ...]:
        return tuple(sorted({value for key in totals.sums if (value := getattr(key, name))}))

    return Choices(
        rubrics=known("rubric"),
        measures=tuple(sorted({key.measure for key in totals.sums if key.name == "judged_trials"})),
        strata=known("stratum"),
        assistants=known("assistant"),
        assistant_versions=known("assistant_version"),
    )


def summaries(totals: Totals, measure: str) -> tuple[VersionSummary, ...]:
    """Summarize every assistant version that has finished sessions, for one measure."""
    frames = _frames(totals.sums)
    groups = {
        (key.rubric, key.judge, key.assistant, key.assistant_version)
        for key in totals.sums
        if key.name == "scored_sessions" and key.measure == measure
    }
    found = (_summary(totals.sums, group, measure, frames[group[0], *group[2:]]) for group in sorted(groups))
    return tuple(item for item in found if item.finished)


def strata_totals(sums: Sums, group: Group, measure: str, finished: dict[str, int]) -> list[StratumTotals]:
    """Give the totals that the interval is computed from; weights as real numbers.

    One a stratum, or two where a screen passed some of its sessions over.
    """
    rubric, judge, assistant, version = group
    strata: list[StratumTotals] = []
    for stratum, count in finished.items():
        labels = (rubric, measure, judge, assistant, version, stratum)
        whole, clear = (
            {field: sums.get(TotalKey(name, *labels), 0) / unit for field, (name, unit) in names.items()}
            for names in (SUMS, CLEAR)
        )
        strata += parts(StratumTotals(finished=count, **whole), StratumTotals(finished=0, **clear))
    return strata


def scale(rows: tuple[VersionSummary, ...]) -> float:
    """Give the end of the axis that all intervals of a table fit on: 1, 2 or 5 times a power of ten, at most 1."""
    shown = [max(row.interval.high, row.raw or 0.0) for row in rows if row.interval.rate is not None]
    highest = max(shown, default=0.0)
    if highest < SMALLEST_SCALE:
        return SMALLEST_SCALE if highest else 1.0
    power = 10.0 ** math.floor(math.log10(highest))
    return min(next(power * step for step in (1, 2, 5, 10) if power * step >= highest * 0.999), 1.0)


def _frames(sums: Sums) -> dict[tuple[str, str, str], dict[str, int]]:
    frames: dict[tuple[str, str, str], dict[str, int]] = defaultdict(dict)
    for key, value in sums.items():
        if key.name == "sessions_finished" and value:
            frames[key.rubric, key.assistant, key.assistant_version][key.stratum] = value
    return frames


def _summary(sums: Sums, group: Group, measure: str, finished: dict[str, int]) -> VersionSummary:
    rubric, judge, assistant, version = group
    strata = strata_totals(sums, group, measure, finished)

    def raw(name: str) -> int:
        labels = (rubric, measure, judge, assistant, version)
        return sum(sums.get(TotalKey(name, *labels, stratum), 0) for stratum in finished)

    trials = raw("judged_trials")
    return VersionSummary(
        rubric=rubric,
        judge=judge,
        assistant=assistant,
        assistant_version=version,
        finished=sum(finished.values()),
        judged=raw("scored_sessions"),
        trials=trials,
        raw=raw_rate(trials, raw("judged_failures")),
        interval=interval(strata, Z_95),
        enough=enough_data(strata),
        unscored=_unscored(sums, group, sum(stratum.sw for stratum in strata)),
    )


def _unscored(sums: Sums, group: Group, scored: float) -> float | None:
    rubric, judge, assistant, version = group
    labels = (rubric, judge, assistant, version)
    failed = sum(
        value / 16
        for key, value in sums.items()
        if key.name == "weighted_unscored"
        and (key.rubric, key.judge, key.assistant, key.assistant_version) == labels
    )
    return failed / (failed + scored) if failed + scored else None
