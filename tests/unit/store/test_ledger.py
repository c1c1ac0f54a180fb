"""R3: what one session adds, as whole numbers that divide back into the sums of the estimates."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.judgement import Outcomes, Stage, Tally, Unscored
from monitor.metrics import CATALOGUE
from monitor.store import TotalKey
from monitor.store.ledger import (
    COIN,
    MAX_ADDEND,
    SESSION_SUMS,
    add,
    counts_of,
    histogram_sums,
    moved,
    session_sums,
)
from tests.unit.store.builders import judgement


@given(st.integers(16, 2**20), st.integers(0, 64).flatmap(lambda t: st.tuples(st.just(t), st.integers(0, t))))
def test_sums_are_exact_in_sixteenths(weight16: int, tally: tuple[int, int]) -> None:
    trials, failures = tally
    w, t, f = Fraction(weight16, 16), Fraction(trials), Fraction(failures)
    got = dict(zip(SESSION_SUMS, session_sums(weight16, trials, failures), strict=True))

    assert all(isinstance(value, int) and 0 <= value <= MAX_ADDEND for value in got.values())
    assert (got["judged_trials"], got["judged_failures"], got["scored_sessions"]) == (trials, failures, 1)
    assert Fraction(got["weighted_sessions"], 16) == w
    assert Fraction(got["weighted_trials"], 16) == w * t
    assert Fraction(got["weighted_failures"], 16) == w * f
    assert Fraction(got["weight2"], 256) == w**2
    assert Fraction(got["weight2_trials"], 256) == w**2 * t
    assert Fraction(got["weight2_trials2"], 256) == (w * t) ** 2
    assert Fraction(got["weight2_trials_failures"], 256) == w**2 * t * f
    assert Fraction(got["weight2_failures2"], 256) == (w * f) ** 2


STAGES = st.integers(1, 12).flatmap(
    lambda judged: st.builds(Stage, judged=st.just(judged), found=st.integers(judged, 40))
)


@given(st.integers(16, 2**14), st.integers(0, 12), st.integers(0, 12), STAGES, st.integers(0, COIN - 1))
def test_a_second_stage_is_multiplied_in(weight16: int, trials: int, failed: int, stage: Stage, coin: int) -> None:
    failures = min(failed, trials)
    got = dict(zip(SESSION_SUMS, session_sums(weight16, trials, failures, stage, coin), strict=True))
    factor = Fraction(stage.found, stage.judged)

    assert (got["judged_trials"], got["judged_failures"]) == (trials, failures)
    assert got["weighted_sessions"] == weight16
    assert abs(got["weighted_trials"] - weight16 * trials * factor) < 1
    assert abs(got["weighted_failures"] - weight16 * failures * factor) < 1
    assert got["weighted_failures"] <= got["weighted_trials"]
    assert got["weight2_trials2"] == got["weighted_trials"] ** 2
    if stage.found == stage.judged:
        assert got["weighted_trials"] == weight16 * trials


@given(st.integers(16, 320), st.integers(1, 6), STAGES)
def test_rounding_a_second_stage_is_right_on_average(weight16: int, trials: int, stage: Stage) -> None:
    # Over all values of a coin with as many sides as the fraction has parts, the mean is exact.
    sums = [
        session_sums(weight16, trials, 0, stage, side * COIN // stage.judged + 1)[4]
        for side in range(stage.judged)
    ]
    assert Fraction(sum(sums), stage.judged) == weight16 * trials * Fraction(stage.found, stage.judged)


def test_more_judged_than_found_is_refused() -> None:
    tallied = Outcomes(measures={"reverted": Tally(trials=1, failures=1)}, stage=Stage(found=1, judged=2))
    with pytest.raises(ValueError, match="2 judged of 1 found"):
        counts_of(judgement(outcomes=tallied), ("reverted",))


def test_every_sum_is_a_counter_of_the_catalogue() -> None:
    labels = CATALOGUE["weighted_sessions"].labels
    assert all((CATALOGUE[name].kind, CATALOGUE[name].labels) == ("counter", labels) for name in SESSION_SUMS)


def test_a_sum_that_can_not_be_added_up_is_refused() -> None:
    with pytest.raises(ValueError, match="too large to be summed"):
        session_sums(2**28, 2, 0)


@given(st.lists(st.floats(0, 1)))
def test_a_histogram_counts_every_value_once(values: list[float]) -> None:
    sums: dict[str, int] = {}
    for detail, count in histogram_sums("correction_response_score", values):
        sums[detail] = sums.get(detail, 0) + count
    assert sums.pop("sum") == sum(round(value * 1_000_000) for value in values)
    assert sum(sums.values()) == len(values)
    for bound in CATALOGUE["correction_response_score"].buckets:
        below = sum(count for detail, count in sums.items() if float(detail) <= bound)
        assert below == sum(value <= bound for value in values)


def test_measures_without_a_trial_are_there_and_unscored_has_none() -> None:
    counts = counts_of(judgement(trials=3, failures=1), ("reverted", "ignored"))
    assert counts.measures == {"reverted": (3, 1), "ignored": (0, 0)}
    tallied = Outcomes(measures={"reverted": Tally(trials=1, failures=1)})
    assert counts_of(judgement(result=Unscored(reason="error"), outcomes=tallied), ("reverted",)).measures == {}


@given(st.lists(st.integers(0, 100)))
def test_taking_back_undoes_adding(values: list[int]) -> None:
    changes = [(TotalKey("verdicts", str(value % 3)), value) for value in values]
    sums: dict[TotalKey, int] = {}
    add(sums, changes)
    add(sums, changes, -1)
    assert moved(sums) == {}
