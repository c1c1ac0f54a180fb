"""Rates of a probability-weighted sample, with intervals that hold (R7).

Sampling is biased towards trouble, so the share of failures among judged sessions is not the share among all.
Each judged session stands for `w = 1/probability` finished ones; from eight sums per stratum and the number of
finished sessions, which is known exactly, come a rate, a two-sided interval and a bound for alerts. The
recording rules compute the same numbers in PromQL.

Per stratum a Jeffreys bound in closed form (the Wilson-Hilferty cube-root approximation of the beta quantile) at
an effective sample size that allows for unequal weights and for trials of one session that fail together; strata
are combined by MOVER (Donner and Zou 2012: the root of the summed squared distances to each bound).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import msgspec

Z_95: Final = 1.959963984540054
"""Two-sided 95 %."""
Z_TICKET: Final = 2.326
"""One-sided 1 %: the level of alerts that open a ticket."""
Z_PAGE: Final = 3.09
"""One-sided 0.1 %: the level of alerts that page."""

MIN_SHARE: Final = 0.05
MIN_JUDGED: Final = 5.0
_ZERO_VARIANCE: Final = 1e-15


class StratumTotals(msgspec.Struct, kw_only=True, frozen=True):
    """Totals of one measure in one stratum over a window.

    The sums run over scored sessions, those without a trial included: w is 1/probability of the stored decision,
    t and f are the session's trials and failures. `finished` counts the finished sessions in the rubric's frame,
    judged or not (N); a stratum in which the rubric is never scheduled is left out altogether.
    """

    finished: float
    sw: float = 0.0
    """Sum of w."""
    swt: float = 0.0
    """Sum of w t."""
    swf: float = 0.0
    """Sum of w f."""
    qw: float = 0.0
    """Sum of w^2."""
    qt: float = 0.0
    """Sum of w^2 t."""
    qtt: float = 0.0
    """Sum of (w t)^2."""
    qtf: float = 0.0
    """Sum of w^2 t f."""
    qff: float = 0.0
    """Sum of (w f)^2."""
    share2: float | None = None
    """For the part of a stratum: the sum of (w N / Sw)^2 over its sessions, since how many finished is a guess."""


class Interval(msgspec.Struct, kw_only=True, frozen=True):
    """A rate and its bounds, all in [0, 1].

    Without any trial `rate` is None and the bounds are 0 and 1. `alert` is the lower bound that alone may page: it
    is 0 when nothing failed. `effective_n` is the size of a simple random sample that would tell as much.
    """

    rate: float | None
    low: float
    high: float
    alert: float
    effective_n: float


class Difference(msgspec.Struct, kw_only=True, frozen=True):
    """The difference of two rates and its bounds, in [-1, 1]; `value` is None when one of the rates is."""

    value: float | None
    low: float
    high: float


NO_DATA: Final = Interval(rate=None, low=0.0, high=1.0, alert=0.0, effective_n=0.0)


def interval(strata: Sequence[StratumTotals], z: float) -> Interval:
    """Estimate the rate of failures per trial over all finished sessions, with bounds at `z` standard errors.

    Use `Z_95` for a two-sided interval of 95 %; `Z_TICKET` and `Z_PAGE` for `alert`.
    """
    views, expected = _views(strata)
    if not views:
        return NO_DATA
    rate = min(math.fsum(view.weight * view.rate for view in views), 1.0)
    spread = _Spread(rate, expected, z)
    for view in views:
        spread.add(view)
    own = z * z * spread.mix
    variance = spread.variance + spread.mix
    effective = rate * (1.0 - rate) / variance if variance > 0.0 else 0.0
    low = max(rate - math.sqrt(spread.low + own), 0.0)
    return Interval(
        rate=rate,
        low=low,
        high=min(rate + math.sqrt(spread.high + own), 1.0),
        alert=min(low, jeffreys_low(rate, effective, z)) if effective > 0.0 else 0.0,
        effective_n=effective,
    )


def parts(whole: StratumTotals, clear: StratumTotals) -> tuple[StratumTotals, ...]:
    """Cut a stratum into the sessions in which a screen found nothing (`clear`) and the others.

    The few of the first kind that were judged all the same stand for many each, so the two fail at rates and with
    weights of their own: as strata, each has the bounds that its own trials allow. Of the finished sessions each
    part gets its share of the scored ones.
    """
    if clear.sw <= 0.0:
        return (whole,)
    scale = whole.finished / whole.sw
    names = ("sw", "swt", "swf", "qw", "qt", "qtt", "qtf", "qff")
    rest = {name: getattr(whole, name) - getattr(clear, name) for name in names}
    looked = StratumTotals(finished=rest["sw"] * scale, share2=rest["qw"] * scale**2, **rest)
    passed = msgspec.structs.replace(clear, finished=clear.sw * scale, share2=clear.qw * scale**2)
    return (looked, passed) if looked.sw > 0.0 else (passed,)


def difference(a: Interval, b: Interval) -> Difference:
    """Compare two independent rates: a - b, with bounds by MOVER at the level of the two intervals."""
    if a.rate is None or b.rate is None:
        return Difference(value=None, low=-1.0, high=1.0)
    value = a.rate - b.rate
    return Difference(
        value=value,
        low=max(value - math.hypot(a.rate - a.low, b.high - b.rate), -1.0),
        high=min(value + math.hypot(a.high - a.rate, b.rate - b.low), 1.0),
    )


def enough_data(
    strata: Sequence[StratumTotals], *, min_share: float = MIN_SHARE, min_judged: float = MIN_JUDGED
) -> bool:
    """Say whether every stratum with at least `min_share` of the finished sessions has `min_judged` with trials.

    Judged sessions with trials are counted by Kish's formula, (sum w t)^2 / sum (w t)^2: equal to their number
    when they weigh the same, never above it, and computable from the exported sums.
    """
    finished = math.fsum(stratum.finished for stratum in strata)
    if finished <= 0.0:
        return False
    large = [stratum for stratum in strata if stratum.finished >= min_share * finished]
    # The tolerance takes up the rounding of the division: five equal sessions are five.
    return all(judged_with_trials(stratum) >= min_judged - 1e-9 for stratum in large)


def judged_with_trials(stratum: StratumTotals) -> float:
    """Count the judged sessions with trials of a stratum by Kish's formula; never above their true number."""
    return stratum.swt**2 / stratum.qtt if stratum.qtt > 0.0 else 0.0


