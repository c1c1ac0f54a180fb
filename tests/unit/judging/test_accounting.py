import asyncio
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from monitor.judgement import Attempt, AttemptKind, Judgement, Outcomes, Skipped, Usage
from monitor.judging.accounting import METERS, Call, CallMeter, count_repairs, show_gate
from monitor.judging.gate import Gate
from monitor.judging.lexical import LexicalJudge
from monitor.judging.limits import Limiter, LimitPolicy
from monitor.judging.model import ERROR_TYPES, Completion
from monitor.metrics import Meters
from tests.unit.judging.limiting import REQUEST

MODEL = {"provider": "lexical", "model": "lexical-1"}


@pytest.fixture
def meters() -> Meters:
    return Meters(METERS, version="0", process="judge")


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(f"backslide_{name}", labels)


USAGE = Usage(input_tokens=100, output_tokens=20, cache_read_tokens=7, cache_write_tokens=3, thinking_tokens=5)


def call(usage: Usage, error_type: str | None = None, **more: Any) -> Call:
    return Call(
        provider="lexical",
        model="lexical-1",
        judge="lexical",
        rubric="correction",
        stratum="base",
        duration_s=0.4,
        usage=usage,
        error_type=error_type,
        **more,
    )


COSTS = {"rubric": "correction", "stratum": "base", "judge": "lexical"}


def test_zero_series_are_there_before_the_first_call(meters: Meters) -> None:
    CallMeter(meters, LexicalJudge(), rubrics=["correction"], strata=["base", "escalated"])
    for error_type in ("none", *ERROR_TYPES):
        assert value(meters.registry, "judge_requests_total", **MODEL, error_type=error_type) == 0
    assert value(meters.registry, "judge_tokens_total", **MODEL, token_type="cache_read") == 0
    assert value(meters.registry, "judge_usage_estimated_total", **MODEL) == 0
    assert value(meters.registry, "judge_request_duration_seconds_count", **MODEL) == 0
    assert value(meters.registry, "judge_cost_usd_total", **COSTS | {"stratum": "escalated"}) == 0


def test_a_call_is_counted_with_its_tokens_duration_and_cost(meters: Meters) -> None:
    meter = CallMeter(meters, LexicalJudge())
    meter(call(USAGE, cost_nusd=1_250_000))
    meter(call(Usage(), "overloaded"))
    meter(call(Usage(output_tokens=1, estimated=True), cost_nusd=1))
    registry = meters.registry
    assert value(registry, "judge_requests_total", **MODEL, error_type="none") == 2
    assert value(registry, "judge_requests_total", **MODEL, error_type="overloaded") == 1
    assert value(registry, "judge_request_duration_seconds_sum", **MODEL) == pytest.approx(1.2)
    tokens = {
        kind: value(registry, "judge_tokens_total", **MODEL, token_type=kind)
        for kind in ("input", "output", "cache_read", "cache_write", "thinking")
    }
    assert tokens == {"input": 100, "output": 21, "cache_read": 7, "cache_write": 3, "thinking": 5}
    assert value(registry, "judge_usage_estimated_total", **MODEL) == 1
    assert value(registry, "judge_cost_usd_total", **COSTS) == pytest.approx(0.001250001, rel=1e-12)


def test_the_cache_hit_ratio_is_over_all_that_was_sent(meters: Meters) -> None:
    meter = CallMeter(meters, LexicalJudge())
    assert value(meters.registry, "judge_cache_hit_ratio", **MODEL) is None
    meter(call(Usage(input_tokens=100, cache_write_tokens=300)))
    assert value(meters.registry, "judge_cache_hit_ratio", **MODEL) == 0
    meter(call(Usage(input_tokens=100, cache_read_tokens=300)))
    assert value(meters.registry, "judge_cache_hit_ratio", **MODEL) == 300 / 800


async def test_the_gauges_of_the_gate(meters: Meters) -> None:
    gate = Gate(Limiter(LimitPolicy(start=1, maximum=4, requests_per_minute=60)), clock=lambda: 7.0)
    leave = await gate.enter(REQUEST, urgent=False)
    second = asyncio.create_task(gate.enter(REQUEST, urgent=False))
    await asyncio.sleep(0)
    show_gate(meters, gate, 7.0)
    assert value(meters.registry, "judge_concurrency_limit") == 1
    assert value(meters.registry, "judge_calls_in_flight") == 1
    assert value(meters.registry, "judge_calls_waiting") == 1
    assert value(meters.registry, "judge_quota_left", quota="requests") == 59
    gate.leave(leave, Completion(text=""))
    gate.leave(await second, Completion(text=""))
    show_gate(meters, gate, 7.0)
    assert value(meters.registry, "judge_concurrency_limit") == 2  # a clean round of slow start
    assert value(meters.registry, "judge_calls_in_flight") == 0


@pytest.mark.parametrize(
    ("attempts", "repairs"),
    [
        ([], 0),
        ([("A", "valid")], 0),
        ([("A", "invalid"), ("A", "valid")], 1),
        ([("A", "truncated"), ("A", "invalid"), ("A", "invalid")], 2),
        ([("A", "failed"), ("A", "valid")], 0),
        ([("A", "invalid"), ("A", "failed"), ("A", "valid")], 1),
        ([("A", "refused"), ("B", "valid")], 0),
        ([("A", "invalid")], 0),
    ],
)
def test_repairs_are_answers_that_were_asked_for_again(
    meters: Meters, attempts: list[tuple[str, AttemptKind]], repairs: int
) -> None:
    count_repairs(meters, judgement(attempts))
    assert value(meters.registry, "judge_repairs_total", rubric="correction") == repairs


def judgement(attempts: list[tuple[str, AttemptKind]]) -> Judgement:
    return Judgement(
        job_id="j",
        tenant="default",
        session_id="s",
        segment="e",
        content_hash="h",
        rubric="correction",
        mode="event",
        rubric_version="1",
        prompt_version="v1",
        prompt_hash="p",
        judge="lexical",
        provider="lexical",
        model="lexical-1",
        result=Skipped(reason="not_applicable"),
        outcomes=Outcomes(),
        attempts=[
            Attempt(window=window, number=number, kind=kind, raw="")
            for number, (window, kind) in enumerate(attempts, 1)
        ],
        started_at=0,
        finished_at=0,
    )
