"""What each call to a judge took, counted before anyone looks at the answer.

Counting after parsing hides the cost of answers that can't be parsed, which are the ones that get paid for twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from typing import Final, TypeAlias

import msgspec

from monitor.judgement import Judgement, Usage
from monitor.judging.gate import Gate
from monitor.judging.model import ERROR_TYPES, JudgeModel
from monitor.judging.prices import NUSD
from monitor.metrics import Meters

ANSWERED: Final = "none"
METERS: Final = (
    "judge_request_duration_seconds",
    "judge_requests",
    "judge_tokens",
    "judge_usage_estimated",
    "judge_same_family",
    "judge_model_retires_timestamp_seconds",
    "judge_cost_usd",
    "judge_cache_hit_ratio",
    "judge_concurrency_limit",
    "judge_calls_in_flight",
    "judge_calls_waiting",
    "judge_quota_left",
    "judge_repairs",
)
TOKEN_TYPES: Final = ("input", "output", "cache_read", "cache_write", "thinking")


class Call(msgspec.Struct, kw_only=True, frozen=True):
    """One call, answered or not. `error_type` is None for an answered one, else one of `ERROR_TYPES`.

    `usage` is zero where the provider told none, as it does for calls that failed. `cost_nusd` is in 1e-9 $.
    An answer that came out of a `batch` has no duration.
    """

    provider: str
    model: str
    judge: str
    rubric: str
    stratum: str
    duration_s: float
    usage: Usage
    cost_nusd: int = 0
    error_type: str | None = None
    batch: bool = False


OnCall: TypeAlias = Callable[[Call], None]


class CallMeter:
    """Adds the calls of one judge to the metrics.

    Its zero series are there from the start, so that a first error is an increase and not an appearance: for every
    error type, and for the given rubrics and strata.
    """

    def __init__(
        self, meters: Meters, judge: JudgeModel, *, rubrics: Iterable[str] = (), strata: Iterable[str] = ()
    ) -> None:
        self._meters = meters
        self._sent = self._cached = 0
        labels = {"provider": judge.provider, "model": judge.model}
        for error_type in (ANSWERED, *ERROR_TYPES):
            meters.counter("judge_requests", **labels, error_type=error_type)
        for token_type in TOKEN_TYPES:
            meters.counter("judge_tokens", **labels, token_type=token_type)
        for name in ("judge_usage_estimated", "judge_same_family"):
            meters.counter(name, **labels)
        meters.histogram("judge_request_duration_seconds", **labels)
        for rubric, stratum in product(rubrics, strata):
            meters.counter("judge_cost_usd", rubric=rubric, stratum=stratum, judge=judge.name)

    def __call__(self, call: Call) -> None:
        """Add a call. Thinking tokens are part of the output tokens, and shown beside them."""
        labels = {"provider": call.provider, "model": call.model}
        if not call.batch:
            self._meters.histogram("judge_request_duration_seconds", **labels).observe(call.duration_s)
        self._meters.counter("judge_requests", **labels, error_type=call.error_type or ANSWERED).inc()
        for token_type in TOKEN_TYPES:
            tokens = getattr(call.usage, f"{token_type}_tokens")
            self._meters.counter("judge_tokens", **labels, token_type=token_type).inc(tokens)
        self._meters.counter("judge_usage_estimated", **labels).inc(call.usage.estimated)
        cost = self._meters.counter("judge_cost_usd", rubric=call.rubric, stratum=call.stratum, judge=call.judge)
        cost.inc(call.cost_nusd / NUSD)
        self._cache(call.usage, labels)

    def _cache(self, usage: Usage, labels: dict[str, str]) -> None:
        self._cached += usage.cache_read_tokens
        self._sent += usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
        if self._sent:
            self._meters.gauge("judge_cache_hit_ratio", **labels).set(self._cached / self._sent)


def show_gate(meters: Meters, gate: Gate, now: float) -> None:
    """Set the gauges of a gate. `now` is its clock, in seconds."""
    limiter = gate.limiter
    meters.gauge("judge_concurrency_limit").set(limiter.concurrency.limit)
    meters.gauge("judge_calls_in_flight").set(limiter.concurrency.in_flight)
    meters.gauge("judge_calls_waiting").set(gate.waiting)
    for name, bucket in limiter.buckets.items():
        meters.gauge("judge_quota_left", quota=name).set(bucket.level(now))


def count_repairs(meters: Meters, judgement: Judgement) -> None:
    """Add the answers of a judgement that were asked for again, because they were invalid or cut off."""
    again = sum(
        earlier.kind in {"invalid", "truncated"} and earlier.window == later.window
        for earlier, later in zip(judgement.attempts, judgement.attempts[1:], strict=False)
    )
    meters.counter("judge_repairs", rubric=judgement.rubric).inc(again)
