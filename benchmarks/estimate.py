"""Does the interval hold? Simulated histories of a biased sample, against the acceptance numbers (R7).

    python -m benchmarks.estimate [--json] [--histories N]

The standard setting: strata of 2 / 8 / 90 % of the finished sessions, sampled at 1.0 / 0.5 / 0.05, failure rates
in the ratio 8 : 4 : 1 (in odds once a rate would pass 1/2), 1 to 4 trials a session, intraclass correlation 0.3.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from monitor.estimate import Z_95, Z_PAGE, StratumTotals, interval

Z_ONE_SIDED: Final = 1.6448536269514722
SIZES: Final = (300, 2_000, 20_000, 50_000)
SUMS: Final = ("sw", "swt", "swf", "qw", "qt", "qtt", "qtf", "qff")
RATES: Final = (0.005, 0.02, 0.055, 0.30)


class Stratum(msgspec.Struct, kw_only=True, frozen=True):
    """A stratum of the simulation: its share of sessions, how often its trials fail (relative), its sampling rate.

    With `later` the rate changes half way through the window.
    """

    share: float
    probability: float
    odds: float
    later: float | None = None

    @property
    def probabilities(self) -> tuple[float, ...]:
        """The rates of equal parts of the window."""
        return (self.probability,) if self.later is None else (self.probability, self.later)


class Setting(msgspec.Struct, kw_only=True, frozen=True):
    """What is simulated. `trials` gives the distribution of trials a session by stratum: number -> probability."""

    name: str
    strata: tuple[Stratum, ...]
    trials: tuple[dict[int, float], ...]
    icc: float


ONE_TO_FOUR: Final = {1: 0.25, 2: 0.25, 3: 0.25, 4: 0.25}
SPARSE: Final = {0: 0.85} | dict.fromkeys((1, 2, 3, 4), 0.15 / 4)
CLAIMS: Final = {40: 1.0}
BIASED: Final = (
    Stratum(share=0.02, probability=1.0, odds=8.0),
    Stratum(share=0.08, probability=0.5, odds=4.0),
    Stratum(share=0.90, probability=0.05, odds=1.0),
)
STANDARD: Final = Setting(name="standard", strata=BIASED, trials=(ONE_TO_FOUR,) * 3, icc=0.3)
HARDER: Final = (
    Setting(
        name="rates halved half way",
        strata=tuple(msgspec.structs.replace(s, later=s.probability / 2) for s in BIASED),
        trials=(ONE_TO_FOUR,) * 3,
        icc=0.3,
    ),
    Setting(
        name="trials in 15 % of base sessions",
        strata=BIASED,
        trials=(ONE_TO_FOUR, ONE_TO_FOUR, SPARSE),
        icc=0.3,
    ),
    Setting(name="ICC 0.8", strata=BIASED, trials=(ONE_TO_FOUR,) * 3, icc=0.8),
    Setting(name="40 claims a session", strata=BIASED, trials=(CLAIMS,) * 3, icc=0.3),
    Setting(
        name="six strata",
        strata=(
            Stratum(share=0.01, probability=1.0, odds=10.0),
            Stratum(share=0.02, probability=1.0, odds=8.0),
            Stratum(share=0.05, probability=0.5, odds=5.0),
            Stratum(share=0.12, probability=0.25, odds=3.0),
            Stratum(share=0.30, probability=0.1, odds=1.5),
            Stratum(share=0.50, probability=0.05, odds=1.0),
        ),
        trials=(ONE_TO_FOUR,) * 6,
        icc=0.3,
    ),
    Setting(
        name="uniform",
        strata=(Stratum(share=1.0, probability=0.1, odds=1.0),),
        trials=(ONE_TO_FOUR,),
        icc=0.3,
    ),
    Setting(
        name="all judged",
        strata=(Stratum(share=1.0, probability=1.0, odds=1.0),),
        trials=(ONE_TO_FOUR,),
        icc=0.3,
    ),
)


class Cell(msgspec.Struct, kw_only=True):
    """What came of the histories of one setting, size and true rate."""

    setting: str
    sessions: int
    true_rate: float
    histories: int = 0
    judged: float = 0.0
    covered: float = 0.0
    miss_low: float = 0.0
    miss_alert: float = 0.0
    miss_alert_page: float = 0.0
    width: float = 0.0
    mean_rate: float = 0.0
    mean_raw: float = 0.0


def binomial(draw: Callable[[], float], n: int, p: float) -> int:
    """Draw from Binomial(n, p) exactly, walking out from the mode: some 2 standard deviations of steps."""
    if n <= 0 or p <= 0.0:
        return 0
    if p >= 1.0:
        return n
    odds = p / (1.0 - p)
    up = down = min(int((n + 1) * p), n)
    at_up = at_down = math.exp(
        math.lgamma(n + 1) - math.lgamma(up + 1) - math.lgamma(n - up + 1)
        + up * math.log(p) + (n - up) * math.log1p(-p)
    )  # fmt: skip
    left = draw() - at_up
    while left > 0.0 and (up < n or down > 0):
        if up < n:
            at_up *= (n - up) / (up + 1) * odds
            up += 1
            left -= at_up
            if left <= 0.0:
                return up
        if down > 0:
            at_down *= down / (n - down + 1) / odds
            down -= 1
            left -= at_down
            if left <= 0.0:
                return down
    return up if left <= 0.0 else min(int((n + 1) * p), n)


def multinomial(draw: Callable[[], float], n: int, shares: Sequence[float]) -> Iterator[int]:
    """Draw how many of n fall into each share; the shares add up to 1."""
    rest = 1.0
    for share in shares[:-1]:
        count = binomial(draw, n, min(share / rest, 1.0)) if rest > 0.0 else 0
        yield count
        n -= count
        rest -= share
    yield n


def failure_rates(setting: Setting, true_rate: float) -> list[float]:
    """Give each stratum's failure rate, so that trials of all finished sessions fail at `true_rate`."""
    means = [sum(t * share for t, share in trials.items()) for trials in setting.trials]
    weights = [s.share * mean for s, mean in zip(setting.strata, means, strict=True)]
    total = sum(weights)
    base = true_rate * total / sum(w * s.odds for w, s in zip(weights, setting.strata, strict=True))
    if base * max(s.odds for s in setting.strata) <= 0.5:
        return [base * s.odds for s in setting.strata]
    low, high = 0.0, 1e6
    for _ in range(200):
        scale = (low + high) / 2.0
        rates = [scale * s.odds / (1.0 + scale * s.odds) for s in setting.strata]
        above = sum(w * r for w, r in zip(weights, rates, strict=True)) > true_rate * total
        low, high = (low, scale) if above else (scale, high)
    return rates


