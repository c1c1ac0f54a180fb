"""A job before its judge: shown to the screen, passed over or not, and what happens when the screen fails."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from consumers.asker import Asker
from consumers.job_judge import JobJudge
from consumers.outage import Outage
from consumers.screening import RESULTS, Screener
from monitor.config import JudgeSettings
from monitor.decision import Job
from monitor.errors import JudgeFatal, JudgeUnavailable
from monitor.judgement import Judgement, Outcomes, Skipped, Stage, Tally, Unscored, Verdict
from monitor.judging.breaker import Breaker, BreakerPolicy
from monitor.judging.lexical import LexicalJudge
from monitor.judging.model import Completion, JudgeRequest
from monitor.judging.prompt import load
from monitor.judging.repeat import repeatable
from monitor.judging.screen import Screens, ScreenWindow, audited
from monitor.session import content_hash
from monitor.settings import ScreenSettings
from tests.consumers.broker_io import until
from tests.consumers.judge_place import job

LOOK = '{"quote": "I said", "look": true}'
CLEAR = '{"quote": "", "look": false}'


class Screen:
    """A screen that answers as it is told; an exception is raised instead."""

    name, provider, model = "anthropic:cheap", "anthropic", "claude-cheap"

    def __init__(self, answer: str | Exception = CLEAR) -> None:
        self.answer = answer
        self.asked: list[JudgeRequest] = []

    async def complete(self, request: JudgeRequest, *, timeout: float) -> Completion:  # noqa: ASYNC109
        assert isinstance(request.window, ScreenWindow)
        self.asked.append(request)
        await asyncio.sleep(0)
        if isinstance(self.answer, Exception):
            raise self.answer
        return Completion(text=self.answer)

    async def aclose(self) -> None:
        """Nothing is open."""


class Full(LexicalJudge):
    """The judge, which remembers what it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    async def complete(self, request: JudgeRequest, *, timeout: float) -> Completion:  # noqa: ASYNC109
        self.asked.append(request.window_id)
        return await super().complete(request, timeout=timeout)


class Bench:
    """A judge with a screen before it."""

    def __init__(self, answer: str | Exception = CLEAR, *, one_in: int = 4) -> None:
        settings = ScreenSettings(model="anthropic:cheap", audit_share=1 / one_in, retry_after_cap_s=1)
        self.screen, self.full, self.results = Screen(answer), Full(), Counter[tuple[str, str]]()
        self.family = 0
        self.asker = Asker(
            self.screen,
            settings,
            breaker=Breaker(BreakerPolicy(cool_down_s=0.02, max_cool_down_s=0.04)),
            outage=Outage(0.05, 0.1),
            on_same_family=self._same,
        )
        screener = Screener(Screens(settings, {}), self.asker, lambda *what: self.results.update([what]))
        self.judge = JobJudge(JudgeSettings(), self.full, screener=screener)

    def _same(self) -> None:
        self.family += 1

    async def judged(self, of: Job) -> Judgement:
        found = await asyncio.wait_for(self.judge.judge(of), 10)
        assert found is not None
        return found


def drawn(one_in: int, *, yes: bool, **more: Any) -> Job:
    """Make a job that the coin of the audit picks, or doesn't."""
    return next(
        each for number in range(1_000) if audited((each := job(f"s{number}", **more)).job_id, one_in) == yes
    )


async def test_what_the_screen_wants_looked_at_is_judged_as_ever() -> None:
    bench = Bench(LOOK)
    found = await bench.judged(job("ann"))
    without = await JobJudge(JudgeSettings(), LexicalJudge()).judge(job("ann"))
    assert without is not None
    assert (found.result, found.outcomes) == (without.result, without.outcomes)
    assert found.screen is not None
    assert (found.screen.verdict, found.screen.quote, found.screen.judge) == ("look", "I said", "anthropic:cheap")
    assert found.judge == "lexical"
    assert bench.full.asked == ["C1"]
    assert bench.results == {("correction", "look"): 1}


