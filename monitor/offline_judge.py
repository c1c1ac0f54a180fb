"""Judging without a broker: the same flow, driver and retries as the judge process, one session after the other.

Judgements are dated with the stream time at which their session closed, so that the same input gives the same
bytes (a model's own answers aside).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final, Literal

import msgspec
import structlog

from monitor.config import JudgeSettings
from monitor.decision import Job
from monitor.errors import JudgeError, JudgeUnavailable
from monitor.judgement import Judgement
from monitor.judging.accounting import ANSWERED, TOKEN_TYPES, Call
from monitor.judging.breaker import Breaker
from monitor.judging.check import check_judge
from monitor.judging.drive import Driver, JobRun, Postponed
from monitor.judging.extract import prompt_of
from monitor.judging.family import FamilyWarning
from monitor.judging.gate import Gate
from monitor.judging.limits import Limiter
from monitor.judging.model import JudgeModel
from monitor.judging.open import limit_policy, open_judge, retry_policy
from monitor.judging.prices import FREE, Price, price_of
from monitor.judging.prompt import Prompts
from monitor.judging.screen import Screens, screened_out, with_screen
from monitor.rubrics.base import Rubric
from monitor.session import session_view
from monitor.settings import InstrumentSettings, PriceSettings, ScreenSettings

PATIENCE_S: Final = 1_800.0
"""Waiting for a provider that is down, in seconds a job, until the whole command gives up."""


class OfflineScreen(msgspec.Struct, kw_only=True, frozen=True):
    """The screen before an offline judge: what is asked, who answers, and at which price."""

    screens: Screens
    model: JudgeModel
    settings: ScreenSettings
    price: Price = FREE


@asynccontextmanager
async def checked_judge(settings: JudgeSettings) -> AsyncIterator[tuple[JudgeModel, Price]]:
    """Open the judge of the settings for a command that asks it now: priced, and its provider asked about it.

    Raises `ConfigError` before anything is paid for; a provider that can't be asked about its models is a warning.
    """
    async with _checked(settings, settings.prices) as checked:
        yield checked


@asynccontextmanager
async def checked_screen(settings: JudgeSettings) -> AsyncIterator[OfflineScreen | None]:
    """Open the screen of the settings in the same way; None when there is none."""
    if not settings.screen.model:
        yield None
        return
    screens = Screens(settings.screen, settings.constraints)
    async with _checked(settings.screen, settings.prices) as (model, price):
        yield OfflineScreen(screens=screens, model=model, settings=settings.screen, price=price)


@asynccontextmanager
async def _checked(
    settings: InstrumentSettings, prices: Mapping[str, PriceSettings | Literal["free"]]
) -> AsyncIterator[tuple[JudgeModel, Price]]:
    model = open_judge(settings)
    log = structlog.get_logger().bind(judge=model.name)
    try:
        price = price_of(model.name, prices)
        try:
            checked = await check_judge(model, settings)
        except JudgeError as error:
            log.warning("judge_unchecked", reason=f"{error}: the model could not be checked; going on")
        else:
            for warning in checked.warnings:
                log.warning("judge_warning", reason=warning)
        yield model, price
    finally:
        await model.aclose()


class Calls(msgspec.Struct, kw_only=True):
    """What the judge was asked: answered calls under `none`, failed ones by error type; tokens by type; 1e-9 $."""

    by_error_type: Counter[str] = msgspec.field(default_factory=Counter)
    tokens: Counter[str] = msgspec.field(default_factory=Counter)
    cost_nusd: int = 0

    def add(self, call: Call) -> None:
        """Count a call."""
        self.by_error_type[call.error_type or ANSWERED] += 1
        self.cost_nusd += call.cost_nusd
        for name in TOKEN_TYPES:
            if tokens := getattr(call.usage, f"{name}_tokens"):
                self.tokens[name] += tokens


class OfflineJudge:
    """Answers jobs with one model, charged at `price`. Safe to be asked by several tasks at a time.

    `prompts` are those to judge with, by default the ones in use with the settings' constraints.
    With a `screen` live jobs are shown to that first, as in the judge process.
    """

    def __init__(
        self,
        model: JudgeModel,
        rubrics: Mapping[str, Rubric],
        settings: JudgeSettings,
        *,
        price: Price = FREE,
        prompts: Prompts | None = None,
        screen: OfflineScreen | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.model = model
        self.calls = Calls()
        self.prompts = prompts or Prompts(settings.constraints)
        self._rubrics = rubrics
        self._max_tokens = settings.max_tokens
        self._lane = _Lane(model, settings, price, self.calls, sleep, patience_s)
        self._screens = None if screen is None else screen.screens
        self._screen_lane: _Lane | None = None
        if screen is not None:
            self._screen_lane = _Lane(screen.model, screen.settings, screen.price, self.calls, sleep, patience_s)

    async def judge(self, job: Job, closed_at: int) -> Judgement:
        """Answer a job, dated `closed_at` (Unix milliseconds).

        Raises `JudgeFatal` for what no waiting mends, and `JudgeUnavailable` when the provider stays away.
        """
        session = session_view(job.content)
        rubric = self._rubrics[job.rubric]
        prompt = prompt_of(self.prompts, rubric, session.attributes.assistant)
        run = JobRun(job, session, rubric, prompt, max_tokens=self._max_tokens)
        question = self._screens.question(job, session) if self._screens and run.request else None
        if self._screens is None or self._screen_lane is None or question is None:
            return await self._lane.drive(run, closed_at)
        answer = await self._screen_lane.drive(question, closed_at)
        screening = self._screens.read(answer)
        if screening.out:
            return with_screen(screened_out(answer, self.model, prompt, rubric.version, rubric.mode), screening)
        return with_screen(await self._lane.drive(run, closed_at), screening)


class _Lane:
    """One model with its limits; patient with a provider that is away."""

    def __init__(
        self,
        model: JudgeModel,
        settings: InstrumentSettings,
        price: Price,
        calls: Calls,
        sleep: Callable[[float], Awaitable[None]],
        patience_s: float,
    ) -> None:
        self._model = model
        self._family = FamilyWarning(model)
        self._policy = retry_policy(settings)
        self._breaker = Breaker()
        self._gate = Gate(Limiter(limit_policy(settings)))
        self._price = price
        self._calls = calls
        self._sleep = sleep
        self._patience_s = patience_s

    async def drive(self, run: JobRun, closed_at: int) -> Judgement:
        self._family.heed(run.session.attributes.model)
        driver = Driver(
            self._model,
            self._policy,
            breaker=self._breaker,
            gate=self._gate,
            price=self._price,
            on_call=self._calls.add,
            wall=lambda: closed_at / 1000,
            sleep=self._sleep,
        )
        waited = 0.0
        while isinstance(outcome := await driver.drive(run), Postponed):
            waited += outcome.retry_in
            if waited > self._patience_s:
                raise JudgeUnavailable(
                    run.error_type or "connection",
                    f"the judge {self._model.name} has been unavailable for {waited:.0f} s; try again later",
                )
            await self._sleep(outcome.retry_in)
        return outcome
