"""From a job to its judgement: the session, the rubric, the prompt, and waiting while the judge is down (J3).

A job waits in its slot while the judge can't be asked. It goes on where it stopped, so nothing is paid for twice,
and it never turns into a score or an `Unscored` for a reason that isn't its own.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
import structlog

from consumers.outage import Outage
from monitor.config import JudgeSettings
from monitor.decision import Job
from monitor.errors import BackslideError, JudgeFatal
from monitor.judgement import Judgement, Unscored
from monitor.judging.accounting import Call, OnCall
from monitor.judging.batches import BatchPost, answered
from monitor.judging.breaker import Breaker
from monitor.judging.deferred import DeferredRun
from monitor.judging.drive import Driver, JobRun
from monitor.judging.family import families
from monitor.judging.flow import judgement
from monitor.judging.gate import Gate
from monitor.judging.limits import Limiter
from monitor.judging.model import JudgeModel
from monitor.judging.open import limit_policy, retry_policy
from monitor.judging.prices import FREE, Price
from monitor.judging.prompt import Prompt, Prompts
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

    `on_call` hears of every call, which is charged at `price`, `on_same_family` of every job whose assistant is of
    the judge's own family of models; all calls pass `gate`. `outage` says how long to wait after `JudgeFatal`,
    `breaker` how long otherwise. `prompt` loads the prompt of a rubric with an assistant's constraints. `post`
    takes the questions of deferred jobs. `clock` is monotonic, in seconds.
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
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.model = model
        self.post = post
        self.rubrics = rubrics
        self._settings = settings
        self._on_call = on_call
        self._on_same_family = on_same_family
        self._families = families(model.model)
        self._said: set[str] = set()
        self._prompts = Prompts(settings.constraints, prompt)
        self._outage = outage or Outage()
        self._clock = clock
        self.gate = Gate(Limiter(limit_policy(settings)), clock=clock)
        self._driver = Driver(
            model,
            retry_policy(settings),
            breaker=breaker,
            gate=self.gate,
            price=price,
            on_call=self._heard,
            clock=clock,
        )
        self._log = structlog.get_logger().bind(process="judge")
        self._waiting = 0
        self._stopping = False
        self._wake = asyncio.Event()
        self._trouble = ""
        for name in rubrics:
            self._prompts.of(name, None)

    @property
    def down(self) -> str | None:
        """Say why the judge can't be asked just now, or None when it can."""
        if not self._waiting and not self._driver.paused_for() and not self._outage.wait(self._clock()):
            return None
        return f"the judge is down: {self._trouble or 'see the log'}"

    @property
    def batches_down(self) -> str | None:
        """Say why batches can't be used just now, or None: deferred jobs wait then, and nothing else does."""
        trouble = self.post.trouble if self.post is not None else None
        return f"batches are down: {trouble}" if trouble else None

    def stop(self) -> None:
        """Wait for the judge no longer: jobs that do are given up; those that are being asked about go on."""
        self._stopping = True
        self._wake.set()

    async def judge(self, job: Job, *, deferred: bool = False) -> Judgement | None:
        """Judge a job, by batch if it is `deferred`; None when it had to be given up because of `stop`.

        What a rubric or a model trips over is `Unscored(error)`. Raises `InvalidJob`, and `ConfigError` for a
        prompt that doesn't fit its rubric.
        """
        rubric = self.rubrics.get(job.rubric)
        if rubric is None:
            raise InvalidJob("unknown_rubric", f"there is no rubric {job.rubric!r} in this version")
        session = _session(job)
        self._heed_family(session.attributes.model)
        prompt = self._prompts.of(rubric.name, session.attributes.assistant)
        run: JobRun | None = None
        try:
            if deferred and self.post is not None:
                later = DeferredRun(job, session, rubric, prompt, max_tokens=self._settings.max_tokens)
                return await self._deferred(later, self.post)
            run = JobRun(job, session, rubric, prompt, max_tokens=self._settings.max_tokens)
            return await self._drive(run)
        except BackslideError:
            raise
        except Exception as error:  # noqa: BLE001 - one session must not stop all others, whatever it trips over
            self._log.error("judging_failed", job_id=job.job_id, error=type(error).__name__, where=_where(error))
            return self._failed(job, rubric, prompt, run, error)

    async def _deferred(self, run: DeferredRun, post: BatchPost) -> Judgement | None:
        started_at = _now_ms()
        if not await answered(run, post):
            return None
        return run.judgement(
            self.model, started_at=started_at, finished_at=_now_ms(), prices=self._driver.price.version
        )

    async def _drive(self, run: JobRun) -> Judgement | None:
        while True:
            try:
                outcome = await self._driver.drive(run)
            except JudgeFatal as error:
                wait = self._fatal(run, error)
            else:
                if isinstance(outcome, Judgement):
                    return outcome
                self._trouble = outcome.error_type or self._trouble
                wait = max(outcome.retry_in, self._outage.wait(self._clock()))
            if self._stopping:
                return None
            await self._wait(wait)

    def _fatal(self, run: JobRun, error: JudgeFatal) -> float:
        now = self._clock()
        again = self._outage.wait(now) > 0
        wait = self._outage.note(now)
        self._trouble = error.error_type
        if not again:
            self._log.error(
                "judge_refuses",
                error_type=error.error_type,
                error=str(error),
                request_id=error.request_id,
                job_id=run.job.job_id,
                retry_in_s=round(wait, 1),
            )
        return wait

    async def _wait(self, seconds: float) -> None:
        self._waiting += 1
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            pass
        finally:
            self._waiting -= 1

    def _heard(self, call: Call) -> None:
        if self._on_call is not None:
            self._on_call(call)
        if call.error_type is None and not self._stopping:
            self._outage.over()
            self._trouble = ""
            self._wake.set()
            self._wake = asyncio.Event()

    def _heed_family(self, assistant: str | None) -> None:
        shared = self._families & families(assistant)
        if shared and self._on_same_family is not None:
            self._on_same_family()
        for family in sorted(shared - self._said):
            self._said.add(family)
            self._log.warning(
                "judge_of_the_same_family",
                family=family,
                judge=self.model.name,
                assistant_model=assistant,
                reason="judges tend to favor their own family: take a judge of another, or compare with one",
            )

    def _failed(self, job: Job, rubric: Rubric, prompt: Prompt, run: JobRun | None, error: Exception) -> Judgement:
        now = _now_ms()
        return judgement(
            job,
            rubric,
            prompt,
            self.model,
            Unscored(reason="error", note=type(error).__name__),
            [] if run is None else run.outcomes,
            started_at=now if run is None or run.started_at is None else run.started_at,
            finished_at=now,
            prices=self._driver.price.version,
        )


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
