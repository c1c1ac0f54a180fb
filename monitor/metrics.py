"""Every metric, declared once: name, kind, help, labels, buckets. Names here have no `backslide_` prefix.

From this catalogue come the client objects of each process (`Meters`), the families that the exporter renders
from the store, and docs/metrics.md. Label values come from closed sets; ids are never labels.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, TypeAlias, TypeVar

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.metrics import MetricWrapperBase

_T = TypeVar("_T")
Kind: TypeAlias = Literal["counter", "gauge", "histogram"]

PREFIX: Final = "backslide_"


class Metric(msgspec.Struct, kw_only=True, frozen=True):
    """One metric family. A counter's `name` comes without `_total`."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    @property
    def full_name(self) -> str:
        """The family's name as the client library takes it."""
        return PREFIX + self.name


QUALITY_LABELS: Final = ("rubric", "mode", "measure", "judge", "assistant", "assistant_version", "stratum")
FRAME_LABELS: Final = ("rubric", "mode", "assistant", "assistant_version", "stratum")
JUDGE_LABELS: Final = ("rubric", "mode", "judge", "assistant", "assistant_version", "stratum")
AGREEMENT_LABELS: Final = ("rubric", "mode", "measure", "judge")
SCREEN_LABELS: Final = ("rubric", "mode", "measure", "screen", "finding")
SCORE_BUCKETS: Final = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
SHARE_BUCKETS: Final = (0.0, 0.25, 0.5, 0.75, 1.0)
CRITERION_BUCKETS: Final = (1.0, 2.0, 3.0, 4.0, 5.0)
JUDGE_SECONDS: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0)


def _counter(name: str, text: str, *labels: str) -> Metric:
    return Metric(name=name, kind="counter", help=text, labels=labels)


def _gauge(name: str, text: str, *labels: str) -> Metric:
    return Metric(name=name, kind="gauge", help=text, labels=labels)


def _histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Metric:
    return Metric(name=name, kind="histogram", help=text, labels=labels, buckets=buckets)


