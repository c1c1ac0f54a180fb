"""Rates behind a screen that misses much: unbiased, with intervals that hold; bent without the second stage (R7).

Traffic with known truth goes through the sampling, a screen, the audit's own coin, the ledger and the estimate.
"""

from __future__ import annotations

import random
from statistics import fmean, stdev
from typing import NamedTuple

from monitor.judgement import Stage
from monitor.judging.screen import audited
from monitor.store import Sums, Totals
from monitor.store.ledger import (
    Counts,
    DecisionFacts,
    JudgementFacts,
    ScreenFacts,
    add,
    decision_sums,
    judgement_sums,
)
from monitor.summary import summaries

HISTORIES = 60
SESSIONS = 15_000
ONE_IN = 10
# Share of the sessions, probability of the sample, and how many of the sessions with corrections fail.
STRATA = {"corrected": (0.1, 1.0, 0.3), "base": (0.9, 0.1, 0.08)}
WITH_TRIALS = 0.4
MISSED = 0.3  # of the failing sessions
LOOKED_AT = 0.3  # of those with trials of which none fails
IN_VAIN = 0.05  # of those without a trial


class Estimate(NamedTuple):
    """The truth of one history, and what was estimated with and without the second stage."""

    true: float
    rate: float
    holds: bool
    bent: float
    bent_holds: bool


def _session(chance: random.Random, failing: float) -> tuple[int, int, bool]:
    """Give trials and failures of a session, and whether the screen wants it looked at."""
    if chance.random() >= WITH_TRIALS:
        return 0, 0, chance.random() < IN_VAIN
    trials = chance.choice((1, 1, 2, 3))
    if chance.random() >= failing:
        return trials, 0, chance.random() < LOOKED_AT
    return trials, chance.randint(1, trials), chance.random() >= MISSED


def _judgement(job_id: str, trials: int, failures: int, *, look: bool, staged: bool) -> JudgementFacts:
    audit = not look and audited(job_id, ONE_IN)
    judged = look or audit
    screen = ScreenFacts(
        judge="cheap", verdict="look" if look else "clear", out=not judged, one_in=1 if look else ONE_IN
    )
    return JudgementFacts(
        digest=job_id,
        job_id=job_id,
        content_hash="h",
        rubric="correction",
        judge="lexical",
        kind="verdict" if judged else "skipped",
        reason="" if judged else "screened_out",
        counts=Counts(
            measures={"reverted": (trials, failures) if judged else (0, 0)},
            stage=Stage(found=ONE_IN) if audit and staged else Stage(),
            screen=screen if staged else None,
        ),
    )


def _history(seed: int) -> Estimate:
    chance = random.Random(seed)
    truth = [0, 0]
    staged, bent = Sums(), Sums()
    for number in range(SESSIONS):
        stratum = "corrected" if chance.random() < STRATA["corrected"][0] else "base"
        _, probability, failing = STRATA[stratum]
        trials, failures, look = _session(chance, failing)
        truth[0] += trials
        truth[1] += failures
        selected = chance.random() < probability
        job_id = f"{seed}-{number}"
        decision = DecisionFacts(
            content_hash="h",
            stratum=stratum,
            assistant="shop",
            assistant_version="v1",
            weight16=round(16 / probability),
            selected=selected,
            overlap=False,
            frame=["correction"],
            jobs={job_id: "correction"} if selected else {},
        )
        for sums, stage in ((staged, True), (bent, False)):
            add(sums, decision_sums(decision))
            if selected:
                facts = _judgement(job_id, trials, failures, look=look, staged=stage)
                add(sums, judgement_sums(decision, facts))
    true = truth[1] / truth[0]
    (rate, holds), (other, other_holds) = _estimated(staged, true), _estimated(bent, true)
    return Estimate(true, rate, holds, other, other_holds)


def _estimated(sums: Sums, true: float) -> tuple[float, bool]:
    totals = Totals(generation=1, rebuilding=False, sums=sums, pending={}, oldest_pending=None, rates={})
    (row,) = summaries(totals, "reverted")
    assert row.interval.rate is not None
    return row.interval.rate, row.interval.low <= true <= row.interval.high


def test_a_screen_that_misses_three_failing_sessions_in_ten_bends_no_rate() -> None:
    found = [_history(seed) for seed in range(HISTORIES)]
    errors = [one.rate - one.true for one in found]
    noise = stdev(errors) / HISTORIES**0.5
    bent = fmean(one.bent - one.true for one in found)
    held = sum(one.holds for one in found)
    print(
        f"\ntrue {fmean(one.true for one in found):.4f}: staged {fmean(errors):+.4f} +- {noise:.4f}, held {held} "
        f"of {HISTORIES}; without the stage {bent:+.4f}, held {sum(one.bent_holds for one in found)}"
    )
    assert abs(fmean(errors)) < 3 * noise
    assert held >= 0.92 * HISTORIES
    assert abs(bent) > 10 * noise
    assert not any(one.bent_holds for one in found)