def raw_rate(trials: float, failures: float) -> float | None:
    """Give the unweighted share of failures among judged trials: biased by the sampling, shown for comparison."""
    return failures / trials if trials > 0 else None


def jeffreys_low(p: float, n: float, z: float) -> float:
    """Give the lower Jeffreys bound of a proportion `p` seen in `n` trials; `n` need not be whole.

    Closed form: the Wilson-Hilferty approximation to the quantile of Beta(pn + 1/2, (1-p)n + 1/2). The upper bound
    is `1 - jeffreys_low(1 - p, n, z)`.
    """
    if p <= 0.0:
        return 0.0
    a = p * n + 0.5
    b = max(1.0 - p, 0.0) * n + 0.5
    c = 1.0 / (9.0 * a)
    d = 1.0 / (9.0 * b)
    top = max((1.0 - c) ** 2 - z * z * c, 0.0)
    root = max(c * (1.0 - d) ** 2 + d * (1.0 - c) ** 2 - z * z * c * d, 0.0)
    y = top / ((1.0 - c) * (1.0 - d) + z * math.sqrt(root))
    cube = a * y**3
    return min(p, cube / (cube + b))


class _View(msgspec.Struct, kw_only=True):
    """A stratum with its place in the whole: W (`weight`), tau (trials a session), p (`rate`)."""

    totals: StratumTotals
    trials: float
    weight: float
    rate: float


