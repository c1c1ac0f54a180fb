import msgspec
import pytest
from prometheus_client import CollectorRegistry

from monitor.judgement import Attempt, AttemptKind, Judgement, Outcomes, Skipped, Usage
from monitor.judging.accounting import METERS, Call, count_call, count_repairs, declare_calls
from monitor.judging.lexical import LexicalJudge
from monitor.judging.model import ERROR_TYPES
from monitor.metrics import Meters

MODEL = {"provider": "lexical", "model": "lexical-1"}


@pytest.fixture
def meters() -> Meters:
    return Meters(METERS, version="0", process="judge")


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(f"backslide_{name}", labels)


USAGE = Usage(input_tokens=100, output_tokens=20, cache_read_tokens=7, cache_write_tokens=3, thinking_tokens=5)


def call(usage: Usage, error_type: str | None = None) -> Call:
    return Call(**MODEL, rubric="correction", duration_s=0.4, usage=usage, error_type=error_type)


def test_zero_series_are_there_before_the_first_call(meters: Meters) -> None:
    declare_calls(meters, LexicalJudge())
    for error_type in ("none", *ERROR_TYPES):
        assert value(meters.registry, "judge_requests_total", **MODEL, error_type=error_type) == 0
    assert value(meters.registry, "judge_tokens_total", **MODEL, token_type="cache_read") == 0
    assert value(meters.registry, "judge_request_duration_seconds_count", **MODEL) == 0


def test_a_call_is_counted_with_its_tokens_and_duration(meters: Meters) -> None:
    count_call(meters, call(USAGE))
    count_call(meters, call(Usage(), "overloaded"))
    registry = meters.registry
    assert value(registry, "judge_requests_total", **MODEL, error_type="none") == 1
    assert value(registry, "judge_requests_total", **MODEL, error_type="overloaded") == 1
    assert value(registry, "judge_request_duration_seconds_sum", **MODEL) == pytest.approx(0.8)
    tokens = {
        kind: value(registry, "judge_tokens_total", **MODEL, token_type=kind)
        for kind in ("input", "output", "cache_read", "cache_write", "thinking")
    }
    assert tokens == {"input": 100, "output": 20, "cache_read": 7, "cache_write": 3, "thinking": 5}


def test_tokens_that_were_estimated_are_marked(meters: Meters) -> None:
    declare_calls(meters, LexicalJudge())
    assert value(meters.registry, "judge_usage_estimated_total", **MODEL) == 0
    count_call(meters, call(msgspec.structs.replace(USAGE, estimated=True)))
    assert value(meters.registry, "judge_usage_estimated_total", **MODEL) == 1


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
