"""The driver over the real SDK and the local Messages API; waits run on a clock that sleeping moves on (J3)."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from monitor.errors import JudgeFatal
from monitor.judgement import Judgement, Skipped, Unscored, Verdict
from monitor.judging.accounting import Call
from monitor.judging.anthropic import AnthropicJudge
from monitor.judging.breaker import Breaker, BreakerPolicy
from monitor.judging.drive import Driver, JobRun, Postponed
from monitor.judging.flow import MAX_TOKENS
from monitor.judging.gate import Gate
from monitor.judging.limits import Limiter, LimitPolicy
from monitor.judging.model import Completion
from monitor.judging.prices import price_of
from monitor.judging.retry import RetryPolicy
from monitor.rubrics.base import Window, WindowResult
from tests.services import messages_api as api
from tests.unit.judging.politeness import POLITE, RUDE, Politeness, Reply, job, prompt, session

pytestmark = pytest.mark.asyncio(loop_scope="module")

TRUNCATED = api.message('{"quote": "Gla', stop="max_tokens")


class Clock:
    """Real time, plus the time that was slept, each sleep of which takes `real` seconds."""

    def __init__(self) -> None:
        self.slept: list[float] = []
        self.real = self.moved = 0.0

    def __call__(self) -> float:
        return time.monotonic() + sum(self.slept) + self.moved

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(self.real)


class Bench:
    """A driver with its clock and the calls that it accounted for; each moves the clock on by `call_s`."""

    def __init__(
        self,
        judge: AnthropicJudge,
        policy: RetryPolicy | None = None,
        *,
        calls: int = 1_024,
        call_s: float = 0.0,
        **breaker: Any,
    ) -> None:
        self.clock = Clock()
        self.calls: list[Call] = []
        self._call_s = call_s
        self.driver = Driver(
            judge,
            policy,
            breaker=Breaker(BreakerPolicy(**breaker)),
            gate=Gate(Limiter(LimitPolicy(start=calls, maximum=calls)), clock=self.clock),
            price=price_of("anthropic:claude-haiku-5-5", {}),
            on_call=self._heard,
            clock=self.clock,
            wall=lambda: 1_790_000_000.0,
            sleep=self.clock.sleep,
            chance=lambda: 0.0,
        )

    def _heard(self, call: Call) -> None:
        self.calls.append(call)
        self.clock.moved += self._call_s

    async def judgement(self, run: JobRun) -> Judgement:
        outcome = await self.driver.drive(run)
        assert isinstance(outcome, Judgement)
        return outcome

    async def postponed(self, run: JobRun) -> Postponed:
        outcome = await self.driver.drive(run)
        assert isinstance(outcome, Postponed)
        assert outcome.retry_in > 0
        return outcome

    @property
    def errors(self) -> list[str | None]:
        return [call.error_type for call in self.calls]


def run_of(*replies: str, job_id: str = "job-1", **options: Any) -> JobRun:
    of = session(*(replies or ("Gladly.",)))
    return JobRun(job(of, job_id), of, Politeness(), prompt(), **options)


@pytest.fixture
def bench(judge: AnthropicJudge) -> Bench:
    return Bench(judge)


async def test_every_window_is_asked_about_in_order(server: api.MessagesApi, bench: Bench) -> None:
    server.script(api.message(POLITE), api.message(RUDE))
    judged = await bench.judgement(run_of("Gladly.", "No."))
    assert judged.result == Verdict(data={"polite": [True, False]})
    assert judged.outcomes.measures["rude"].failures == 1
    assert [(attempt.window, attempt.kind) for attempt in judged.attempts] == [("T1", "valid"), ("T3", "valid")]
    assert [request.body["max_tokens"] for request in server.requests] == [MAX_TOKENS, MAX_TOKENS]
    assert (judged.judge, judged.provider, judged.model) == (
        "anthropic:claude-haiku-5-5",
        "anthropic",
        "claude-haiku-5-5",
    )
    assert judged.started_at == judged.finished_at == 1_790_000_000_000
    assert bench.errors == [None, None]
    assert all(call.usage.input_tokens > 0 for call in bench.calls)


class Carrying(Politeness):
    """Each window is told how many windows before it were polite."""

    sequential = True

    def carry(self, window: Any, earlier: Sequence[WindowResult]) -> Window:
        polite = sum(isinstance(item.result, Verdict) and item.result.data["polite"] for item in earlier)
        told: Reply = msgspec.structs.replace(window, text=f"{window.text} ({polite} polite before)")
        return told


async def test_a_window_carries_what_the_ones_before_it_found() -> None:
    of = session("Gladly", "No", "Gladly")
    run = JobRun(job(of), of, Carrying(), prompt())
    shown = []
    for answer in (POLITE, RUDE, POLITE):
        assert run.request is not None
        shown.append(run.request.messages[-1].text)
        run.answer(Completion(text=answer))
    assert ["(0 polite" in shown[0], "(1 polite" in shown[1], "(1 polite" in shown[2]] == [True] * 3
    assert run.request is None


async def test_nothing_to_ask_makes_no_call(server: api.MessagesApi, bench: Bench) -> None:
    of = session()
    nothing = await bench.judgement(JobRun(job(of), of, Politeness(), prompt()))
    blank = await bench.judgement(run_of(" "))
    assert nothing.result == Skipped(reason="not_applicable")
    assert blank.result == Verdict(data={"polite": []})
    assert (server.requests, bench.calls) == ([], [])


async def test_an_answer_off_the_schema_is_repaired_once(server: api.MessagesApi, bench: Bench) -> None:
    server.script(api.message('{"polite": "very"}'), api.message(POLITE))
    judged = await bench.judgement(run_of())
    assert judged.result == Verdict(data={"polite": [True]})
    assert [attempt.kind for attempt in judged.attempts] == ["invalid", "valid"]
    talk = server.requests[1].body["messages"]
    assert [item["role"] for item in talk] == ["user", "assistant", "user"]
    assert talk[1]["content"] == '{"polite": "very"}'
    assert "breaks the schema" in talk[2]["content"]


async def test_a_blank_answer_is_repaired_too(server: api.MessagesApi, bench: Bench) -> None:
    server.script(api.message("", content=[]), api.message(POLITE))
    assert isinstance((await bench.judgement(run_of())).result, Verdict)


async def test_twice_off_the_schema_is_unscored_and_kept(server: api.MessagesApi, bench: Bench) -> None:
    server.script(api.message("so polite"), api.message("very polite"))
    judged = await bench.judgement(run_of("Gladly.", "never asked about"))
    assert isinstance(judged.result, Unscored)
    assert judged.result.reason == "invalid"
    assert [attempt.raw for attempt in judged.attempts] == ["so polite", "very polite"]
    assert judged.outcomes.measures == {}


async def test_a_truncated_answer_gets_more_room_once(server: api.MessagesApi, bench: Bench) -> None:
    server.script(TRUNCATED, api.message(POLITE))
    judged = await bench.judgement(run_of(max_tokens=1_000))
    assert isinstance(judged.result, Verdict)
    assert [request.body["max_tokens"] for request in server.requests] == [1_000, 2_000]
    assert [attempt.kind for attempt in judged.attempts] == ["truncated", "valid"]


async def test_twice_truncated_is_unscored(server: api.MessagesApi, bench: Bench) -> None:
    server.script(TRUNCATED, TRUNCATED)
    judged = await bench.judgement(run_of())
    assert isinstance(judged.result, Unscored)
    assert judged.result.reason == "truncated"
    # Paid for and counted, although nothing came of it.
    assert sum(call.usage.output_tokens for call in bench.calls) > 0


async def test_a_refusal_is_an_outcome_of_its_own(server: api.MessagesApi, bench: Bench) -> None:
    server.script(api.refusal())
    judged = await bench.judgement(run_of())
    assert isinstance(judged.result, Unscored)
    assert judged.result.reason == "judge_refused"
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("reply", "error_type"),
    [
        (api.overloaded(), "overloaded"),
        (api.server_error(), "server_error"),
        (api.rate_limited(), "rate_limit"),
        (api.html(), "bad_response"),
        (api.raw(b"{}"), "bad_response"),
        (api.raw(b'{"content": ['), "bad_response"),
        (api.drop(), "connection"),
        (api.drop(None), "connection"),
        (api.hang(), "timeout"),
    ],
)
async def test_what_may_pass_is_tried_again(
    server: api.MessagesApi, judge: AnthropicJudge, reply: api.Reply, error_type: str
) -> None:
    bench = Bench(judge, RetryPolicy(attempt_timeout_s=0.3 if error_type == "timeout" else 5.0))
    server.script(reply, api.message(POLITE))
    judged = await bench.judgement(run_of())
    assert isinstance(judged.result, Verdict)
    assert [attempt.kind for attempt in judged.attempts] == ["failed", "valid"]
    assert judged.attempts[0].error_type == error_type
    assert bench.errors == [error_type, None]
    assert bench.clock.slept == [0.25]


async def test_waits_grow_and_an_answer_resets_them(server: api.MessagesApi, bench: Bench) -> None:
    bad = api.overloaded()
    server.script(bad, bad, bad, api.message(POLITE), bad, api.message(POLITE))
    await bench.judgement(run_of("Gladly.", "With pleasure."))
    assert bench.clock.slept == [0.25, 0.5, 1.0, 0.25]


async def test_retry_after_is_honored_up_to_the_cap(server: api.MessagesApi, judge: AnthropicJudge) -> None:
    bench = Bench(judge, RetryPolicy(retry_after_cap_s=30.0))
    server.script(api.rate_limited(retry_after="30"), api.rate_limited(retry_after_ms="1500"), api.message(POLITE))
    assert isinstance((await bench.judgement(run_of())).result, Verdict)
    assert bench.clock.slept == [30.0, 1.5]


async def test_beyond_the_cap_the_job_is_put_off_and_all_calls_stop(
    server: api.MessagesApi, judge: AnthropicJudge
) -> None:
    bench = Bench(judge, max_cool_down_s=300.0)
    server.script(api.message(POLITE), api.rate_limited(retry_after="60"))
    run = run_of("Gladly.", "No.")
    put_off = await bench.postponed(run)
    assert put_off.reason == "retry_after"
    assert put_off.error_type == "rate_limit"
    assert put_off.retry_in == pytest.approx(60, abs=1)
    assert bench.clock.slept == []
    assert (await bench.postponed(run_of(job_id="job-2"))).reason == "down"
    assert len(server.requests) == 2
    # Driven again, it goes on where it was: the first window is not paid for twice.
    await bench.clock.sleep(put_off.retry_in)
    server.script(api.message(RUDE))
    judged = await bench.judgement(run)
    assert judged.result == Verdict(data={"polite": [True, False]})
    assert [(item.window, item.number, item.kind) for item in judged.attempts] == [
        ("T1", 1, "valid"),
        ("T3", 1, "failed"),
        ("T3", 2, "valid"),
    ]


async def test_an_hour_of_retry_after_pauses_no_longer_than_the_maximum(
    server: api.MessagesApi, judge: AnthropicJudge
) -> None:
    bench = Bench(judge, max_cool_down_s=300.0)
    server.script(api.rate_limited(retry_after="3600"))
    assert (await bench.postponed(run_of())).retry_in == pytest.approx(300, abs=1)


async def test_one_deadline_covers_all_calls_and_waits(server: api.MessagesApi, judge: AnthropicJudge) -> None:
    bench = Bench(judge, RetryPolicy(deadline_s=11.5, max_s=4.0))
    server.script(api.message(POLITE), *[api.overloaded()] * 8)
    judged = await bench.judgement(run_of("Gladly.", "No."))
    assert isinstance(judged.result, Unscored)
    assert judged.result.reason == "timeout"
    # 9.75 s of waiting; one more wait of 2 s would not end in time, so the eighth failure is the last.
    assert bench.clock.slept == [0.25, 0.5, 1.0, 2.0, 2.0, 2.0, 2.0]
    assert [attempt.kind for attempt in judged.attempts] == ["valid", *["failed"] * 8]


async def test_a_hanging_call_ends_with_the_deadline(server: api.MessagesApi, judge: AnthropicJudge) -> None:
    bench = Bench(judge, RetryPolicy(deadline_s=0.4, attempt_timeout_s=60.0))
    server.script(api.hang())
    started = time.monotonic()
    judged = await bench.judgement(run_of())
    assert time.monotonic() - started < 2
    assert isinstance(judged.result, Unscored)
    assert judged.result.reason == "timeout"
    assert judged.attempts[0].error_type == "timeout"


async def test_no_call_is_started_past_the_deadline(server: api.MessagesApi, judge: AnthropicJudge) -> None:
    bench = Bench(judge, RetryPolicy(deadline_s=50.0), call_s=20.0)
    server.script(*[api.message(POLITE)] * 3)
    run = run_of("Gladly.", "Yes.", "Of course.", "Certainly.")
    await bench.clock.sleep(100)  # time before the first call doesn't count
    judged = await bench.judgement(run)
    assert isinstance(judged.result, Unscored)
    assert judged.result.reason == "timeout"
    assert [attempt.kind for attempt in judged.attempts] == ["valid", "valid", "valid", "failed"]
    assert len(server.requests) == 3
    # A run that comes back with its time used up is told so without a call.
    late = run_of()
    late.spent_s = 50.0
    judged = await bench.judgement(late)
    assert isinstance(judged.result, Unscored)
    assert judged.result.reason == "timeout"
    assert len(server.requests) == 3


async def test_a_job_that_always_fails_is_given_up_without_the_others(
    server: api.MessagesApi, judge: AnthropicJudge
) -> None:
    bench = Bench(judge, RetryPolicy(max_failures=4), threshold=2)
    server.script(*[api.server_error()] * 4, api.message(POLITE))
    judged = await bench.judgement(run_of())
    assert isinstance(judged.result, Unscored)
    assert judged.result.reason == "unavailable"
    assert bench.driver.paused_for() == 0
    assert isinstance((await bench.judgement(run_of(job_id="job-2"))).result, Verdict)


async def test_when_the_model_is_down_jobs_are_put_off_and_no_deadline_runs(
    server: api.MessagesApi, judge: AnthropicJudge
) -> None:
    bench = Bench(judge, RetryPolicy(deadline_s=100.0), threshold=3, cool_down_s=60.0)
    server.script(*[api.overloaded()] * 3)
    runs = [run_of(job_id=f"job-{n}") for n in range(3)]
    bench.clock.real = 0.3  # so that all three have failed before one of them is back
    outcomes = await asyncio.gather(*(bench.driver.drive(run) for run in runs))
    assert [type(outcome) for outcome in outcomes].count(Postponed) == 3
    assert bench.driver.paused_for() == pytest.approx(60, abs=2)
    # Hours pass; a job that never made a call has its whole deadline left, and the others theirs less a moment.
    late = run_of(job_id="late")
    assert (await bench.postponed(late)).error_type is None
    assert late.started_at is None
    await bench.clock.sleep(7_200)
    assert bench.driver.paused_for() == 0
    server.script(*[api.message(POLITE)] * 4)
    for run in (*runs, late):
        assert run.spent_s < 5
        assert isinstance((await bench.judgement(run)).result, Verdict)
    assert len(server.requests) == 7


async def test_one_probe_at_a_time_while_half_open(server: api.MessagesApi, judge: AnthropicJudge) -> None:
    bench = Bench(judge, threshold=1, cool_down_s=5.0)
    server.script(api.rate_limited(retry_after="60"))
    await bench.postponed(run_of())
    await bench.clock.sleep(61)
    server.script(msgspec.structs.replace(api.message(POLITE), delay_s=0.1))
    outcomes = await asyncio.gather(*(bench.driver.drive(run_of(job_id=f"job-{n}")) for n in range(8)))
    assert [type(outcome) for outcome in outcomes].count(Judgement) == 1
    assert len(server.requests) == 2


async def test_a_canceled_probe_leaves_room_for_the_next(server: api.MessagesApi, judge: AnthropicJudge) -> None:
    bench = Bench(judge)
    server.script(api.rate_limited(retry_after="60"), api.hang(), api.message(POLITE))
    run = run_of()
    await bench.postponed(run)
    await bench.clock.sleep(61)
    probe = asyncio.create_task(bench.driver.drive(run))
    await asyncio.to_thread(server.wait_for, 2)
    probe.cancel()
    with pytest.raises(asyncio.CancelledError):
        await probe
    assert isinstance((await bench.judgement(run)).result, Verdict)


@pytest.mark.parametrize(
    ("reply", "error_type"),
    [
        (api.failure(401, "authentication_error"), "authentication"),
        (api.failure(403, "permission_error"), "permission"),
        (api.failure(404, "not_found_error"), "not_found"),
        (api.failure(429, "rate_limit_error", code="enforced_spend_limit_reached"), "spend_limit"),
        (api.failure(400, "invalid_request_error"), "invalid_request"),
    ],
)
async def test_what_needs_someone_is_raised_and_nothing_is_scored(
    server: api.MessagesApi, judge: AnthropicJudge, reply: api.Reply, error_type: str
) -> None:
    bench = Bench(judge, cool_down_s=5.0)
    server.script(reply)
    run = run_of()
    with pytest.raises(JudgeFatal) as caught:
        await bench.driver.drive(run)
    assert caught.value.error_type == error_type
    assert bench.errors == [error_type]
    assert (await bench.postponed(run_of(job_id="job-2"))).reason == "down", "others don't try the same"
    # Once someone acted, the same run goes on.
    await bench.clock.sleep(bench.driver.paused_for())
    server.script(api.message(POLITE))
    assert isinstance((await bench.judgement(run)).result, Verdict)


async def test_a_session_that_is_too_large_is_unscored_and_the_others_go_on(
    server: api.MessagesApi, bench: Bench
) -> None:
    server.script(
        api.failure(413, "invalid_request_error"),
        api.message("{", stop="model_context_window_exceeded"),
        api.message(POLITE),
    )
    for _ in range(2):
        judged = await bench.judgement(run_of())
        assert isinstance(judged.result, Unscored)
        assert judged.result.reason == "error"
        assert judged.attempts[0].error_type == "too_large"
    assert bench.calls[1].usage.output_tokens > 0
    assert isinstance((await bench.judgement(run_of(job_id="job-2"))).result, Verdict)


async def test_a_request_that_is_rejected_alone_is_unscored_but_many_are_fatal(
    server: api.MessagesApi, judge: AnthropicJudge
) -> None:
    bench = Bench(judge, threshold=3)
    wrong = api.failure(400, "invalid_request_error")
    server.script(api.message(POLITE), wrong, wrong, wrong)
    await bench.judgement(run_of())
    for number in range(2):
        judged = await bench.judgement(run_of(job_id=f"wrong-{number}"))
        assert isinstance(judged.result, Unscored)
        assert judged.result.reason == "error"
    with pytest.raises(JudgeFatal):
        await bench.driver.drive(run_of(job_id="wrong-2"))


async def test_calls_are_accounted_for_before_their_answer_is_parsed(
    server: api.MessagesApi, judge: AnthropicJudge
) -> None:
    class Broken(Politeness):
        def parse(self, raw: str, window: Any) -> Verdict:
            raise RuntimeError("a bug in a rubric")

    bench = Bench(judge)
    server.script(api.message(POLITE))
    of = session("Gladly.")
    with pytest.raises(RuntimeError, match="a bug in a rubric"):
        await bench.driver.drive(JobRun(job(of), of, Broken(), prompt()))
    assert bench.errors == [None]
    assert bench.calls[0].usage.output_tokens > 0


async def test_every_attempt_is_charged_whatever_comes_of_it(server: api.MessagesApi, bench: Bench) -> None:
    """Also answers that no rubric can read: a wrong one, one that was cut off, one that ended in a strange way."""
    odd = api.message("?", stop="pause_turn")
    server.script(api.message("polite"), TRUNCATED, odd, api.overloaded(), api.message(POLITE))
    judged = await bench.judgement(run_of(max_tokens=1_000))
    kinds = ["invalid", "truncated", "failed", "failed", "valid"]
    assert [attempt.kind for attempt in judged.attempts] == kinds
    price = price_of("anthropic:claude-haiku-5-5", {})
    costs = [attempt.cost_nusd for attempt in judged.attempts]
    assert costs == [price.cost(attempt.usage) for attempt in judged.attempts]
    assert [cost > 0 for cost in costs] == [True, True, True, False, True]
    assert [call.cost_nusd for call in bench.calls] == costs
    assert {(call.rubric, call.stratum, call.judge) for call in bench.calls} == {
        ("politeness", "base", "anthropic:claude-haiku-5-5")
    }
    assert (judged.cost_nusd, judged.prices) == (sum(costs), price.version)


async def test_no_more_calls_than_the_limit_and_urgent_jobs_first(
    server: api.MessagesApi, judge: AnthropicJudge
) -> None:
    bench = Bench(judge, calls=1)
    server.script(*[msgspec.structs.replace(api.message(POLITE), delay_s=0.05)] * 5)
    runs = [run_of(f"Gladly, {n}.", job_id=f"job-{n}") for n in range(5)]
    runs[4].job = msgspec.structs.replace(runs[4].job, priority="urgent")
    tasks = [asyncio.create_task(bench.driver.drive(run)) for run in runs]
    await asyncio.to_thread(server.wait_for, 1)
    assert bench.driver.gate.waiting == 4
    outcomes = await asyncio.gather(*tasks)
    assert all(isinstance(outcome, Judgement) for outcome in outcomes)
    asked = [request.body["messages"][0]["content"] for request in server.requests]
    order = [next(n for n in range(5) if f"Gladly, {n}." in text) for text in asked]
    assert order == [0, 4, 1, 2, 3]


async def test_waiting_for_the_limit_is_no_part_of_the_deadline(
    server: api.MessagesApi, judge: AnthropicJudge
) -> None:
    """A job would be `timeout` that never was too slow itself; a wait between two calls is no different."""
    bench = Bench(judge, RetryPolicy(deadline_s=50.0), calls=1, call_s=10.0)
    server.script(*[api.message(POLITE)] * 16)
    runs = [run_of("Gladly.", "Of course.", job_id=f"job-{n}") for n in range(8)]
    outcomes = await asyncio.gather(*(bench.driver.drive(run) for run in runs))
    results = [outcome.result for outcome in outcomes if isinstance(outcome, Judgement)]
    assert results == [Verdict(data={"polite": [True, True]})] * 8


async def test_when_the_breaker_opens_those_at_the_gate_are_put_off(
    server: api.MessagesApi, judge: AnthropicJudge
) -> None:
    bench = Bench(judge, calls=1, cool_down_s=60.0)
    server.script(msgspec.structs.replace(api.rate_limited(retry_after="60"), delay_s=0.1))
    outcomes = await asyncio.gather(*(bench.driver.drive(run_of(job_id=f"job-{n}")) for n in range(8)))
    assert [type(outcome) for outcome in outcomes] == [Postponed] * 8
    assert len(server.requests) == 1
    assert bench.driver.gate.waiting == bench.driver.gate.limiter.concurrency.in_flight == 0


async def test_a_run_without_an_open_question_takes_no_answer(bench: Bench) -> None:
    with pytest.raises(RuntimeError):
        run_of(" ").answer(msgspec.UNSET)  # type: ignore[arg-type]