async def test_what_the_screen_passes_over_costs_no_call_of_the_judge() -> None:
    bench = Bench()
    of = drawn(4, yes=False)
    found = await bench.judged(of)
    assert found.result == Skipped(reason="screened_out")
    assert (found.outcomes, found.attempts, found.cost_nusd) == (Outcomes(), [], 0)
    assert (found.judge, found.mode, found.prompt_hash) == ("lexical", "event", load("correction").prompt_hash)
    assert (found.job_id, found.content_hash) == (of.job_id, of.content_hash)
    assert found.screen is not None
    assert [attempt.raw for attempt in found.screen.attempts] == [CLEAR]
    assert found.screen.probability == 0.25
    assert bench.full.asked == []
    assert bench.results == {("correction", "screened_out"): 1}


async def test_one_that_is_audited_is_judged_and_stands_for_the_others() -> None:
    bench = Bench()
    found = await bench.judged(drawn(4, yes=True, corrections=10))
    assert isinstance(found.result, Verdict)
    assert found.outcomes.measures["reverted"] == Tally(trials=8, failures=0)
    assert found.outcomes.stage == Stage(found=40, judged=8)
    assert found.screen is not None
    assert (found.screen.verdict, found.screen.audited) == ("clear", True)
    assert bench.results == {("correction", "audited"): 1}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("no JSON", "invalid"),
        (JudgeFatal("too_large", "a prompt of 300000 tokens"), "error"),
        (ZeroDivisionError(), "error"),
    ],
)
async def test_a_screen_that_fails_lets_the_judge_look(answer: str | Exception, reason: str) -> None:
    bench = Bench(answer)
    with capture_logs():
        found = await bench.judged(drawn(4, yes=False))
    assert isinstance(found.result, Verdict)
    assert found.outcomes.stage == Stage()
    assert found.screen is not None
    assert (found.screen.verdict, found.screen.reason, found.screen.one_in) == ("failed", reason, 1)
    assert bench.results == {("correction", reason): 1}
    assert reason in RESULTS


@pytest.mark.parametrize(
    "error",
    [JudgeFatal("spend_limit", "no credit"), JudgeUnavailable("overloaded", "later", retry_after=2.0)],
)
async def test_a_screen_that_is_down_pauses_the_judge_and_nothing_is_judged_without_it(error: Exception) -> None:
    bench = Bench(error)
    task = asyncio.create_task(bench.judge.judge(drawn(4, yes=False)))
    await until(lambda: bench.judge.down, 10, every=0.005)
    assert bench.judge.down == f"the screen is down: {error.error_type}"  # type: ignore[attr-defined]
    assert bench.full.asked == []
    bench.screen.answer = CLEAR
    found = await asyncio.wait_for(task, 10)
    assert found is not None
    assert found.result == Skipped(reason="screened_out")
    assert bench.judge.down is None


async def test_stop_gives_up_what_waits_for_the_screen() -> None:
    bench = Bench(JudgeFatal("permission", "no"))
    task = asyncio.create_task(bench.judge.judge(job("ann")))
    await until(lambda: bench.judge.down, 10, every=0.005)
    bench.judge.stop()
    assert await asyncio.wait_for(task, 5) is None


async def test_a_session_that_the_rubric_does_not_concern_is_not_screened() -> None:
    bench = Bench()
    found = await bench.judged(job("ann", rubric="hallucination"))  # without any evidence
    assert isinstance(found.result, Skipped)
    assert found.screen is None
    assert bench.screen.asked == []


async def test_a_repeat_is_judged_in_full_and_not_due_where_the_judge_was_not_asked() -> None:
    bench = Bench()
    again = await bench.judged(msgspec.structs.replace(drawn(4, yes=False), run="repeat"))
    assert isinstance(again.result, Verdict)
    assert (again.screen, bench.screen.asked) == (None, [])
    assert repeatable(again)
    assert not repeatable(await bench.judged(drawn(4, yes=False)))
    assert repeatable(await bench.judged(drawn(4, yes=True)))
    assert not repeatable(msgspec.structs.replace(again, result=Unscored(reason="timeout")))


async def test_a_screen_of_the_assistants_own_family_is_counted() -> None:
    bench = Bench()
    events = msgspec.json.decode(job("ann").content)
    events["events"][0]["model"] = "claude-opus-5-5"
    content = msgspec.Raw(msgspec.json.encode(events))
    of = msgspec.structs.replace(job("ann"), content=content, content_hash=content_hash(content))
    with capture_logs() as logs:
        await bench.judged(of)
    assert bench.family == 1
    assert [(line["event"], line["judge"]) for line in logs] == [("judge_of_the_same_family", "anthropic:cheap")]