def outcomes(trials: dict[int, float], rate: float, icc: float) -> list[tuple[int, int, float]]:
    """List (t, f, probability) of a session: beta-binomial failures given its trials."""
    size = 1.0 / icc - 1.0
    a, b = rate * size, (1.0 - rate) * size

    def beta(x: float, y: float) -> float:
        return math.lgamma(x) + math.lgamma(y) - math.lgamma(x + y)

    return [
        (t, f, share * math.comb(t, f) * math.exp(beta(f + a, t - f + b) - beta(a, b)))
        for t, share in trials.items()
        for f in range(t + 1)
    ]


def history(
    draw: Callable[[], float], setting: Setting, cells: Sequence[list[tuple[int, int, float]]], sessions: int
) -> tuple[list[StratumTotals], int, int, int]:
    """Simulate one window: totals by stratum, and sessions judged, their trials and failures (unweighted)."""
    totals = []
    judged = trials = failures = 0
    finished = multinomial(draw, sessions, [s.share for s in setting.strata])
    for stratum, outcome, n in zip(setting.strata, cells, finished, strict=True):
        sums = [0.0] * 8
        parts = len(stratum.probabilities)
        for probability, part in zip(
            stratum.probabilities, multinomial(draw, n, [1.0 / parts] * parts), strict=True
        ):
            picked = binomial(draw, part, probability)
            counts = multinomial(draw, picked, [share for _, _, share in outcome])
            for (t, f, _), count in zip(outcome, counts, strict=True):
                trials += count * t
                failures += count * f
                _add(sums, count, 1.0 / probability, t, f)
            judged += picked
        totals.append(StratumTotals(finished=n, **dict(zip(SUMS, sums, strict=True))))
    return totals, judged, trials, failures


def _add(sums: list[float], count: int, w: float, t: int, f: int) -> None:
    """Add `count` equal sessions to the eight sums."""
    w2 = w * w
    terms = (w, w * t, w * f, w2, w2 * t, w2 * t * t, w2 * t * f, w2 * f * f)
    for index, term in enumerate(terms):
        sums[index] += count * term


