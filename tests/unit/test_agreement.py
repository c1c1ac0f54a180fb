"""Agreement figures against their definitions, worked examples and invariants."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor import agreement

LABELS = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("abc")), min_size=1, max_size=40)
SCORED = st.lists(st.tuples(st.booleans(), st.integers(0, 5)), min_size=1, max_size=40)


def test_kappa_of_a_worked_example() -> None:
    # 20 yes-yes, 5 yes-no, 10 no-yes, 15 no-no: agreement 0.7, chance 0.5.
    truth = ["y"] * 25 + ["n"] * 25
    said = ["y"] * 20 + ["n"] * 5 + ["y"] * 10 + ["n"] * 15
    assert agreement.kappa(truth, said) == pytest.approx(0.4)
    assert agreement.accuracy(truth, said) == pytest.approx(0.7)


def test_weighted_kappa_of_a_worked_example() -> None:
    # Squared distances: 2 over the four rows, 22 over the sixteen pairs that chance would make.
    assert agreement.weighted_kappa([1, 2, 3, 3], [1, 3, 3, 2]) == pytest.approx(1 - (2 / 4) / (22 / 16))
    assert agreement.weighted_kappa([1, 2, 3], [1, 2, 3]) == 1.0
    assert agreement.weighted_kappa([1, 3], [3, 1]) == -1.0


@given(LABELS)
def test_agreement_with_oneself_is_perfect(pairs: list[tuple[str, str]]) -> None:
    truth = [a for a, _ in pairs]
    assert agreement.accuracy(truth, truth) == agreement.macro_f1(truth, truth) == 1.0
    assert agreement.balanced_accuracy(truth, truth) == 1.0
    assert agreement.kappa(truth, truth) in {None, 1.0}


@given(LABELS)
def test_kappa_is_symmetric_and_at_most_one(pairs: list[tuple[str, str]]) -> None:
    truth, said = [a for a, _ in pairs], [b for _, b in pairs]
    value = agreement.kappa(truth, said)
    if value is not None:
        assert value == pytest.approx(agreement.kappa(said, truth) or 0.0, abs=1e-12)
        assert value <= 1.0


@given(SCORED)
def test_auc_is_the_share_of_pairs_in_order(rows: list[tuple[bool, int]]) -> None:
    positive, score = [a for a, _ in rows], [float(b) for _, b in rows]
    pairs = [(up, down) for good, up in rows if good for bad, down in rows if not bad]
    if not pairs:
        assert agreement.auc(positive, score) is None
        return
    wins = sum(1.0 if up > down else 0.5 if up == down else 0.0 for up, down in pairs)
    assert agreement.auc(positive, score) == pytest.approx(wins / len(pairs))


def test_spearman_takes_ties_at_their_mean_rank() -> None:
    # Ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4.
    assert agreement.spearman([1, 2, 2, 3], [10, 20, 30, 40]) == pytest.approx(4.5 / math.sqrt(4.5 * 5))
    assert agreement.spearman([1, 1], [1, 2]) is None
    assert agreement.spearman([3, 2, 1], [1, 2, 3]) == -1.0


def test_recall_and_precision() -> None:
    truth, said = [True, True, True, False], [True, False, False, True]
    assert agreement.recall(truth, said) == pytest.approx(1 / 3)
    assert agreement.precision(truth, said) == pytest.approx(1 / 2)
    assert agreement.recall([False], [True]) is None


def test_macro_f1_counts_only_classes_that_are_true_somewhere() -> None:
    # a: one hit, one miss; b: one hit, one false alarm; c is never true.
    assert agreement.macro_f1(["a", "a", "b"], ["a", "b", "b"]) == pytest.approx((2 / 3 + 2 / 3) / 2)
    assert agreement.macro_f1(["a"], ["c"]) == 0.0


def test_a_bootstrap_draws_whole_sources() -> None:
    # Two sources of fifty equal rows: a share can only come out as 0, a half or 1.
    rows = [("x", 1.0)] * 50 + [("y", 0.0)] * 50
    seen: set[float] = set()

    def mean(drawn: Sequence[tuple[str, float]]) -> float:
        value = sum(value for _, value in drawn) / len(drawn)
        seen.add(value)
        return value

    found = agreement.bootstrap(rows, lambda row: row[0], mean, resamples=200)
    assert seen == {0.0, 0.5, 1.0}
    assert (found.value, found.low, found.high) == (0.5, 0.0, 1.0)


def test_a_bootstrap_interval_narrows_with_more_sources() -> None:
    rows = [(source, float(source % 2)) for source in range(400)]
    found = agreement.bootstrap(rows, lambda row: row[0], lambda drawn: sum(v for _, v in drawn) / len(drawn))
    assert found.low is not None
    assert found.high is not None
    # Theory: 0.5 -+ 1.96 * sqrt(0.25 / 400) = 0.451 to 0.549.
    assert found.low == pytest.approx(0.451, abs=0.01)
    assert found.high == pytest.approx(0.549, abs=0.01)


def test_one_source_has_no_interval() -> None:
    found = agreement.bootstrap([1.0, 2.0], lambda _: "one", sum)
    assert found == agreement.Estimate(value=3.0, low=None, high=None)


def test_confusion_counts_rows() -> None:
    table = agreement.confusion(["a", "a", "b"], ["a", "b", "b"])
    assert {truth: dict(row) for truth, row in table.items()} == {"a": {"a": 1, "b": 1}, "b": {"b": 1}}
