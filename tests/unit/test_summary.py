"""The table over the list: the same numbers as the estimator's, from the same totals."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.estimate import Z_95, Interval, StratumTotals, interval
from monitor.store import Store
from monitor.summary import VersionSummary, choices, scale, summaries
from tests.unit.store.builders import RUBRICS, decision, judgement, policy, unscored


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(f"sqlite:///{tmp_path}/store.sqlite", rubrics=RUBRICS)
    yield opened
    opened.close()


def test_rates_are_weighted_by_the_stored_probability(store: Store) -> None:
    """Base: 10 finished, 1 judged at 0.1, passed. Corrected: 2 finished, both judged, both failed."""
    store.record([policy("base", "corrected")])
    store.record([decision(f"b{index}", weight16=160, selected=index == 0) for index in range(10)])
    store.record([decision(f"c{index}", weight16=16, stratum="corrected") for index in range(2)])
    store.record([judgement("b0", trials=1, failures=0), *(judgement(f"c{i}", trials=1) for i in range(2))])

    (row,) = summaries(store.totals(), "reverted")

    base = StratumTotals(finished=10, sw=10, swt=10, qw=100, qt=100, qtt=100)
    corrected = StratumTotals(finished=2, sw=2, swt=2, swf=2, qw=2, qt=2, qtt=2, qtf=2, qff=2)
    assert row.interval == interval([base, corrected], Z_95)
    assert row.raw == pytest.approx(2 / 3)
    assert row.interval.rate == pytest.approx(2 / 12)
    assert (row.finished, row.judged, row.trials, row.unscored) == (12, 3, 3, 0.0)
    assert not row.enough


def test_the_unscored_share_is_weighted(store: Store) -> None:
    store.record([decision("a", weight16=16), judgement("a"), decision("b", weight16=48), unscored("b")])
    (row,) = summaries(store.totals(), "reverted")
    assert row.unscored == 0.75


def test_versions_without_finished_sessions_are_left_out(store: Store) -> None:
    store.record([policy()])
    assert summaries(store.totals(), "reverted") == ()


def test_a_version_that_is_not_judged_yet_has_no_rate(store: Store) -> None:
    store.record([policy(), decision()])
    (row,) = summaries(store.totals(), "reverted")
    assert (row.interval.rate, row.interval.low, row.interval.high, row.raw) == (None, 0.0, 1.0, None)


def test_choices_are_the_labels_that_are_there(store: Store) -> None:
    store.record([policy("base", "corrected")])
    found = choices(store.totals())
    assert found.strata == ("base", "corrected")
    assert found.measures == ("ignored", "reverted")
    assert found.assistant_versions == ("other", "v1")


@given(st.lists(st.floats(0, 1), min_size=1, max_size=5))
def test_the_axis_holds_every_interval(highs: list[float]) -> None:
    rows = tuple(
        VersionSummary(
            rubric="r",
            judge="j",
            assistant="a",
            assistant_version="v",
            finished=1,
            judged=1,
            trials=1,
            raw=None,
            interval=Interval(rate=high / 2, low=0.0, high=high, alert=0.0, effective_n=1.0),
            enough=True,
            unscored=0.0,
        )
        for high in highs
    )
    assert max(highs) * 0.999 <= scale(rows) <= 1