def run_cell(setting: Setting, sessions: int, true_rate: float, histories: int, seed: int) -> Cell:
    """Simulate `histories` windows of one cell and count how often the bounds hold."""
    draw = random.Random(seed).random
    rates = failure_rates(setting, true_rate)
    cells = [outcomes(t, rate, setting.icc) for t, rate in zip(setting.trials, rates, strict=True)]
    cell = Cell(setting=setting.name, sessions=sessions, true_rate=true_rate, histories=histories)
    raw_trials = raw_failures = told = 0
    for _ in range(histories):
        totals, judged, trials, failures = history(draw, setting, cells, sessions)
        two, one, page = (interval(totals, z) for z in (Z_95, Z_ONE_SIDED, Z_PAGE))
        cell.judged += judged
        raw_trials += trials
        raw_failures += failures
        cell.covered += two.low <= true_rate <= two.high
        cell.miss_low += one.low > true_rate
        cell.miss_alert += one.alert > true_rate
        cell.miss_alert_page += page.alert > true_rate
        cell.width += two.high - two.low
        if two.rate is not None:
            told += 1
            cell.mean_rate += two.rate
    for name in ("judged", "covered", "miss_low", "miss_alert", "miss_alert_page", "width"):
        setattr(cell, name, getattr(cell, name) / histories)
    cell.mean_rate /= max(told, 1)
    cell.mean_raw = raw_failures / max(raw_trials, 1)
    return cell


def verdicts(cell: Cell, slack: float = 0.0) -> list[str]:
    """Name the acceptance numbers that a cell breaks; `slack` allows for the noise of few histories."""
    broken = []

    def demand(what: str, holds: bool) -> None:
        if not holds:
            broken.append(f"{cell.setting}, {cell.sessions} sessions, {cell.true_rate}: {what}")

    if cell.setting != STANDARD.name:
        demand(f"coverage {cell.covered:.4f} >= .925", cell.covered >= 0.925 - slack)
        return broken
    low, high = (0.940, 0.960) if cell.judged >= 2_050 and cell.true_rate >= 0.02 else (0.940, 0.985)
    demand(f"coverage {cell.covered:.4f} in {low}..{high}", low - slack <= cell.covered <= high + slack)
    demand(f"one-sided miss {cell.miss_low:.4f} <= .055", cell.miss_low <= 0.055 + slack)
    demand(f"alert miss {cell.miss_alert:.4f} <= .052", cell.miss_alert <= 0.052 + slack)
    demand(f"alert miss at z 3.09 {cell.miss_alert_page:.4f} <= .002", cell.miss_alert_page <= 0.002 + slack / 4)
    if cell.sessions >= 2_000:
        demand(f"bias {cell.mean_rate - cell.true_rate:+.5f} < .001", abs(cell.mean_rate - cell.true_rate) < 0.001)
    if cell.true_rate == 0.055:
        demand(f"raw rate {cell.mean_raw:.4f} off by > .08", cell.mean_raw - cell.true_rate > 0.08)
    return broken


def run(histories: int, seed: int = 20_260_101) -> Iterator[Cell]:
    """Simulate every cell of the standard setting, then the harder settings from 1,000 sessions on."""
    for sessions in SIZES:
        for rate in RATES:
            yield run_cell(STANDARD, sessions, rate, histories, seed)
    for setting in HARDER:
        for sessions in (1_000, 20_000):
            for rate in (0.02, 0.055):
                yield run_cell(setting, sessions, rate, max(histories // 4, 100), seed)


def main() -> int:
    """Run the benchmark; the exit code says whether every acceptance number holds."""
    parser = argparse.ArgumentParser(description="Coverage of the weighted interval.")
    parser.add_argument("--histories", type=int, default=20_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    started = time.perf_counter()
    cells, broken = [], []
    for cell in run(options.histories):
        cells.append(cell)
        broken += verdicts(cell, slack=3.0 * math.sqrt(0.05 * 0.95 / cell.histories))
        if not options.json:
            print(
                f"{cell.setting:32} {cell.sessions:6} {cell.true_rate:6.3f} judged {cell.judged:7.1f}"
                f" covered {cell.covered:.4f} low {cell.miss_low:.4f} alert {cell.miss_alert:.4f}"
                f" page {cell.miss_alert_page:.5f} width {cell.width:.4f} mean {cell.mean_rate:.5f}"
                f" raw {cell.mean_raw:.4f}",
                flush=True,
            )
    if options.json:
        report = {"cells": cells, "broken": broken, "seconds": round(time.perf_counter() - started, 1)}
        print(json.dumps(msgspec.to_builtins(report), indent=1))
    else:
        print("\n".join(broken) or "every acceptance number holds")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
