"""Honest rates from end to end: traffic with known truth, sampled by the default policy, judged, estimated (R7).

The census is the same judge on every finished session: what the weighted rate has to find, and the raw rate can't.
"""

from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import msgspec
import pytest

from monitor.config import Settings
from monitor.config import load as load_settings
from monitor.estimate import Interval
from monitor.judging.lexical import LexicalJudge
from monitor.replay import replay_events
from monitor.replay_summary import ReplaySummary
from monitor.rubrics import RUBRICS
from monitor.store import RubricCounts, Store
from monitor.traffic import SessionLabel, TrafficGenerator, TrafficPlan, true_rate
from tests.unit.sampling.policies import built_in

SEEDS = range(20)
SESSIONS = 600  # a seed, both versions together: twenty times 2,000 take three minutes
ASSISTANT = "assistant"


class Comparison(NamedTuple):
    """One version of one seed."""

    interval: Interval
    raw: float
    census: float
    true: float


def _settings(versions: list[str]) -> Settings:
    return load_settings(overrides={"sampling.assistants": {ASSISTANT: versions}})


def _events(traffic: TrafficGenerator) -> Iterator[bytes]:
    """Give the traffic as of one assistant, so that a version is one group."""
    for delivery in traffic.deliveries(1_790_000_000.0):
        event = delivery.event
        yield msgspec.json.encode(event | {"assistant": ASSISTANT} if event["type"] == "turn" else event)


async def _compare(seed: int, folder: Path) -> tuple[ReplaySummary, list[Comparison]]:
    plan = TrafficPlan(sessions=SESSIONS)
    versions = [release.version for release in plan.releases]
    traffic = TrafficGenerator(seed, plan)
    counts = {
        name: RubricCounts(measures=rubric.measures, scores=rubric.scores) for name, rubric in RUBRICS.items()
    }
    store = Store.open(f"sqlite:///{folder}/{seed}.sqlite", rubrics=counts)
    try:
        summary = await replay_events(
            _events(traffic),
            _settings(versions),
            built_in("correction"),
            store,
            LexicalJudge(),
            salt=f"seed {seed}".encode(),
            census=True,
        )
    finally:
        store.close()
    labels = list(traffic.labels())
    return summary, [_comparison(summary, labels, version) for version in versions]


def _comparison(summary: ReplaySummary, labels: list[SessionLabel], version: str) -> Comparison:
    rate = next(row for row in summary.rates if (row.assistant_version, row.measure) == (version, "reverted"))
    census = next(
        row for row in summary.census or () if (row.assistant_version, row.measure) == (version, "reverted")
    )
    true = true_rate(labels, version)
    assert rate.raw is not None
    assert census.rate is not None
    assert true is not None
    return Comparison(rate.interval, rate.raw, census.rate, true)


@pytest.mark.timeout(600)
async def test_the_weighted_interval_holds_the_census_and_the_raw_rate_does_not(tmp_path: Path) -> None:
    found: list[Comparison] = []
    for seed in SEEDS:
        summary, comparisons = await _compare(seed, tmp_path)
        assert summary.finished == SESSIONS
        assert summary.census_unscored == 0
        found += comparisons
    held = sum(one.interval.low <= one.census <= one.interval.high for one in found)
    raw = fmean(one.raw - one.census for one in found)
    weighted = fmean((one.interval.rate or 0.0) - one.census for one in found)
    judge = fmean(one.census - one.true for one in found)
    width = fmean(one.interval.high - one.interval.low for one in found)
    print(
        f"\n{held} of {len(found)} intervals hold the census (mean width {width:.3f}); raw - census {raw:+.4f}, "
        f"weighted - census {weighted:+.4f}, census - true {judge:+.4f}"
    )
    assert held >= 36
    assert raw > 0.03
    assert abs(weighted) < raw / 2
