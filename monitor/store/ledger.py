"""What a decision and a judgement add to the totals: pure, and the only place that says so (R1, R3).

Everything is a whole number, so totals are equal whatever the order in which records came: weights in sixteenths
(`weight16`), second moments in 1/256, scores in whole millionths. `name` of a `TotalKey` is the metric's name in
`monitor.metrics`; `detail` is a reason, or the upper bound of a histogram's bucket, or `sum`. What a histogram
has as a label of its own (a criterion, a turn band) stands in `measure`.

In the sums of the estimates (statistics.md section 1) a session that was **skipped** counts as scored with zero
trials: it was observed, and has no trial. An **unscored** one was not observed: it is in `weighted_unscored` and
nowhere else.

A session that a screen passed over is scored as well: the few of its kind that are judged all the same have the
trials of all (`Stage`). Their sums stand apart a second time (`CLEAR_SUMS`), since in an interval they are a
stratum of their own.
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

import msgspec

from monitor.judgement import Judgement, Screening, ScreenVerdict, Skipped, Stage, Unscored, Verdict
from monitor.metrics import CATALOGUE, JUDGE_LABELS

# Past this a sum of squares over a batch could leave 64 bits; a session of 8 trials at p = 1e-6 stays below.
MAX_ADDEND: Final = 2**54
MILLION: Final = 1_000_000
INF: Final = "+Inf"
ALL: Final = Stage()
COIN: Final = 2**32
# The raw counts and the eight sums, in the order of `session_sums`.
SESSION_SUMS: Final = (
    "judged_trials",
    "judged_failures",
    "scored_sessions",
    "weighted_sessions",
    "weighted_trials",
    "weighted_failures",
    "weight2",
    "weight2_trials",
    "weight2_trials2",
    "weight2_trials_failures",
    "weight2_failures2",
)
# The eight sums over the sessions in which a screen found nothing, in the order of the ones above.
CLEAR_SUMS: Final = (
    "weighted_clear_sessions",
    "weighted_clear_trials",
    "weighted_clear_failures",
    "weight2_clear",
    "weight2_clear_trials",
    "weight2_clear_trials2",
    "weight2_clear_trials_failures",
    "weight2_clear_failures2",
)
RAW_SUMS: Final = 3
SUM: Final = "sum"
# Whether the first and the second judgement found a failure.
COMPARED: Final = {
    "both_clear": (False, False),
    "both_failed": (True, True),
    "only_first": (True, False),
    "only_second": (False, True),
}
AGREEMENTS: Final = (*COMPARED, "unscored")
FINDINGS: Final = tuple(
    f"{verdict}_{found}" for verdict in ("look", "clear") for found in ("failure", "trial", "nothing")
)


class TotalKey(NamedTuple):
    """One total. Labels that its metric doesn't have are empty."""

    name: str
    rubric: str = ""
    measure: str = ""
    judge: str = ""
    assistant: str = ""
    assistant_version: str = ""
    stratum: str = ""
    detail: str = ""


Sums: TypeAlias = dict[TotalKey, int]


class ScreenFacts(msgspec.Struct, kw_only=True, frozen=True):
    """What a screen said of a session. `out`: it wasn't judged; else it stands for `one_in` (see `Screening`)."""

    judge: str
    verdict: ScreenVerdict
    out: bool
    one_in: int


class Counts(msgspec.Struct, kw_only=True, frozen=True):
    """What a judgement adds once it counts, as kept with its row: later settings don't rewrite history.

    `measures` holds [trials, failures] for every measure of the rubric, those without a trial included.
    """

    measures: dict[str, tuple[int, int]] = {}
    scores: dict[str, list[float]] = {}
    skipped_events: dict[str, int] = {}
    stage: Stage = Stage()
    screen: ScreenFacts | None = None


class DecisionFacts(msgspec.Struct, kw_only=True):
    """The part of a stored decision that counting needs. `jobs` maps job ids to rubrics."""

    content_hash: str
    stratum: str
    assistant: str
    assistant_version: str
    weight16: int
    selected: bool
    overlap: bool
    frame: list[str]
    jobs: dict[str, str]


class JudgementFacts(msgspec.Struct, kw_only=True):
    """The part of a judgement that counting needs; `standing` says whether it counts."""

    digest: str
    job_id: str
    content_hash: str
    rubric: str
    judge: str
    kind: str
    reason: str
    counts: Counts
    standing: str = "waiting"


