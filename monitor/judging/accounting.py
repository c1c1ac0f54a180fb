"""What each call to a judge took, counted before anyone looks at the answer.

Counting after parsing hides the cost of answers that can't be parsed, which are the ones that get paid for twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec

from monitor.judgement import Judgement, Usage
from monitor.judging.model import ERROR_TYPES, JudgeModel
from monitor.metrics import Meters

ANSWERED: Final = "none"
METERS: Final = (
    "judge_request_duration_seconds",
    "judge_requests",
    "judge_tokens",
    "judge_usage_estimated",
    "judge_same_family",
    "judge_model_retires_timestamp_seconds",
    "judge_repairs",
)
TOKEN_TYPES: Final = ("input", "output", "cache_read", "cache_write", "thinking")


class Call(msgspec.Struct, kw_only=True, frozen=True):
    """One call, answered or not. `error_type` is None for an answered one, else one of `ERROR_TYPES`.

    `usage` is zero where the provider told none, as it does for calls that failed.
    """

    provider: str
    model: str
    rubric: str
    duration_s: float
    usage: Usage
    error_type: str | None = None


OnCall: TypeAlias = Callable[[Call], None]


def declare_calls(meters: Meters, judge: JudgeModel) -> None:
    """Make the zero series of a judge's calls, so that a first error is an increase and not an appearance."""
    for error_type in (ANSWERED, *ERROR_TYPES):
        meters.counter("judge_requests", provider=judge.provider, model=judge.model, error_type=error_type)
    for token_type in TOKEN_TYPES:
        meters.counter("judge_tokens", provider=judge.provider, model=judge.model, token_type=token_type)
    for name in ("judge_usage_estimated", "judge_same_family"):
        meters.counter(name, provider=judge.provider, model=judge.model)
    meters.histogram("judge_request_duration_seconds", provider=judge.provider, model=judge.model)


def count_call(meters: Meters, call: Call) -> None:
    """Add a call to the metrics. Thinking tokens are part of the output tokens, and shown beside them."""
    labels = {"provider": call.provider, "model": call.model}
    meters.histogram("judge_request_duration_seconds", **labels).observe(call.duration_s)
    meters.counter("judge_requests", **labels, error_type=call.error_type or ANSWERED).inc()
    for token_type in TOKEN_TYPES:
        tokens = getattr(call.usage, f"{token_type}_tokens")
        meters.counter("judge_tokens", **labels, token_type=token_type).inc(tokens)
    if call.usage.estimated:
        meters.counter("judge_usage_estimated", **labels).inc()


def count_repairs(meters: Meters, judgement: Judgement) -> None:
    """Add the answers of a judgement that were asked for again, because they were invalid or cut off."""
    again = sum(
        earlier.kind in {"invalid", "truncated"} and earlier.window == later.window
        for earlier, later in zip(judgement.attempts, judgement.attempts[1:], strict=False)
    )
    meters.counter("judge_repairs", rubric=judgement.rubric).inc(again)