def _views(strata: Sequence[StratumTotals]) -> tuple[list[_View], float]:
    """Weight strata by the trials that their finished sessions have, and give T, the sum of those.

    No views mean that no rate can be told.
    """
    scored = math.fsum(stratum.sw for stratum in strata)
    if scored <= 0.0:
        return [], 0.0
    pooled = math.fsum(stratum.swt for stratum in strata) / scored
    trials = [_trials_per_session(stratum, pooled) for stratum in strata]
    expected = math.fsum(s.finished * tau for s, tau in zip(strata, trials, strict=True))
    known = math.fsum(s.finished * tau for s, tau in zip(strata, trials, strict=True) if s.swt > 0.0)
    if known <= 0.0:
        return [], 0.0
    # A stratum without trials is taken to fail like the others on average; its bounds stay 0 and 1.
    typical = math.fsum(
        s.finished * tau / known * (s.swf / s.swt) for s, tau in zip(strata, trials, strict=True) if s.swt > 0.0
    )
    views = [
        _View(
            totals=stratum,
            trials=tau,
            weight=stratum.finished * tau / expected,
            rate=min(stratum.swf / stratum.swt if stratum.swt > 0.0 else typical, 1.0),
        )
        for stratum, tau in zip(strata, trials, strict=True)
    ]
    return views, expected


def _trials_per_session(stratum: StratumTotals, pooled: float) -> float:
    if stratum.sw <= 0.0:
        return pooled
    if stratum.swt > 0.0:
        return stratum.swt / stratum.sw
    return 0.5 * stratum.qw / stratum.sw**2  # none seen yet: as if half a session had had one


class _Spread:
    """Sums over strata: squared distances to the bounds, sampling variance, and the share of the mix (`dd`)."""

    def __init__(self, rate: float, expected: float, z: float) -> None:
        self._rate = rate
        self._expected = expected
        self._z = z
        self.low = 0.0
        self.high = 0.0
        self.variance = 0.0
        self.mix = 0.0

    def add(self, view: _View) -> None:
        totals, p, weight = view.totals, view.rate, view.weight
        away = (p - self._rate) ** 2
        # Which sessions fell into which stratum is itself a sample of the process.
        many = totals.finished if totals.share2 is None else totals.share2
        self.mix += many * view.trials**2 * away / self._expected**2
        if totals.swt <= 0.0:
            self.low += (weight * p) ** 2
            self.high += (weight * (1.0 - p)) ** 2
            self.variance += (weight * p) ** 2
            return
        n = _effective_n(totals, p)
        self.low += (weight * (p - jeffreys_low(p, n, self._z))) ** 2
        self.high += (weight * (1.0 - jeffreys_low(1.0 - p, n, self._z) - p)) ** 2
        self.variance += weight**2 * p * (1.0 - p) / n
        self.mix += (totals.finished / self._expected) ** 2 * away * _trials_variance(totals, view.trials)


def _effective_n(totals: StratumTotals, p: float) -> float:
    """How many independent trials a stratum is worth, the design effect shrunk by one pseudo failing session."""
    most = totals.swt**2 / totals.qt
    least = totals.swt**2 / totals.qtt
    k = max(least, 2.0)
    residual = max(totals.qff - 2.0 * p * totals.qtf + p * p * totals.qtt, 0.0)
    variance = residual / totals.swt**2 * k / (k - 1.0)
    spread = p * (1.0 - p)
    # The second condition matters only where rounding leaves a variance at p = 1.
    n = least if variance <= _ZERO_VARIANCE or spread <= 0.0 else min(spread / variance, most)
    x = n * min(p, 1.0 - p)
    return most * (x + 1.0) / (x * most / n + most / least)


def _trials_variance(totals: StratumTotals, tau: float) -> float:
    """Variance of the estimated number of trials a session."""
    return max(totals.qtt - 2.0 * tau * totals.qt + tau * tau * totals.qw, 0.0) / totals.sw**2