def counts_of(judgement: Judgement, measures: Iterable[str]) -> Counts:
    """Resolve what a judgement adds. Raises `ValueError` when a number can't be counted."""
    if isinstance(judgement.result, Unscored):
        return Counts()
    outcomes = judgement.outcomes
    tallies = dict.fromkeys(sorted({*measures, *outcomes.measures}), (0, 0))
    for measure, tally in outcomes.measures.items():
        if not 0 <= tally.failures <= tally.trials:
            raise ValueError(f"measure {measure}: {tally.failures} failures in {tally.trials} trials")
        tallies[measure] = (tally.trials, tally.failures)
    for name, values in outcomes.scores.items():
        _check_scores(name, values)
    if not all(0 <= count <= MILLION for count in outcomes.skipped_events.values()):
        raise ValueError(f"skipped_events: a count that is not from 0 to {MILLION}")
    if not 1 <= outcomes.stage.judged <= outcomes.stage.found <= MILLION:
        raise ValueError(f"stage: {outcomes.stage.judged} judged of {outcomes.stage.found} found")
    return Counts(
        measures=tallies,
        scores=outcomes.scores,
        skipped_events=outcomes.skipped_events,
        stage=outcomes.stage,
        screen=_screen_facts(judgement.screen),
    )


def _screen_facts(screen: Screening | None) -> ScreenFacts | None:
    if screen is None:
        return None
    if not 1 <= screen.one_in <= MILLION:
        raise ValueError(f"screen: one in {screen.one_in} audited")
    return ScreenFacts(judge=screen.judge, verdict=screen.verdict, out=screen.out, one_in=screen.one_in)


def kind_of(result: Verdict | Skipped | Unscored) -> tuple[str, str]:
    """Give kind and reason of a result; a verdict has no reason."""
    if isinstance(result, Verdict):
        return "verdict", ""
    return ("skipped" if isinstance(result, Skipped) else "unscored"), result.reason


def decision_sums(decision: DecisionFacts) -> Iterator[tuple[TotalKey, int]]:
    """Give what a decision adds. An overlapping one adds nothing but itself (R5)."""
    if decision.overlap:
        yield TotalKey("sessions_overlapping"), 1
        return
    for rubric in dict.fromkeys(decision.frame):
        frame = (rubric, "", "", decision.assistant, decision.assistant_version, decision.stratum)
        yield TotalKey("sessions_finished", *frame), 1
        yield TotalKey("sessions_selected", *frame), int(decision.selected)
    if decision.selected:
        for rubric in decision.jobs.values():
            yield TotalKey("jobs_listed", rubric, stratum=decision.stratum), 1


def judgement_sums(decision: DecisionFacts, judgement: JudgementFacts) -> Iterator[tuple[TotalKey, int]]:
    """Give what a judgement adds under its stored decision. Raises `ValueError` when a sum would be too large."""
    rubric = decision.jobs[judgement.job_id]
    stratum = decision.stratum
    labels = (judgement.judge, decision.assistant, decision.assistant_version, stratum)
    if judgement.kind == "unscored":
        yield TotalKey("unscored", rubric, stratum=stratum, detail=judgement.reason), 1
        yield TotalKey("weighted_unscored", rubric, "", *labels, judgement.reason), decision.weight16
        return
    name = "verdicts" if judgement.kind == "verdict" else "skipped"
    yield TotalKey(name, rubric, stratum=stratum, detail=judgement.reason), 1
    for reason, count in judgement.counts.skipped_events.items():
        yield TotalKey("skipped_events", rubric, stratum=stratum, detail=reason), count
    stage = judgement.counts.stage
    screen = judgement.counts.screen
    coin = 0 if stage.found == stage.judged else _coin(judgement.job_id)
    for measure, (trials, failures) in judgement.counts.measures.items():
        keys = _session_keys(rubric, measure, *labels)
        sums = session_sums(decision.weight16, trials, failures, stage, coin)
        yield from zip(keys, sums, strict=True)
        if screen is not None:
            yield from _screen_sums(rubric, measure, labels, screen, sums)
    for score, values in judgement.counts.scores.items():
        metric, _, own = score.partition(":")
        for detail, value in histogram_sums(metric, values):
            yield TotalKey(metric, rubric, own, *labels, detail), value


def _screen_sums(
    rubric: str, measure: str, labels: tuple[str, str, str, str], screen: ScreenFacts, sums: tuple[int, ...]
) -> Iterator[tuple[TotalKey, int]]:
    """Give what a screened session adds besides: to the sums of its kind, and to what the screen has missed."""
    if screen.verdict == "clear":
        for name, value in zip(CLEAR_SUMS, sums[RAW_SUMS:], strict=True):
            yield TotalKey(name, rubric, measure, *labels), value
    if screen.out or screen.verdict == "failed":
        return
    trials, failures, weight16 = sums[0], sums[1], sums[RAW_SUMS]
    found = "failure" if failures else "trial" if trials else "nothing"
    key = TotalKey("screen_findings", rubric, measure, screen.judge, detail=f"{screen.verdict}_{found}")
    yield key, 1
    yield key._replace(name="weighted_screen_findings"), weight16 * screen.one_in


