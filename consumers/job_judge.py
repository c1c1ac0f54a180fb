"""From a job to its judgement: the session, the rubric, the prompt, and what a screen says before (J3)."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
import structlog

from consumers.asker import Asker
from consumers.outage import Outage
from consumers.screening import Screener
from monitor.config import JudgeSettings
from monitor.decision import Job
from monitor.errors import BackslideError
from monitor.judgement import Judgement, Unscored
from monitor.judging.accounting import OnCall
from monitor.judging.batches import BatchPost, answered
from monitor.judging.breaker import Breaker
from monitor.judging.deferred import DeferredRun
from monitor.judging.drive import JobRun
from monitor.judging.extract import prompt_of
from monitor.judging.flow import judgement
from monitor.judging.model import JudgeModel
from monitor.judging.prices import FREE, Price
from monitor.judging.prompt import Prompt, Prompts
from monitor.judging.screen import screened_out, with_screen
from monitor.rubrics import RUBRICS
from monitor.rubrics.base import Rubric
from monitor.session import Session, content_hash, session_view

Load = Callable[[str, str], Prompt]
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class InvalidJob(BackslideError):
    """A job that no judge can be asked about: `undecodable`, `unknown_rubric` or `hash_mismatch`."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class JobJudge:
    """Judges jobs with one model. Raises `ConfigError` when a rubric's prompt can't be loaded.

    `screener` is asked first where a rubric is screened. `prompt` loads the prompt of a rubric with an assistant's
    constraints. `post` takes the questions of deferred jobs. See `Asker` for the others.
    """

    def __init__(
        self,
        settings: JudgeSettings,
        model: JudgeModel,
        *,
        on_call: OnCall | None = None,
        on_same_family: Callable[[], None] | None = None,
        rubrics: Mapping[str, Rubric] = RUBRICS,
        prompt: Load | None = None,
        price: Price = FREE,
        breaker: Breaker | None = None,
        outage: Outage | None = None,
        post: BatchPost | None = None,
        screener: Screener | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.model = model
        self.post = post
        self.rubrics = rubrics
        self._settings = settings
        self._screener = screener
        self._prompts = Prompts(settings.constraints, prompt)
        self._asker = Asker(
            model,
            settings,
            on_call=on_call,
            on_same_family=on_same_family,
            price=price,
            breaker=breaker,
            outage=outage,
            clock=clock,
        )
        self.gate = self._asker.gate
        self._log = structlog.get_logger().bind(process="judge")
        for rubric in rubrics.values():
            prompt_of(self._prompts, rubric, None)

    @property
    def down(self) -> str | None:
        """Say why the judge, or the screen before it, can't be asked just now, or None when both can."""
        return self._asker.down or (self._screener.down if self._screener is not None else None)

    @property
    def batches_down(self) -> str | None:
        """Say why batches can't be used just now, or None: deferred jobs wait then, and nothing else does."""
        trouble = self.post.trouble if self.post is not None else None
        return f"batches are down: {trouble}" if trouble else None

    def stop(self) -> None:
        """Wait for the judge no longer: jobs that do are given up; those that are being asked about go on."""
        self._asker.stop()
        if self._screener is not None:
            self._screener.stop()

    async def judge(self, job: Job, *, deferred: bool = False) -> Judgement | None:
        """Judge a job, by batch if it is `deferred`; None when it had to be given up because of `stop`.

        What a rubric or a model trips over is `Unscored(error)`. Raises `InvalidJob`, and `ConfigError` for a
        prompt that doesn't fit its rubric.
        """
        rubric = self.rubrics.get(job.rubric)
        if rubric is None:
            raise InvalidJob("unknown_rubric", f"there is no rubric {job.rubric!r} in this version")
        session = _session(job)
        self._asker.heed_family(session.attributes.model)
        prompt = prompt_of(self._prompts, rubric, session.attributes.assistant)
        try:
            run = self._run(job, session, rubric, prompt, deferred=deferred)
        except BackslideError:
            raise
        except Exception as error:  # noqa: BLE001 - see `_in_full`
            return self._failed(job, rubric, prompt, None, error)
        if self._screener is None or not _asks(run):
            return await self._in_full(run)
        return await self._screened(self._screener, run)

    async def _screened(self, screener: Screener, run: JobRun | DeferredRun) -> Judgement | None:
        """Screen a job that is to be screened; what the screen passes over is judged only if the coin says so."""
        question = screener.question(run.job, run.session)
        if question is None:
            return await self._in_full(run)
        answer = await screener.ask(question)
        if answer is None:
            return None
        screening = screener.read(answer)
        if screening.out:
            version, mode = run.rubric.version, run.rubric.mode
            return with_screen(screened_out(answer, self.model, run.prompt, version, mode), screening)
        full = await self._in_full(run)
        return None if full is None else with_screen(full, screening)

    def _run(
        self, job: Job, session: Session, rubric: Rubric, prompt: Prompt, *, deferred: bool
    ) -> JobRun | DeferredRun:
        if deferred and self.post is not None:
            return DeferredRun(job, session, rubric, prompt, max_tokens=self._settings.max_tokens)
        return JobRun(job, session, rubric, prompt, max_tokens=self._settings.max_tokens)

    async def _in_full(self, run: JobRun | DeferredRun) -> Judgement | None:
        try:
            if isinstance(run, JobRun):
                return await self._asker.drive(run)
            return await self._deferred(run)
        except BackslideError:
            raise
        except Exception as error:  # noqa: BLE001 - one session must not stop all others, whatever it trips over
            return self._failed(run.job, run.rubric, run.prompt, run, error)

    async def _deferred(self, run: DeferredRun) -> Judgement | None:
        started_at = _now_ms()
        if self.post is None or not await answered(run, self.post):
            return None
        return run.judgement(
            self.model, started_at=started_at, finished_at=_now_ms(), prices=self._asker.price.version
        )

    def _failed(
        self,
        job: Job,
        rubric: Rubric,
        prompt: Prompt,
        run: JobRun | DeferredRun | None,
        error: Exception,
    ) -> Judgement:
        self._log.error("judging_failed", job_id=job.job_id, error=type(error).__name__, where=_where(error))
        now = _now_ms()
        asked = run if isinstance(run, JobRun) else None
        return judgement(
            job,
            rubric,
            prompt,
            self.model,
            Unscored(reason="error", note=type(error).__name__),
            [] if asked is None else asked.outcomes,
            started_at=now if asked is None or asked.started_at is None else asked.started_at,
            finished_at=now,
            prices=self._asker.price.version,
        )


def _asks(run: JobRun | DeferredRun) -> bool:
    """Say whether a run has a question at all: a session that the rubric doesn't concern needs no screen."""
    return run.request is not None if isinstance(run, JobRun) else bool(run.questions)


def _session(job: Job) -> Session:
    # The hash decides which decision the judgement counts for (R1), so it has to be that of this very text.
    if content_hash(job.content) != job.content_hash:
        raise InvalidJob("hash_mismatch", "content_hash is not that of the job's content")
    try:
        return session_view(job.content)
    except UNREADABLE as error:
        raise InvalidJob("undecodable", f"the session can't be decoded: {type(error).__name__}") from None


def _now_ms() -> int:
    return round(time.time() * 1000)


def _where(error: Exception) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{frame.name}:{frame.lineno}"
