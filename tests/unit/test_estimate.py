"""R7: the interval holds, and says what it should at the edges."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.estimate import HARDER, STANDARD, run_cell, verdicts
from monitor.estimate import (
    NO_DATA,
    Z_95,
    Z_PAGE,
    Z_TICKET,
    Interval,
    StratumTotals,
    difference,
    enough_data,
    interval,
    jeffreys_low,
    judged_with_trials,
    parts,
    raw_rate,
)

SUMS = ("sw", "swt", "swf", "qw", "qt", "qtt", "qtf", "qff")


def totals(sessions: list[tuple[int, int, float]], finished: float | None = None) -> StratumTotals:
    """Totals of sessions given as (trials, failures, weight)."""
    return StratumTotals(
        finished=finished if finished is not None else sum(w for _, _, w in sessions),
        sw=sum(w for _, _, w in sessions),
        swt=sum(w * t for t, _, w in sessions),
        swf=sum(w * f for _, f, w in sessions),
        qw=sum(w * w for _, _, w in sessions),
        qt=sum(w * w * t for t, _, w in sessions),
        qtt=sum((w * t) ** 2 for t, _, w in sessions),
        qtf=sum(w * w * t * f for t, f, w in sessions),
        qff=sum((w * f) ** 2 for _, f, w in sessions),
    )


@st.composite
def session_lists(draw: st.DrawFn) -> list[tuple[int, int, float]]:
    weight16 = draw(st.integers(16, 16_000))
    rows = draw(st.lists(st.tuples(st.integers(0, 40), st.floats(0, 1)), max_size=30))
    return [(t, round(t * share), weight16 / 16) for t, share in rows]


@st.composite
def strata(draw: st.DrawFn) -> StratumTotals:
    sessions = draw(session_lists())
    extra = draw(st.integers(0, 1_000))
    return totals(sessions, finished=sum(w for *_, w in sessions) + extra)


levels = st.sampled_from([1.0, 1.6448536269514722, Z_95, Z_TICKET, Z_PAGE])


@settings(deadline=None)
@given(st.lists(strata(), max_size=6), levels)
def test_bounds_are_ordered_and_within_zero_and_one(groups: list[StratumTotals], z: float) -> None:
    got = interval(groups, z)
    assert 0.0 <= got.alert <= got.low <= got.high <= 1.0
    assert got.effective_n >= 0.0
    if got.rate is not None:
        assert got.low <= got.rate <= got.high


@settings(deadline=None)
@given(st.lists(strata(), max_size=6))
def test_there_is_a_rate_exactly_when_a_trial_was_seen(groups: list[StratumTotals]) -> None:
    assert (interval(groups, Z_95).rate is not None) == any(group.swt > 0 for group in groups)


@settings(deadline=None)
@given(st.lists(strata(), min_size=1, max_size=4))
def test_a_higher_level_is_never_narrower(groups: list[StratumTotals]) -> None:
    wide, narrow = interval(groups, Z_PAGE), interval(groups, Z_95)
    assert wide.low <= narrow.low + 1e-12
    assert wide.high >= narrow.high - 1e-12
    assert wide.alert <= narrow.alert + 1e-12


@settings(deadline=None)
@given(st.lists(strata(), min_size=1, max_size=4), st.floats(1.0, 1e6))
def test_an_unjudged_stratum_contributes_zero_to_one_and_never_nothing(
    groups: list[StratumTotals], finished: float
) -> None:
    without = interval(groups, Z_95)
    got = interval([*groups, StratumTotals(finished=finished)], Z_95)
    if without.rate is None:
        assert got == without
        return
    assert got.rate is not None
    pooled = sum(g.swt for g in groups) / sum(g.sw for g in groups)
    share = finished * pooled / (finished * pooled + _expected(groups, pooled))
    assert got.rate == pytest.approx(without.rate, abs=1e-9)  # it is taken to be like the others ...
    # ... and may yet be anything, so the interval reaches at least its share both ways.
    assert got.low <= max(got.rate - share * got.rate, 0.0) + 1e-9
    assert got.high >= min(got.rate + share * (1 - got.rate), 1.0) - 1e-9


def _expected(groups: list[StratumTotals], pooled: float) -> float:
    def trials(g: StratumTotals) -> float:
        if g.sw == 0:
            return pooled
        return g.swt / g.sw if g.swt > 0 else 0.5 * g.qw / g.sw**2

    return sum(g.finished * trials(g) for g in groups)


@settings(deadline=None)
@given(st.lists(strata(), max_size=5), st.floats(0.01, 100.0))
def test_the_scale_of_the_weights_does_not_matter(groups: list[StratumTotals], k: float) -> None:
    """Only ratios of weights count: N alone says how many sessions there are."""
    scaled = [
        StratumTotals(
            finished=g.finished,
            sw=g.sw * k,
            swt=g.swt * k,
            swf=g.swf * k,
            qw=g.qw * k * k,
            qt=g.qt * k * k,
            qtt=g.qtt * k * k,
            qtf=g.qtf * k * k,
            qff=g.qff * k * k,
        )
        for g in groups
    ]
    assert_close(interval(groups, Z_95), interval(scaled, Z_95))


@settings(deadline=None)
@given(st.lists(strata(), max_size=5))
def test_the_order_of_strata_does_not_matter(groups: list[StratumTotals]) -> None:
    assert_close(interval(groups, Z_95), interval(groups[::-1], Z_95))


@settings(deadline=None)
@given(st.lists(strata(), max_size=5))
def test_an_empty_stratum_changes_nothing(groups: list[StratumTotals]) -> None:
    assert_close(interval(groups, Z_95), interval([*groups, StratumTotals(finished=0)], Z_95))


def assert_close(a: Interval, b: Interval) -> None:
    if a.rate is None or b.rate is None:
        assert a.rate is b.rate is None
        return
    for name in ("rate", "low", "high", "alert"):
        assert getattr(a, name) == pytest.approx(getattr(b, name), rel=1e-6, abs=1e-7), name


def test_no_data_has_no_rate() -> None:
    nothing_failed_since_nothing_was_tried = totals([(0, 0, 20.0)] * 9)
    for groups in (
        [],
        [StratumTotals(finished=0)],
        [StratumTotals(finished=900)],
        [nothing_failed_since_nothing_was_tried],
    ):
        assert interval(groups, Z_95) == NO_DATA
    assert NO_DATA.rate is None


def test_a_certain_sample_of_one_stratum_is_a_plain_jeffreys_interval() -> None:
    """One trial a session, all weights equal: the effective n is the number of sessions, up to the correction."""
    got = interval([totals([(1, 1, 1.0)] * 10 + [(1, 0, 1.0)] * 90)], Z_95)
    assert got.rate == pytest.approx(0.1)
    assert got.low == pytest.approx(jeffreys_low(0.1, 100, Z_95), abs=1e-3)
    assert got.high == pytest.approx(1 - jeffreys_low(0.9, 100, Z_95), abs=1e-3)


@pytest.mark.parametrize(
    ("failures", "trials", "low"),
    [
        # 2.5 % quantiles of Beta(x + 1/2, n - x + 1/2), from tables of the Jeffreys interval.
        (1, 10, 0.01101),
        (5, 10, 0.22352),
        (10, 100, 0.05223),
    ],
)
def test_the_jeffreys_bound_approximates_the_beta_quantile(failures: int, trials: int, low: float) -> None:
    assert jeffreys_low(failures / trials, trials, Z_95) == pytest.approx(low, abs=2e-3)


@settings(deadline=None)
@given(st.floats(0, 1), st.floats(0.5, 1e7), levels)
def test_the_jeffreys_bound_lies_at_or_below_the_proportion(p: float, n: float, z: float) -> None:
    assert 0.0 <= jeffreys_low(p, n, z) <= p


def test_nothing_failed_gives_no_alert_but_an_upper_bound() -> None:
    got = interval([totals([(2, 0, 20.0)] * 50)], Z_95)
    assert (got.rate, got.low, got.alert) == (0.0, 0.0, 0.0)
    assert 0.01 < got.high < 0.1


def test_failures_that_come_together_widen_the_interval() -> None:
    together = totals([(4, 4, 20.0)] * 10 + [(4, 0, 20.0)] * 90)
    spread = totals([(4, 1, 20.0)] * 40 + [(4, 0, 20.0)] * 60)
    a, b = interval([together], Z_95), interval([spread], Z_95)
    assert a.rate == b.rate == pytest.approx(0.1)
    assert a.high - a.low > 1.5 * (b.high - b.low)


def test_the_rate_weighs_strata_by_their_finished_sessions_and_not_by_what_was_scored() -> None:
    hard = totals([(1, 1, 1.0)] * 50 + [(1, 0, 1.0)] * 50, finished=100)
    # Half of the base sample is unscored: its sums are short, its N isn't.
    base = totals([(1, 0, 20.0)] * 20, finished=900)
    got = interval([hard, base], Z_95)
    assert got.rate == pytest.approx(0.5 * 100 / 1_000)


def test_the_difference_of_rates_contains_zero_for_equal_and_not_for_far_ones() -> None:
    low = interval([totals([(1, 1, 1.0)] * 20 + [(1, 0, 1.0)] * 980)], Z_95)
    high = interval([totals([(1, 1, 1.0)] * 90 + [(1, 0, 1.0)] * 910)], Z_95)
    same = difference(low, low)
    assert same.value == 0.0
    assert same.low < 0.0 < same.high
    worse = difference(high, low)
    assert worse.value == pytest.approx(0.07)
    assert 0.0 < worse.low < 0.07 < worse.high
    back = difference(low, high)
    assert back.low == pytest.approx(-worse.high)
    assert back.high == pytest.approx(-worse.low)
    assert difference(low, NO_DATA).value is None


def test_too_little_data_is_said_so() -> None:
    five, four = [(1, 0, 20.0)] * 5, [(1, 0, 20.0)] * 4
    tiny = StratumTotals(finished=4)
    assert enough_data([totals(five, finished=96), tiny])  # 4 % of the sessions: may lack data
    assert not enough_data([totals(four, finished=96), tiny])
    assert not enough_data([totals(five, finished=90), StratumTotals(finished=10)])
    assert not enough_data([totals(five + [(0, 0, 20.0)] * 90, finished=50), totals(four, finished=50)])
    assert not enough_data([])
    assert not enough_data([StratumTotals(finished=0)])


@settings(deadline=None)
@given(session_lists())
def test_sessions_with_trials_are_never_counted_high(sessions: list[tuple[int, int, float]]) -> None:
    with_trials = sum(t > 0 for t, _, _ in sessions)
    assert judged_with_trials(totals(sessions)) <= with_trials + 1e-9


def test_the_raw_rate_is_plain_division() -> None:
    assert raw_rate(8, 2) == 0.25
    assert raw_rate(0, 0) is None


@pytest.mark.parametrize(("sessions", "true_rate"), [(300, 0.055), (2_000, 0.02), (2_000, 0.055), (20_000, 0.055)])
def test_acceptance_in_the_standard_setting(sessions: int, true_rate: float) -> None:
    """Acceptance 1 and 2: coverage, one-sided misses, bias of the weighted and of the raw rate."""
    histories = 2_500
    cell = run_cell(STANDARD, sessions, true_rate, histories, seed=7)
    assert verdicts(cell, slack=3 * math.sqrt(0.05 * 0.95 / histories)) == []


@pytest.mark.parametrize("setting", HARDER, ids=lambda setting: setting.name)
def test_acceptance_in_harder_settings(setting: object) -> None:
    """Acceptance 1: at least .925 from 1,000 sessions on."""
    histories = 1_000
    cell = run_cell(setting, 1_000, 0.055, histories, seed=11)  # type: ignore[arg-type]
    assert verdicts(cell, slack=3 * math.sqrt(0.05 * 0.95 / histories)) == []


def test_a_screened_stratum_is_cut_into_two_that_add_up_to_it() -> None:
    passed = totals([(0, 0, 10.0)] * 30 + [(40, 20, 10.0)], finished=0)
    looked = totals([(2, 1, 10.0)] * 20, finished=0)
    whole = StratumTotals(finished=510, **{name: getattr(passed, name) + getattr(looked, name) for name in SUMS})
    one, other = parts(whole, passed)
    assert other.finished == pytest.approx(310)
    assert one.finished + other.finished == pytest.approx(510)
    for name in SUMS:
        assert getattr(one, name) + getattr(other, name) == pytest.approx(getattr(whole, name))
    # How many sessions fell into each is known from the 51 scored ones alone.
    assert one.share2 == pytest.approx(20 * 10**2)
    both, known = interval([one, other], Z_95), interval([whole], Z_95)
    assert both.rate == pytest.approx(known.rate)


def test_without_a_screen_a_stratum_stays_whole() -> None:
    whole = totals([(2, 1, 10.0)] * 20, finished=200)
    assert parts(whole, StratumTotals(finished=0)) == (whole,)
    (only,) = parts(whole, msgspec.structs.replace(whole, finished=0))
    assert only.finished == pytest.approx(200)
    assert only.swt == whole.swt