QUALITY: Final[tuple[Metric, ...]] = (
    _counter("judged_trials", "Trials seen by the judge, unweighted.", *QUALITY_LABELS),
    _counter("judged_failures", "Failed trials seen by the judge, unweighted.", *QUALITY_LABELS),
    _counter("scored_sessions", "Sessions scored, those without a trial included.", *QUALITY_LABELS),
    _counter("weighted_sessions", "Sum of w over scored sessions (Sw).", *QUALITY_LABELS),
    _counter("weighted_trials", "Sum of w t over scored sessions (Swt).", *QUALITY_LABELS),
    _counter("weighted_failures", "Sum of w f over scored sessions (Swf).", *QUALITY_LABELS),
    _counter("weight2", "Sum of w^2 over scored sessions (Qw).", *QUALITY_LABELS),
    _counter("weight2_trials", "Sum of w^2 t over scored sessions (Qt).", *QUALITY_LABELS),
    _counter("weight2_trials2", "Sum of (w t)^2 over scored sessions (Qtt).", *QUALITY_LABELS),
    _counter("weight2_trials_failures", "Sum of w^2 t f over scored sessions (Qtf).", *QUALITY_LABELS),
    _counter("weight2_failures2", "Sum of (w f)^2 over scored sessions (Qff).", *QUALITY_LABELS),
    _counter("weighted_clear_sessions", "Sum of w over sessions that a screen passed over.", *QUALITY_LABELS),
    _counter("weighted_clear_trials", "Of weighted_trials, those of the same sessions.", *QUALITY_LABELS),
    _counter("weighted_clear_failures", "Of weighted_failures, those of the same sessions.", *QUALITY_LABELS),
    _counter("weight2_clear", "Of weight2, that of the same sessions.", *QUALITY_LABELS),
    _counter("weight2_clear_trials", "Of weight2_trials, those of the same sessions.", *QUALITY_LABELS),
    _counter("weight2_clear_trials2", "Of weight2_trials2, those of the same sessions.", *QUALITY_LABELS),
    _counter(
        "weight2_clear_trials_failures", "Of weight2_trials_failures, those of the same sessions.", *QUALITY_LABELS
    ),
    _counter("weight2_clear_failures2", "Of weight2_failures2, those of the same sessions.", *QUALITY_LABELS),
    _counter("weighted_unscored", "Sum of w over sessions on which the judge failed.", *JUDGE_LABELS, "reason"),
    _counter("sessions_finished", "Finished sessions in the rubric's frame (N).", *FRAME_LABELS),
    _counter("sessions_selected", "Finished sessions selected for judging.", *FRAME_LABELS),
    _counter("sessions_overlapping", "Finished sessions that share an event with a stored segment; not counted."),
    _counter("jobs_listed", "Jobs listed in stored decisions.", "rubric", "mode", "stratum"),
    _counter("verdicts", "Jobs that ended in a verdict.", "rubric", "mode", "stratum"),
    _counter("skipped", "Jobs whose session the rubric doesn't concern.", "rubric", "mode", "stratum", "reason"),
    _counter("unscored", "Jobs on which the judge failed.", "rubric", "mode", "stratum", "reason"),
    _counter(
        "skipped_events",
        "Events inside scored sessions that could not be judged.",
        "rubric",
        "mode",
        "stratum",
        "reason",
    ),
    _counter(
        "judge_repeats",
        "Sessions judged twice, by which of the two found a failure.",
        *AGREEMENT_LABELS,
        "agreement",
    ),
    _counter(
        "screen_findings",
        "Sessions judged in full after a screen, by what it said and what the judge found.",
        *SCREEN_LABELS,
    ),
    _counter(
        "weighted_screen_findings",
        "The same, each session counted for those that it stands for.",
        *SCREEN_LABELS,
    ),
    _counter("judgements_superseded", "Judgements kept but not counted.", "rubric", "mode"),
    _gauge(
        "judge_agreement_ratio",
        "Share of the sessions judged twice on which a judge agreed with itself, 0 to 1.",
        *AGREEMENT_LABELS,
    ),
    _gauge(
        "judge_agreement_kappa",
        "Cohen's kappa of a judge with itself, -1 to 1; absent while all it said was the same.",
        *AGREEMENT_LABELS,
    ),
    _gauge("jobs_pending", "Jobs listed that have no result yet.", "rubric", "mode", "stratum"),
    _gauge("oldest_pending_job_seconds", "Age of the oldest job without a result, in seconds."),
    _gauge("store_generation_info", "Generation of the totals; bumped by a rebuild or a restore.", "generation"),
    _gauge("stratum_rate_ratio", "Rate of a stratum in the newest policy.", "stratum"),
    _histogram(
        "correction_response_score",
        "Correction response score, 0 to 1, an observation an event.",
        SCORE_BUCKETS,
        *JUDGE_LABELS,
    ),
    _histogram(
        "criterion_score",
        "Score of a criterion, 1 to 5, an observation an event.",
        CRITERION_BUCKETS,
        *JUDGE_LABELS,
        "criterion",
    ),
    _histogram(
        "groundedness_ratio",
        "Grounded claims per claim, 0 to 1, an observation an assistant turn; by where in the session it was.",
        SCORE_BUCKETS,
        *JUDGE_LABELS,
        "turn_band",
    ),
    _histogram(
        "overall_score",
        "Overall score of a session's answers, 0 to 1, an observation a session; by how long the session was.",
        SCORE_BUCKETS,
        *JUDGE_LABELS,
        "length_band",
    ),
    _histogram(
        "correction_session_turns",
        "Turns of a session with a judged correction.",
        (5.0, 10.0, 20.0, 40.0, 80.0, 160.0),
        *JUDGE_LABELS,
    ),
    _histogram(
        "correction_session_events",
        "Corrections found in a session with a judged one.",
        (1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0),
        *JUDGE_LABELS,
    ),
    _histogram(
        "correction_session_composite",
        "Mean composite of a session's judged corrections, 1 to 5.",
        (1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0),
        *JUDGE_LABELS,
    ),
    _histogram(
        "correction_session_incorporated",
        "Share of a session's judged corrections that were taken and kept.",
        SHARE_BUCKETS,
        *JUDGE_LABELS,
    ),
    _histogram(
        "correction_session_reverted",
        "Share of a session's judged corrections that were reverted.",
        SHARE_BUCKETS,
        *JUDGE_LABELS,
    ),
    _histogram(
        "correction_session_worst",
        "Mean score of a session's worst criterion, 1 to 5, under that criterion.",
        CRITERION_BUCKETS,
        *JUDGE_LABELS,
        "criterion",
    ),
)

