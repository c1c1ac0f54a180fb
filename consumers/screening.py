"""The screen in the judge process: its model, its own price and limits, and the count of what came of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Final

import structlog

from consumers.asker import Asker
from consumers.judge_check import JudgeCheck
from monitor.config import JudgeSettings
from monitor.decision import Job
from monitor.judgement import UNSCORED_REASONS, Judgement, Screening, Unscored
from monitor.judging.accounting import CallMeter
from monitor.judging.drive import JobRun
from monitor.judging.flow import judgement
from monitor.judging.model import Instrument, JudgeModel
from monitor.judging.open import open_judge
from monitor.judging.prices import Price, price_of
from monitor.judging.screen import Screens
from monitor.metrics import Meters
from monitor.session import Session

METERS: Final = ("screenings",)
RESULTS: Final = ("look", "audited", "screened_out", *UNSCORED_REASONS)
OnScreened = Callable[[str, str], None]


class Screener:
    """Asks the screen about jobs. `on_screened` hears of each rubric and what came of it, one of `RESULTS`."""

    def __init__(self, screens: Screens, asker: Asker, on_screened: OnScreened | None = None) -> None:
        self._screens = screens
        self._asker = asker
        self._on_screened = on_screened
        self._log = structlog.get_logger().bind(process="judge")

    @property
    def down(self) -> str | None:
        """Say why the screen can't be asked just now, or None when it can."""
        return self._asker.down

    def stop(self) -> None:
        """Wait for the screen no longer; see `Asker`."""
        self._asker.stop()

    def question(self, job: Job, session: Session) -> JobRun | None:
        """Give the question about a job, or None for one that isn't screened."""
        question = self._screens.question(job, session)
        if question is not None:
            self._asker.heed_family(session.attributes.model)
        return question

    async def ask(self, question: JobRun) -> Judgement | None:
        """Ask it; None when that had to be given up because of `stop`."""
        try:
            return await self._asker.drive(question)
        except Exception as error:  # noqa: BLE001 - one session must not stop all others, whatever it trips over
            self._log.error("screening_failed", job_id=question.job.job_id, error=type(error).__name__)
            return self._failed(question, error)

    def read(self, answer: Judgement) -> Screening:
        """Read its answer, and count it."""
        screening = self._screens.read(answer)
        if self._on_screened is not None:
            self._on_screened(answer.rubric, result(screening))
        return screening

    def _failed(self, question: JobRun, error: Exception) -> Judgement:
        now = round(time.time() * 1000)
        return judgement(
            question.job,
            question.rubric,
            question.prompt,
            self._asker.model,
            Unscored(reason="error", note=type(error).__name__),
            question.outcomes,
            started_at=now if question.started_at is None else question.started_at,
            finished_at=now,
            prices=self._asker.price.version,
        )


def result(screening: Screening) -> str:
    """Say what came of a screening: one of `RESULTS`."""
    if screening.verdict == "failed":
        return screening.reason or "error"
    if screening.verdict == "look":
        return "look"
    return "screened_out" if screening.out else "audited"


@asynccontextmanager
async def screening(
    settings: JudgeSettings, meters: Meters, judge: JudgeModel, judged: CallMeter, strata: Iterable[str]
) -> AsyncIterator[Screener | None]:
    """Open the screen that the settings ask for, and ask its provider about it; None when there is none.

    `judged` counts the calls of `judge`: those of a screen that is the same model belong to the same series.
    Raises `ConfigError`.
    """
    if not settings.screen.model:
        yield None
        return
    screens = Screens(settings.screen, settings.constraints)
    model = open_judge(settings.screen)
    check = JudgeCheck(model, settings.screen, meters)
    try:
        price = price_of(model.name, settings.prices)
        announce(model, price)
        asked = await check.first()
        on_call = judged
        if model.name != judge.name:
            on_call = CallMeter(meters, model, rubrics=screens.rubrics, strata=strata)
        same_family = meters.counter("judge_same_family", provider=model.provider, model=model.model)
        asker = Asker(model, settings.screen, on_call=on_call, on_same_family=same_family.inc, price=price)
        watching = asyncio.create_task(check.watch(asked), name="screen-check")
        try:
            yield Screener(screens, asker, _counted(meters, screens.rubrics))
        finally:
            watching.cancel()
    finally:
        await model.aclose()


def announce(model: Instrument, price: Price) -> None:
    """Say at the start where text goes and what it costs."""
    log = structlog.get_logger().bind(process="judge", judge=model.name)
    if model.provider != "lexical":
        log.warning("sends_text_unredacted")
    if not price.free:
        log.info("judge_price", prices=price.version, usd_per_million_tokens=price.rates.per_million())


def _counted(meters: Meters, rubrics: Iterable[str]) -> OnScreened:
    for rubric in rubrics:
        for name in RESULTS:
            meters.counter("screenings", rubric=rubric, result=name)
    return lambda rubric, name: meters.counter("screenings", rubric=rubric, result=name).inc()
