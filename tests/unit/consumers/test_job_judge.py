"""From a job to its judgement: what goes wrong with one session, and what with the judge (J1, J3)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from consumers.job_judge import InvalidJob, JobJudge
from consumers.outage import Outage
from monitor.config import JudgeSettings
from monitor.decision import Job
from monitor.errors import ConfigError, JudgeError, JudgeFatal, JudgeUnavailable
from monitor.events import Turn, encode
from monitor.judgement import Judgement, Unscored, Verdict
from monitor.judging.breaker import Breaker, BreakerPolicy
from monitor.judging.model import Completion, JudgeRequest
from monitor.judging.prompt import Prompt, parse
from monitor.session import SessionContent, content_hash
from tests.consumers.broker_io import until
from tests.unit.judging.politeness import POLITE, PROMPT_FILE, Politeness

Answer = Callable[[JudgeRequest], str]


class Model:
    name, provider, model = "fake", "fake", "fake-1"

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.asked: list[JudgeRequest] = []

    async def complete(self, request: JudgeRequest, *, timeout: float) -> Completion:  # noqa: ASYNC109
        self.asked.append(request)
        await asyncio.sleep(0)
        return Completion(text=self.answer(request))

    async def aclose(self) -> None:
        """Nothing is open."""


def raiser(error: Exception) -> Answer:
    def answer(_: JudgeRequest) -> str:
        raise error

    return answer


def job(*replies: str, rubric: str = "politeness", assistant_model: str | None = None) -> Job:
    events = [
        Turn(
            event_id=f"e{at}", session_id="s", ts=at, turn_id=f"t{at}", role="assistant", text=text,
            assistant="concierge", model=assistant_model,
        )
        for at, text in enumerate(replies)
    ]  # fmt: skip
    content = SessionContent(
        tenant="default", session_id="s", segment="e0", previous_segment=None, close_reason="ended",
        events=[msgspec.Raw(encode(event)) for event in events],
    )  # fmt: skip
    raw = msgspec.Raw(msgspec.json.encode(content))
    return Job(
        job_id="j", tenant="default", session_id="s", segment="e0", rubric=rubric, stratum="base",
        priority="routine", content_hash=content_hash(raw), content=raw,
    )  # fmt: skip


def prompt(rubric: str, constraints: str) -> Prompt:
    return parse(PROMPT_FILE, rubric=rubric, version="v1", constraints=constraints)


def judge(model: Model, rubric: Any = None, **more: Any) -> JobJudge:
    return JobJudge(
        JudgeSettings(constraints={"*": "Be fair.", "concierge": "No jokes."}),
        model,
        rubrics={"politeness": rubric or Politeness()},
        prompt=more.pop("prompt", prompt),
        breaker=Breaker(BreakerPolicy(cool_down_s=0.02, max_cool_down_s=0.04)),
        outage=Outage(0.05, 0.1),
        **more,
    )


async def judged(judge: JobJudge, job: Job) -> Judgement:
    result = await asyncio.wait_for(judge.judge(job), 10)
    assert result is not None
    return result


async def test_a_job_gives_its_judgement_with_the_constraints_of_its_assistant() -> None:
    model = Model(lambda _: POLITE)
    result = await judged(judge(model), job("Gladly.", "Gladly!"))
    assert result.result == Verdict(data={"polite": [True, True]})
    assert (result.job_id, result.content_hash, result.judge) == (
        "j",
        job("Gladly.", "Gladly!").content_hash,
        "fake",
    )
    assert "Be fair." in model.asked[0].system
    assert "No jokes." in model.asked[0].system


async def test_a_judge_of_the_assistants_own_family_is_counted_each_time_and_said_once() -> None:
    model, counted = Model(lambda _: POLITE), []
    model.model = "claude-haiku-5-5"
    own = judge(model, on_same_family=lambda: counted.append(1))
    with capture_logs() as logs:
        for assistant in ("claude-opus-5-5", "gpt-6", "anthropic.claude-sonnet-5-5-v1:0", None, "our-own"):
            await judged(own, job("Gladly.", assistant_model=assistant))
    assert len(counted) == 2
    said = [entry for entry in logs if entry["event"] == "judge_of_the_same_family"]
    assert [(entry["family"], entry["assistant_model"]) for entry in said] == [("anthropic", "claude-opus-5-5")]


async def test_jobs_that_nobody_can_judge_are_told_apart() -> None:
    own = judge(Model(lambda _: POLITE))
    good = job("Gladly.")
    odd = msgspec.Raw(b'{"tenant":1}')
    for broken, reason in [
        (job("Gladly.", rubric="manners"), "unknown_rubric"),
        (msgspec.structs.replace(good, content_hash="0" * 32), "hash_mismatch"),
        (msgspec.structs.replace(good, content=odd, content_hash=content_hash(odd)), "undecodable"),
    ]:
        with pytest.raises(InvalidJob) as caught:
            await own.judge(broken)
        assert caught.value.reason == reason


class CutsNothing(Politeness):
    def windows(self, session: Any) -> Any:
        raise KeyError("a secret of the session")


class ReadsNothing(Politeness):
    def parse(self, raw: str, window: Any) -> Any:
        raise ZeroDivisionError


class CountsNothing(Politeness):
    def outcomes(self, result: Any) -> Any:
        raise LookupError


@pytest.mark.parametrize(
    ("rubric", "answer", "note"),
    [
        (CutsNothing(), lambda _: POLITE, "KeyError"),
        (ReadsNothing(), lambda _: POLITE, "ZeroDivisionError"),
        (CountsNothing(), lambda _: POLITE, "LookupError"),
        (Politeness(), raiser(TypeError("a bug of the adapter")), "TypeError"),
    ],
)
async def test_a_bug_leaves_one_session_unscored(rubric: Any, answer: Answer, note: str) -> None:
    """One session must not stop all others; the note is the kind of error alone."""
    result = await judged(judge(Model(answer), rubric), job("Gladly."))
    assert result.result == Unscored(reason="error", note=note)
    assert result.outcomes.measures == {}
    assert (result.rubric, result.prompt_version, result.content_hash) == (
        "politeness", "v1", job("Gladly.").content_hash,
    )  # fmt: skip


async def test_a_prompt_that_can_not_be_used_is_nobody_elses_fault() -> None:
    def missing(rubric: str, constraints: str) -> Prompt:
        raise ConfigError("there is no such prompt")

    with pytest.raises(ConfigError):
        judge(Model(lambda _: POLITE), prompt=missing)

    def asks_for_more(rubric: str, constraints: str) -> Prompt:
        return parse(PROMPT_FILE.replace("{{text}}", "{{weather}}"), rubric=rubric, version="v1")

    with pytest.raises(ConfigError, match="weather"):
        await judge(Model(lambda _: POLITE), prompt=asks_for_more).judge(job("Gladly."))


@pytest.mark.parametrize(
    "error",
    [
        JudgeFatal("authentication", "the key is not valid"),
        JudgeUnavailable("overloaded", "later", retry_after=3_600.0),
    ],
)
async def test_a_judge_that_is_down_keeps_the_job_until_it_answers(error: JudgeError) -> None:
    """J3: it says so, tries again after pauses, and pays for nothing twice."""
    model = Model(lambda _: POLITE)
    own = judge(model)
    assert own.down is None
    calls = 0

    def second_fails(_: JudgeRequest) -> str:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise error
        return POLITE

    model.answer = second_fails
    began = time.monotonic()
    task = asyncio.create_task(own.judge(job("Gladly.", "Gladly!")))
    await until(lambda: calls >= 4 and error.error_type in (own.down or ""), 10, every=0.005)
    assert not task.done()
    assert calls <= 2 + (time.monotonic() - began) / 0.02, "no pause is shorter than the breaker's first"
    model.answer = lambda _: POLITE
    result = await asyncio.wait_for(task, 5)
    assert isinstance(result, Judgement)
    assert isinstance(result.result, Verdict)
    assert (
        sum(attempt.kind == "valid" for attempt in result.attempts) == 2
    )  # the first window was asked about once
    assert own.down is None


async def test_an_answer_to_one_job_wakes_those_that_wait() -> None:
    model = Model(raiser(JudgeFatal("permission", "no")))
    own = JobJudge(
        JudgeSettings(),
        model,
        rubrics={"politeness": Politeness()},
        prompt=prompt,
        breaker=Breaker(BreakerPolicy(cool_down_s=0.1, max_cool_down_s=60.0)),
        outage=Outage(0.2, 60.0),
    )
    tasks = [
        asyncio.create_task(own.judge(msgspec.structs.replace(job("Gladly."), job_id=str(at)))) for at in range(20)
    ]
    await asyncio.sleep(0.1)
    assert own.down is not None
    model.answer = lambda _: POLITE
    began = time.monotonic()
    results = await asyncio.wait_for(asyncio.gather(*tasks), 10)
    assert time.monotonic() - began < 3
    assert all(result is not None and isinstance(result.result, Verdict) for result in results)


async def test_stop_gives_up_jobs_that_wait_but_not_those_under_way() -> None:
    model = Model(raiser(JudgeFatal("spend_limit", "no credit")))
    own = JobJudge(
        JudgeSettings(), model, rubrics={"politeness": Politeness()}, prompt=prompt, outage=Outage(60.0)
    )
    waits = asyncio.create_task(own.judge(job("Gladly.")))
    await asyncio.sleep(0.05)
    own.stop()
    assert await asyncio.wait_for(waits, 1) is None

    model = Model(lambda _: POLITE)
    own = judge(model)
    goes_on = asyncio.create_task(own.judge(job("Gladly.", "Gladly!")))
    await asyncio.sleep(0)
    own.stop()
    result = await asyncio.wait_for(goes_on, 1)
    assert isinstance(result, Judgement)
