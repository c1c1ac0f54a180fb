"""The quality metrics, rendered from the store at each scrape (R4).

Nothing is counted here: a scrape reads one snapshot of the totals, so a restart resets nothing and `/metrics`
agrees with the store to the last unit. Weights become real numbers by 1/16, second moments by 1/256, sums of
scores by 1e-6. While the store can't be read, or its totals are being rebuilt, there are no quality families at
all: a missing series is honest, a wrong one is not.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Final, TypeAlias

import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from monitor.agreement import counted_kappa
from monitor.errors import StoreError
from monitor.metrics import CATALOGUE, QUALITY, Metric
from monitor.rubrics import RUBRICS
from monitor.store import Store, TotalKey, Totals
from monitor.store.ledger import COMPARED, INF, MILLION, SUM, bucket

Family: TypeAlias = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily
Labels: TypeAlias = tuple[str, ...]
Named: TypeAlias = Mapping[str, list[tuple[TotalKey, int]]]

# Units of the stored whole numbers, by the beginning of the metric's name; everything else is in ones.
_UNITS: Final = {"weight2": 256, "weighted": 16}
_LOG = structlog.get_logger(__name__)


class QualityCollector(Collector):
    """Renders the quality catalogue from a store's totals. `clock` gives Unix seconds, for the age of jobs."""

    def __init__(self, store: Store, *, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock

    def describe(self) -> Iterable[Family]:
        """Give nothing: a registry that asks for names must not read the store."""
        return ()

    def collect(self) -> Iterator[Family]:
        """Give `store_up`, and the quality families when the totals can be trusted."""
        try:
            totals = self._store.totals()
        except StoreError as error:
            _LOG.warning("store_unreadable", error=str(error))
            yield _gauge("store_up", {(): 0.0})
            return
        yield _gauge("store_up", {(): 1.0})
        if not totals.rebuilding:
            yield from families(totals, self._clock())


class Exposition:
    """The text that a scrape gets, in the format that it asks for."""

    def __init__(self, store: Store, *, clock: Callable[[], float] = time.time) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(QualityCollector(store, clock=clock))

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """Render all families; gives the body and its content type."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type


def families(totals: Totals, now: float) -> Iterator[Family]:
    """Render every quality family from totals; `now` in Unix seconds."""
    named: dict[str, list[tuple[TotalKey, int]]] = defaultdict(list)
    for key, value in totals.sums.items():
        named[key.name].append((key, value))
    gauges = _gauges(totals, named, now)
    for metric in QUALITY:
        if metric.kind == "counter":
            yield _counter(metric, named[metric.name])
        elif metric.kind == "histogram":
            yield _histogram(metric, named[metric.name])
        else:
            yield _gauge(metric.name, gauges[metric.name])


def _counter(metric: Metric, sums: Iterable[tuple[TotalKey, int]]) -> Family:
    family = CounterMetricFamily(metric.full_name, metric.help, labels=metric.labels)
    unit = _UNITS.get(metric.name.split("_", 1)[0], 1)
    for key, value in sums:
        family.add_metric(_labels(metric, key), value / unit)
    return family


def _gauges(totals: Totals, named: Named, now: float) -> dict[str, dict[Labels, float]]:
    # Every rubric and stratum that ever listed a job, so that a series goes back to 0 instead of vanishing.
    pending: dict[Labels, float] = {
        (*mode_of(key.rubric), key.stratum): 0.0 for key, _ in named.get("jobs_listed", ())
    }
    pending |= {(*mode_of(rubric), stratum): float(n) for (rubric, stratum), n in totals.pending.items()}
    oldest = totals.oldest_pending
    share, kappa = _self_agreement(named.get("judge_repeats", ()))
    return {
        "judge_agreement_ratio": share,
        "judge_agreement_kappa": kappa,
        "jobs_pending": pending,
        "oldest_pending_job_seconds": {(): 0.0 if oldest is None else max(now - oldest / 1000, 0.0)},
        "store_generation_info": {(str(totals.generation),): 1.0},
        "stratum_rate_ratio": {(stratum,): rate for stratum, rate in totals.rates.items()},
    }


def _self_agreement(
    repeats: Iterable[tuple[TotalKey, int]],
) -> tuple[dict[Labels, float], dict[Labels, float]]:
    """Give share of agreement and kappa by rubric, measure and judge, where any two judgements were compared.

    Kappa beside the share, since the share alone is high wherever failures are rare, whatever the judge does.
    """
    pairs: dict[Labels, dict[tuple[Hashable, Hashable], int]] = defaultdict(dict)
    for key, count in repeats:
        if count and key.detail in COMPARED:
            pairs[*mode_of(key.rubric), key.measure, key.judge][COMPARED[key.detail]] = count
    share = {
        labels: sum(count for (one, other), count in found.items() if one == other) / sum(found.values())
        for labels, found in pairs.items()
    }
    kappas = {labels: counted_kappa(found) for labels, found in pairs.items()}
    return share, {labels: value for labels, value in kappas.items() if value is not None}


def _gauge(name: str, values: Mapping[Labels, float]) -> Family:
    metric = CATALOGUE[name]
    family = GaugeMetricFamily(metric.full_name, metric.help, labels=metric.labels)
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family


def _histogram(metric: Metric, sums: Iterable[tuple[TotalKey, int]]) -> Family:
    family = HistogramMetricFamily(metric.full_name, metric.help, labels=metric.labels)
    series: dict[Labels, dict[str, int]] = defaultdict(dict)
    for key, value in sums:
        series[_labels(metric, key)][key.detail] = value
    for labels, parts in series.items():
        family.add_metric(labels, _cumulative(metric, parts), parts.get(SUM, 0) / MILLION)
    return family


def _cumulative(metric: Metric, parts: Mapping[str, int]) -> list[tuple[str, float]]:
    buckets: list[tuple[str, float]] = []
    count = 0
    for bound in (*map(bucket, metric.buckets), INF):
        count += parts.get(bound, 0)
        buckets.append((bound, count))
    return buckets


def mode_of(rubric: str) -> tuple[str, str]:
    """Give the name and the mode under which a rubric is shown; an unknown one has no mode.

    A rubric named after its mode, as `correction_whole` is, shows as the mode of the one that it is named after.
    """
    known = RUBRICS.get(rubric)
    return (rubric, "") if known is None else (rubric.removesuffix(f"_{known.mode}"), known.mode)


def _labels(metric: Metric, key: TotalKey) -> Labels:
    """Take a metric's labels from a key, whose detail is a reason or agreement, a histogram's own its measure."""
    rubric, mode = mode_of(key.rubric)
    places = {**key._asdict(), "rubric": rubric, "mode": mode, "screen": key.judge}
    places |= dict.fromkeys(("reason", "agreement", "finding"), key.detail)
    return tuple(places.get(label, key.measure) for label in metric.labels)
