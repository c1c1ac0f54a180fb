"""What a replay found, as a value, as JSON and as a table for people."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from monitor.decision import Labels
from monitor.estimate import NO_DATA, Interval, raw_rate
from monitor.judgement import Judgement, Tally, Unscored
from monitor.judging.prices import dollars
from monitor.store import Sums, TotalKey, Totals
from monitor.summary import choices, summaries


class StratumSummary(msgspec.Struct, kw_only=True):
    """One stratum of the policy: how many sessions fell into it, and what became of those that were picked.

    `probability` is the one in force; None in the stratum `error`, from which nothing is picked.
    """

    name: str
    probability: float | None
    finished: int = 0
    selected: int = 0
    verdicts: int = 0
    skipped: dict[str, int] = {}
    unscored: dict[str, int] = {}


class Rate(msgspec.Struct, kw_only=True, frozen=True):
    """One measure of one assistant version. `raw` is biased by the sampling; `interval` (95 %) is weighted.

    `enough` says whether every large stratum has enough judged sessions for the interval to be taken at its word.
    """

    rubric: str
    assistant: str
    assistant_version: str
    measure: str
    judged: int
    trials: int
    failures: int
    raw: float | None
    interval: Interval
    enough: bool


class CensusRate(msgspec.Struct, kw_only=True, frozen=True):
    """The same over all finished sessions, judged without sampling and without being stored."""

    rubric: str
    assistant: str
    assistant_version: str
    measure: str
    sessions: int
    trials: int
    failures: int
    rate: float | None


class ReplaySummary(msgspec.Struct, kw_only=True, frozen=True):
    """What one replay did. `rates` are computed from what it added to the store: nothing, if that knew it all.

    `invalid` counts lines by reason, `orphans` events without a session by type, `closed` finished sessions by
    reason, `calls` calls of the judge by error type (`none`: answered), `tokens` by type, `cost_nusd` in 1e-9 $.
    `late` events went into the store as addenda. `already_stored` records were there before; `overlaps` and
    `rejected` weren't counted by the store, and `rejections` says why. `census_unscored` sessions are missing from
    the census.
    """

    policy: str
    judge: str
    events: int
    invalid: dict[str, int]
    passed_over: int
    duplicates: int
    late: int
    orphans: dict[str, int]
    finished: int
    closed: dict[str, int]
    strata: list[StratumSummary]
    rates: list[Rate]
    calls: dict[str, int]
    tokens: dict[str, int]
    cost_nusd: int
    already_stored: int
    overlaps: int
    rejected: int
    rejections: list[str]
    census: list[CensusRate] | None = None
    census_unscored: int = 0

    def to_json(self) -> bytes:
        """Encode it, indented."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2)

    def to_text(self) -> str:
        """Lay it out for a terminal, without any text of a session."""
        return "\n".join(_lines(self))


class Census:
    """Counts what the judge says of all finished sessions."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, str, str], list[int]] = {}
        self.unscored = 0

    def add(self, judgement: Judgement, labels: Labels, measures: Iterable[str]) -> None:
        """Count a judgement under its session's labels; a skipped session has no trials."""
        if isinstance(judgement.result, Unscored):
            self.unscored += 1
            return
        for measure in measures:
            key = (judgement.rubric, labels.assistant, labels.assistant_version, measure)
            counts = self._counts.setdefault(key, [0, 0, 0])
            tally = judgement.outcomes.measures.get(measure, _NO_TALLY)
            counts[0] += 1
            counts[1] += tally.trials
            counts[2] += tally.failures

    def rates(self) -> list[CensusRate]:
        """Give the rates in order of their labels."""
        return [
            CensusRate(
                rubric=key[0],
                assistant=key[1],
                assistant_version=key[2],
                measure=key[3],
                sessions=sessions,
                trials=trials,
                failures=failures,
                rate=raw_rate(trials, failures),
            )
            for key, (sessions, trials, failures) in sorted(self._counts.items())
        ]


def rates(before: Totals, after: Totals, judge: str) -> list[Rate]:
    """Work out the rates of what was added to a store between two readings."""
    sums: Sums = {
        key: grown
        for key, value in after.sums.items()
        if (grown := value - before.sums.get(key, 0)) and key.judge in {"", judge}
    }
    added = msgspec.structs.replace(after, sums=sums)
    found = [_rate for measure in choices(added).measures for _rate in _rates(added, measure)]
    return sorted(found, key=lambda rate: (rate.rubric, rate.assistant, rate.assistant_version, rate.measure))


def _rates(totals: Totals, measure: str) -> Iterator[Rate]:
    failures: dict[tuple[str, str, str], int] = defaultdict(int)
    for key, value in totals.sums.items():
        if key.name == "judged_failures" and key.measure == measure:
            failures[_group(key)] += value
    for row in summaries(totals, measure):
        yield Rate(
            rubric=row.rubric,
            assistant=row.assistant,
            assistant_version=row.assistant_version,
            measure=measure,
            judged=row.judged,
            trials=row.trials,
            failures=failures[row.rubric, row.assistant, row.assistant_version],
            raw=row.raw,
            interval=row.interval,
            enough=row.enough,
        )