PIPELINE: Final[tuple[Metric, ...]] = (
    _counter("events", "Events read from the source topic.", "event_type"),
    _counter("events_invalid", "Events that could not be accepted.", "reason"),
    _counter("events_duplicate", "Events whose event_id was already taken in."),
    _counter("events_late", "Events that came after their session closed and went out as an addendum."),
    _counter("events_orphaned", "Events other than turns that belong to no known session.", "event_type"),
    _counter("events_rerouted", "Events sent on to the partition that their key belongs to."),
    _counter("events_clock_skew", "Events whose time lies outside the allowed skew.", "direction"),
    _counter("sessions_closed", "Session segments closed.", "reason"),
    _gauge("open_sessions", "Sessions open in this process."),
    _gauge("lag_seconds", "Age of the newest record processed, by topic; 0 when caught up.", "topic"),
    _counter("commits_failed", "Commits that failed because the partition was lost."),
    _counter("commits_below_log_start", "Partitions whose commit lay below the start of the log."),
    _counter(
        "decisions", "Decisions sent, by stratum and whether the session was selected.", "stratum", "selected"
    ),
    _counter("policy_reloads", "Policy files read again, by result.", "result"),
    _counter("judgements", "Judgements sent, by kind of result.", "rubric", "kind"),
    _gauge("judge_in_flight", "Jobs being judged now."),
    _histogram(
        "judge_request_duration_seconds",
        "Duration of a call to the judge, in seconds.",
        JUDGE_SECONDS,
        "provider",
        "model",
    ),
    _counter("judge_requests", "Calls to the judge, by what came of them.", "provider", "model", "error_type"),
    _counter("judge_tokens", "Tokens used by the judge.", "provider", "model", "token_type"),
    _counter("judge_cost_usd", "Dollars that calls to the judge cost.", "rubric", "stratum", "judge"),
    _counter(
        "judge_usage_estimated", "Calls whose tokens are estimates, because none were told.", "provider", "model"
    ),
    _counter("judge_same_family", "Jobs whose assistant is of the judge's own model family.", "provider", "model"),
    _gauge(
        "judge_model_retires_timestamp_seconds",
        "Unix time at which the provider retires the judge's model; absent while none is set.",
        "provider",
        "model",
    ),
    _gauge(
        "judge_cache_hit_ratio",
        "Share of the tokens sent that the provider read from its cache, since the start.",
        "provider",
        "model",
    ),
    _gauge("judge_concurrency_limit", "Calls that may be under way at a time, as the provider allows."),
    _gauge("judge_calls_in_flight", "Calls under way now."),
    _gauge("judge_calls_waiting", "Calls that wait for the limits."),
    _gauge("judge_quota_left", "What is left of a configured quota a minute.", "quota"),
    _counter("judge_repairs", "Answers that had to be asked for again.", "rubric"),
    _counter("screenings", "Sessions shown to the screen, by what came of it.", "rubric", "result"),
    _counter("recorded", "Records taken into the store, by kind.", "kind"),
    _counter("dead_letters", "Records put aside as dead letters.", "stage"),
    _gauge("last_recorded_timestamp_seconds", "Unix time of the last transaction."),
    _gauge("store_up", "Whether the store answers (1) or not (0)."),
    _counter("process_restarts", "Processes restarted by the supervisor.", "process"),
    _gauge("build_info", "Constant 1; the version is a label.", "version", "process"),
)

CATALOGUE: Final[dict[str, Metric]] = {metric.name: metric for metric in (*QUALITY, *PIPELINE)}


class Meters:
    """The client objects of one process, on its own registry, made from the catalogue."""

    def __init__(self, names: Iterable[str], *, version: str, process: str) -> None:
        # A `_created` series beside each counter doubles the series and tells nobody anything.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self._metrics = {name: _client(CATALOGUE[name], self.registry) for name in (*names, "build_info")}
        self.gauge("build_info", version=version, process=process).set(1)

    def counter(self, name: str, **labels: str) -> Counter:
        """Give a counter, or its child for the given labels."""
        return _typed(self._child(name, labels), Counter)

    def gauge(self, name: str, **labels: str) -> Gauge:
        """Give a gauge, or its child for the given labels."""
        return _typed(self._child(name, labels), Gauge)

    def histogram(self, name: str, **labels: str) -> Histogram:
        """Give a histogram, or its child for the given labels."""
        return _typed(self._child(name, labels), Histogram)

    def forget(self, name: str, **labels: str) -> None:
        """Remove a child, such as the lag of a partition that was taken away; unknown ones are fine."""
        metric = CATALOGUE[name]
        try:
            self._metrics[name].remove(*(labels[label] for label in metric.labels))
        except KeyError:
            return

    def _child(self, name: str, labels: dict[str, str]) -> MetricWrapperBase:
        metric = self._metrics[name]
        return metric.labels(**labels) if labels else metric


def _client(metric: Metric, registry: CollectorRegistry) -> MetricWrapperBase:
    if metric.kind == "counter":
        return Counter(metric.full_name, metric.help, metric.labels, registry=registry)
    if metric.kind == "gauge":
        return Gauge(metric.full_name, metric.help, metric.labels, registry=registry)
    return Histogram(metric.full_name, metric.help, metric.labels, buckets=metric.buckets, registry=registry)


def _typed(metric: object, kind: type[_T]) -> _T:
    if not isinstance(metric, kind):
        raise TypeError(f"{metric!r} is not a {kind.__name__}")
    return metric
