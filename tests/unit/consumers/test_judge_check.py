"""The judge process looks at its model: what stops it, what it only says, and what it asks again."""

import asyncio
import time
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from consumers.health import Health
from consumers.judge import METERS as JUDGE_METERS
from consumers.judge import serve
from consumers.judge_check import JudgeCheck
from monitor.config import JudgeSettings, load
from monitor.errors import ConfigError, JudgeUnavailable
from monitor.judging.accounting import METERS
from monitor.judging.check import ModelFacts
from monitor.judging.model import Completion, JudgeRequest
from monitor.metrics import Meters
from tests.services import messages_api as api

LABELS = {"provider": "told", "model": "m"}
RETIRES = "backslide_judge_model_retires_timestamp_seconds"


class Told:
    """A judge whose provider says of its model what it is told to say, the last thing again and again."""

    name, provider, model = "told:m", "told", "m"

    def __init__(self, *answers: ModelFacts | Exception | None) -> None:
        self.answers = list(answers)
        self.asked = 0

    async def complete(self, request: JudgeRequest, *, timeout: float) -> Completion:  # noqa: ASYNC109
        raise NotImplementedError

    async def describe(self, *, timeout: float) -> ModelFacts | None:  # noqa: ASYNC109
        self.asked += 1
        answer = self.answers[min(self.asked, len(self.answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def aclose(self) -> None:
        return


def meters() -> Meters:
    return Meters(METERS, version="test", process="judge")


def check(told: Told, seen: Meters, again_s: float = 0.01, retry_s: float = 0.01) -> JudgeCheck:
    return JudgeCheck(told, JudgeSettings(), seen, again_s=again_s, retry_s=retry_s)


async def watched(look: JudgeCheck, until: Callable[[], bool], *, asked: bool = True) -> None:
    task = asyncio.create_task(look.watch(asked))
    async with asyncio.timeout(10):
        while not until():
            assert not task.done()
            await asyncio.sleep(0.01)
    task.cancel()


async def test_the_retirement_date_is_a_gauge_and_goes_when_it_is_called_off() -> None:
    told, seen = Told(ModelFacts(retires_at=1_800_576_000.0), ModelFacts()), meters()
    look = check(told, seen)
    assert seen.registry.get_sample_value(RETIRES, LABELS) is None
    assert await look.first()
    assert seen.registry.get_sample_value(RETIRES, LABELS) == 1_800_576_000.0
    await watched(look, lambda: seen.registry.get_sample_value(RETIRES, LABELS) is None)


async def test_a_model_that_does_not_fit_stops_the_start() -> None:
    with pytest.raises(ConfigError, match=r"judge\.model"):
        await check(Told(ModelFacts(known=False)), meters()).first()


async def test_a_provider_that_is_away_stops_nothing_and_is_asked_again() -> None:
    away = JudgeUnavailable("connection", "connection failed: ConnectError")
    told, seen = Told(away, away, away, ModelFacts(retires_at=5.0)), meters()
    look = check(told, seen)
    with capture_logs() as logs:
        assert not await look.first()
        await watched(look, lambda: seen.registry.get_sample_value(RETIRES, LABELS) == 5.0, asked=False)
    assert [entry["event"] for entry in logs] == ["judge_unchecked"], "said once, not at each try"
    assert "connection failed" in logs[0]["reason"]


async def test_a_model_that_is_retired_meanwhile_is_said_and_ends_nothing() -> None:
    told = Told(ModelFacts(lifecycle="deprecated"), ModelFacts(lifecycle="retired"))
    look = check(told, meters())
    with capture_logs() as logs:
        await look.first()
        await watched(look, lambda: told.asked >= 5)
    assert [entry["event"] for entry in logs] == ["judge_warning", "judge_unfit"]


async def test_a_look_that_trips_is_not_the_last_one() -> None:
    told = Told(ModelFacts(), ValueError("what nobody thought of"), ModelFacts())
    look = check(told, meters())
    with capture_logs() as logs:
        await look.first()
        await watched(look, lambda: told.asked >= 4)
    assert [entry["event"] for entry in logs] == ["judge_check_failed"]


async def test_the_process_does_not_start_with_a_model_that_the_provider_does_not_have() -> None:
    """Seen before the broker is asked for anything: there is none here."""
    with api.MessagesApi() as server:
        server.models = [api.model("claude-haiku-5-5")]
        named = {
            "judge.model": "anthropic:claude-hiaku-5-5",
            "judge.api_key": api.API_KEY,
            "judge.base_url": server.base_url,
        }
        seen = Meters(JUDGE_METERS, version="test", process="judge")
        started = serve(load(overrides=named), seen, asyncio.Event(), Health(time.monotonic))
        with pytest.raises(ConfigError, match=r"judge\.model.*claude-haiku-5-5"):
            await asyncio.wait_for(started, 30)