def _group(key: TotalKey) -> tuple[str, str, str]:
    return key.rubric, key.assistant, key.assistant_version


def _lines(summary: ReplaySummary) -> Iterator[str]:
    yield f"policy {summary.policy}, judge {summary.judge}"
    lost = f"{sum(summary.orphans.values())} without a session{listed(summary.orphans)}"
    yield f"{summary.events} events: {summary.duplicates} duplicates, {summary.late} late, {lost}"
    if summary.invalid:
        yield f"{sum(summary.invalid.values())} invalid, left out{listed(summary.invalid)}"
    if summary.passed_over:
        yield f"{summary.passed_over} passed over by the mapping"
    yield f"{summary.finished} finished sessions{listed(summary.closed)}"
    if summary.already_stored:
        yield f"{summary.already_stored} records were in the store before, and are in no rate below"
    if summary.overlaps or summary.rejected:
        yield f"not counted by the store: {summary.overlaps} overlapping sessions, {summary.rejected} records"
    calls = sum(summary.calls.values())
    if summary.census_unscored:
        yield f"{summary.census_unscored} sessions are missing from the census: the judge failed on them"
    failed = listed({name: count for name, count in summary.calls.items() if name != "none"})
    cost = f", {dollars(summary.cost_nusd)}" if summary.cost_nusd else ""
    yield f"{calls} calls of the judge{failed}{cost}"
    yield ""
    yield from table(_STRATA, [_stratum_cells(stratum) for stratum in summary.strata])
    # The census knows of assistants of which no session was picked, and with them of all the others.
    shown = {_key(rate): rate for rate in summary.rates} | {
        _key(row): _unjudged(row)
        for row in summary.census or ()
        if _key(row) not in {_key(r) for r in summary.rates}
    }
    if shown:
        yield ""
        census = {_key(row): row for row in summary.census or ()}
        heads = (*_RATES, "census") if summary.census is not None else _RATES
        yield from table(heads, [_rate_cells(shown[key], census, len(heads)) for key in sorted(shown)])
    if summary.finished and not any(stratum.selected for stratum in summary.strata):
        yield ""
        remedy = "" if summary.census is not None else ", or add --census to judge all of them"
        yield f"no session was selected: raise the rates of the policy{remedy}"


_NO_TALLY: Final = Tally(trials=0, failures=0)
_STRATA: Final = ("stratum", "probability", "finished", "selected", "verdicts", "skipped", "unscored")
_RATES: Final = ("assistant", "version", "measure", "judged", "failures", "raw", "weighted", "95 % interval")


def _stratum_cells(stratum: StratumSummary) -> list[str]:
    return [
        stratum.name,
        "-" if stratum.probability is None else f"{stratum.probability:.4g}",
        str(stratum.finished),
        str(stratum.selected),
        str(stratum.verdicts),
        f"{sum(stratum.skipped.values())}{listed(stratum.skipped)}",
        f"{sum(stratum.unscored.values())}{listed(stratum.unscored)}",
    ]


def _rate_cells(rate: Rate, census: dict[tuple[str, ...], CensusRate], width: int) -> list[str]:
    bounds = f"{percent(rate.interval.low)} to {percent(rate.interval.high)}"
    cells = [
        rate.assistant,
        rate.assistant_version,
        f"{rate.rubric}/{rate.measure}",
        str(rate.judged),
        f"{rate.failures} of {rate.trials}",
        percent(rate.raw),
        percent(rate.interval.rate),
        bounds if rate.enough else f"{bounds} (too few)",
    ]
    if width > len(cells):
        row = census.get(_key(rate))
        cells.append(percent(row.rate if row else None))
    return cells


def _key(row: Rate | CensusRate) -> tuple[str, ...]:
    return row.rubric, row.assistant, row.assistant_version, row.measure


def _unjudged(row: CensusRate) -> Rate:
    return Rate(
        rubric=row.rubric,
        assistant=row.assistant,
        assistant_version=row.assistant_version,
        measure=row.measure,
        judged=0,
        trials=0,
        failures=0,
        raw=None,
        interval=NO_DATA,
        enough=False,
    )


def listed(counts: Mapping[str, int]) -> str:
    """Write counts in brackets, in order of their names; nothing when there are none."""
    return f" ({', '.join(f'{name} {counts[name]}' for name in sorted(counts))})" if counts else ""


def percent(value: float | None) -> str:
    """Write a share for people; `-` when it is unknown."""
    return "-" if value is None else f"{100 * value:.1f} %"


def table(heads: Sequence[str], rows: list[list[str]]) -> Iterator[str]:
    """Lay cells out in columns, a line each."""
    widths = [max(len(row[place]) for row in (heads, *rows)) for place in range(len(heads))]
    for row in (heads, *rows):
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