def superseded_sums(rubric: str) -> Iterator[tuple[TotalKey, int]]:
    """Give what a judgement adds that is kept but doesn't count."""
    yield TotalKey("judgements_superseded", rubric), 1


def repeat_sums(live: JudgementFacts, repeat: JudgementFacts) -> Iterator[tuple[TotalKey, int]]:
    """Give what a counted judgement and a second one on the same job add: for each measure, who found a failure.

    Two judgements by different judges say nothing of either, and add nothing.
    """
    if live.judge != repeat.judge:
        return
    for measure in sorted({*live.counts.measures, *repeat.counts.measures}):
        yield (
            TotalKey("judge_repeats", live.rubric, measure, live.judge, detail=agreement(live, repeat, measure)),
            1,
        )


def agreement(live: JudgementFacts, repeat: JudgementFacts, measure: str) -> str:
    """Say which of two judgements found a failure of a measure: one of `AGREEMENTS`."""
    if "unscored" in {live.kind, repeat.kind}:
        return "unscored"
    first, second = (bool(item.counts.measures.get(measure, (0, 0))[1]) for item in (live, repeat))
    if first == second:
        return "both_failed" if first else "both_clear"
    return "only_first" if first else "only_second"


def session_sums(weight16: int, trials: int, failures: int, stage: Stage = ALL, coin: int = 0) -> tuple[int, ...]:
    """Give what one scored session adds to each of `SESSION_SUMS`. Raises `ValueError` past `MAX_ADDEND`.

    Trials and failures stand for `stage.found / stage.judged` of their kind in the weighted sums. Where that is no
    whole number of sixteenths, `coin` (uniform, below `COIN`) decides between the two next to it, so that the sums
    stay whole and right on average. The raw counts are what the judge saw.
    """
    trials16 = _expanded(weight16 * trials, stage, coin)
    failures16 = _expanded(weight16 * failures, stage, coin)
    if max(trials16 * trials16, weight16 * weight16) > MAX_ADDEND:
        raise ValueError(f"weight {weight16}/16 with {trials} trials is too large to be summed")
    return (
        trials,
        failures,
        1,
        weight16,
        trials16,
        failures16,
        weight16 * weight16,
        weight16 * trials16,
        trials16 * trials16,
        trials16 * failures16,
        failures16 * failures16,
    )


def _expanded(sixteenths: int, stage: Stage, coin: int) -> int:
    """Multiply by found / judged, rounded down after adding coin / COIN."""
    return (sixteenths * stage.found * COIN + coin * stage.judged) // (stage.judged * COIN)


def _coin(job_id: str) -> int:
    """Draw the rounding of a job's sums: the same whenever it is counted, withdrawn or rebuilt."""
    digest = hashlib.blake2b(job_id.encode(), digest_size=4, person=b"stage").digest()
    return int.from_bytes(digest)


def histogram_sums(metric: str, values: Iterable[float]) -> Iterator[tuple[str, int]]:
    """Give the bucket that each value falls into, by upper bound, and the sum in whole millionths."""
    bounds = CATALOGUE[metric].buckets
    total = 0
    for value in values:
        place = bisect_left(bounds, value)
        yield (bucket(bounds[place]) if place < len(bounds) else INF), 1
        total += round(value * MILLION)
    yield SUM, total


def bucket(bound: float) -> str:
    """Name a bucket as Prometheus does."""
    return repr(float(bound))


def add(sums: Sums, changes: Iterable[tuple[TotalKey, int]], sign: int = 1) -> None:
    """Add changes to sums, or take them back with sign -1."""
    for key, value in changes:
        sums[key] = sums.get(key, 0) + sign * value


def moved(sums: Mapping[TotalKey, int]) -> Sums:
    """Leave out what is zero: for comparing sums that differ in empty series alone."""
    return {key: value for key, value in sums.items() if value}


@lru_cache(maxsize=8_192)
def _session_keys(
    rubric: str, measure: str, judge: str, assistant: str, version: str, stratum: str
) -> tuple[TotalKey, ...]:
    """Name the totals of `SESSION_SUMS` under their labels; kept, since most sessions share them."""
    return tuple(TotalKey(name, rubric, measure, judge, assistant, version, stratum) for name in SESSION_SUMS)


def _check_scores(name: str, values: list[float]) -> None:
    metric, _, own = name.partition(":")
    known = CATALOGUE.get(metric)
    if known is None or known.kind != "histogram" or bool(own) == (known.labels == JUDGE_LABELS):
        raise ValueError(f"scores: no histogram {name!r} in the catalogue")
    if not all(math.isfinite(value) and 0 <= value <= MILLION for value in values):
        raise ValueError(f"scores: {name} has a value that isn't a number from 0 to {MILLION}")
