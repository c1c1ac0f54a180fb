"""The driver: runs the flows of one job over a judge model, with retries, under one deadline.

A worker keeps one `Driver` a process and one `JobRun` a job:

    run = JobRun(job, session, rubric, prompt)
    while isinstance(outcome := await driver.drive(run), Postponed):
        ...                               # pause the partitions, wait for `outcome.retry_in` seconds
    await send(outcome)                   # a Judgement

A run keeps the windows that are done and the question that is open, so putting it off pays for nothing twice.
`JudgeFatal` is raised to the worker for what no waiting mends (key, permission, model name, spend limit, a set-up
that the provider refuses): nothing is scored and nothing lost; the run can be driven again once someone acted.
The breaker is open then as well, so that the other jobs in flight are put off and don't each try the bad key.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Literal, TypeAlias

import msgspec

from monitor.decision import Job
from monitor.errors import JudgeError, JudgeFatal, JudgeUnavailable
from monitor.judgement import Judgement, Unscored, UnscoredReason, Usage
from monitor.judging.accounting import Call, OnCall
from monitor.judging.breaker import Breaker, Refused, Ticket
from monitor.judging.flow import (
    MAX_TOKENS,
    MAX_TOKENS_CAP,
    Flow,
    Reply,
    WindowOutcome,
    failed_attempt,
    judge_flow,
    judgement,
    result_of,
    results,
    windows_of,
)
from monitor.judging.model import Completion, JudgeModel, JudgeRequest
from monitor.judging.prompt import Prompt
from monitor.judging.retry import RetryPolicy, backoff
from monitor.rubrics.base import Rubric, Window
from monitor.session import Session

PostponedReason: TypeAlias = Literal["down", "retry_after"]


class Postponed(msgspec.Struct, kw_only=True, frozen=True):
    """Not now: drive the same run again after `retry_in` seconds (above 0).

    `down`: the breaker is open. `retry_after`: the provider asked for more patience than a deadline has.
    `error_type` is that of the run's last failed call, None when it has made none.
    """

    reason: PostponedReason
    retry_in: float
    error_type: str | None = None


class JobRun:
    """One job on its way to a judgement: which windows are done, what is being asked, what has been spent.

    Windows are asked about in order. After the first `Unscored` one the rest are left out, since the session is
    unscored whatever they say. Raises what the rubric raises on a session that it can't cut into windows.
    """

    def __init__(
        self, job: Job, session: Session, rubric: Rubric, prompt: Prompt, *, max_tokens: int = MAX_TOKENS
    ) -> None:
        self.job = job
        self.session = session
        self.rubric = rubric
        self.prompt = prompt
        self.outcomes: list[WindowOutcome] = []
        self.request: JudgeRequest | None = None
        self.failures = 0  # failed calls of the whole run
        self.streak = 0  # failed calls since the last answer
        self.error_type: str | None = None
        self.spent_s = 0.0  # of the deadline; time while put off doesn't count
        self.started_at: int | None = None  # Unix milliseconds of the first call
        self._max_tokens = max_tokens
        self._windows: deque[Window] = deque(windows_of(rubric, session))
        self._flow: Flow | None = None
        self._open_next()

    def answer(self, reply: Reply) -> None:
        """Pass a reply to the open question on to its flow; `request` is then the next question, or None."""
        if self._flow is None:
            raise RuntimeError("this run has no open question")
        try:
            self.request = self._flow.send(reply)
        except StopIteration as stop:
            self._close(stop.value)
            self._open_next()

    def _open_next(self) -> None:
        while self.request is None and self._windows:
            cap = max(MAX_TOKENS_CAP, self._max_tokens)
            window = self.rubric.carry(self._windows.popleft(), results(self.outcomes))
            self._flow = judge_flow(
                self.rubric, window, self.prompt, max_tokens=self._max_tokens, max_tokens_cap=cap
            )
            try:
                self.request = next(self._flow)
            except StopIteration as stop:
                self._close(stop.value)

    def _close(self, outcome: WindowOutcome) -> None:
        self.outcomes.append(outcome)
        self.request = self._flow = None
        if isinstance(outcome.result, Unscored):
            self._windows.clear()


class Driver:
    """Drives runs over one model; shared by all jobs of a process, since the breaker is.

    `clock` is monotonic and `wall` Unix time, both in seconds; `chance` gives a number in [0, 1) for the jitter.
    `on_call` hears of every call before its answer is parsed.
    """

    def __init__(
        self,
        model: JudgeModel,
        policy: RetryPolicy | None = None,
        *,
        breaker: Breaker | None = None,
        on_call: OnCall | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.model = model
        self.breaker = breaker or Breaker()
        self._policy = policy or RetryPolicy()
        self._on_call = on_call
        self._clock = clock
        self._wall = wall
        self._sleep = sleep
        self._chance = chance

    def paused_for(self) -> float:
        """Tell for how many seconds no call will be made; 0 when calls pass. A worker pauses its partitions."""
        return self.breaker.wait(self._clock())

    async def drive(self, run: JobRun) -> Judgement | Postponed:
        """Take a run on until it has its judgement or has to be put off.

        A job's calls and the waits between them share one deadline (`policy.deadline_s`), started at its first
        call (J3); past it the result is `Unscored(timeout)`, and after `policy.max_failures` failed calls
        `Unscored(unavailable)`. A request that the provider rejects for its own sake is `Unscored(error)`.
        Raises `JudgeFatal`; see the module's text.
        """
        began: float | None = None
        try:
            while run.request is not None:
                now = self._clock()
                deadline = (now if began is None else began) - run.spent_s + self._policy.deadline_s
                if now >= deadline:
                    self._note(run, JudgeUnavailable("timeout", "no time left for another call"), 0, "timeout")
                    continue
                ticket = self.breaker.admit(now, run.job.job_id)
                if isinstance(ticket, Refused):
                    return Postponed(reason="down", retry_in=ticket.retry_in, error_type=run.error_type)
                began = now if began is None else began
                postponed = await self._step(run, run.request, ticket, deadline)
                if postponed is not None:
                    return postponed
        finally:
            if began is not None:
                run.spent_s += self._clock() - began
        return self._judgement(run)

    async def _step(self, run: JobRun, request: JudgeRequest, ticket: Ticket, deadline: float) -> Postponed | None:
        reply = await self._call(run, request, ticket, deadline)
        if isinstance(reply, Completion):
            self.breaker.succeeded(ticket)
            run.streak = 0
            run.answer(reply)
            return None
        error, duration_ms = reply
        run.error_type = error.error_type
        if isinstance(error, JudgeFatal):
            self._fatal(run, error, ticket, duration_ms)
            return None
        return await self._unavailable(run, error, ticket, deadline, duration_ms)

    async def _call(
        self, run: JobRun, request: JudgeRequest, ticket: Ticket, deadline: float
    ) -> Completion | tuple[JudgeError, int]:
        started = self._clock()
        if run.started_at is None:
            run.started_at = self._now_ms()
        seconds = min(self._policy.attempt_timeout_s, deadline - started)
        try:
            async with asyncio.timeout(seconds):
                reply: Completion | JudgeError = await self.model.complete(request, timeout=seconds)
        except JudgeError as error:
            reply = error
        except TimeoutError:
            reply = JudgeUnavailable("timeout", f"no answer within {seconds:.3g} s")
        except BaseException:
            self.breaker.abandon(ticket)  # a canceled probe must not keep the breaker waiting for it
            raise
        duration = self._clock() - started
        self._account(request, reply, duration)
        return reply if isinstance(reply, Completion) else (reply, round(duration * 1000))

    def _account(self, request: JudgeRequest, reply: Completion | JudgeError, duration_s: float) -> None:
        if self._on_call is None:
            return
        self._on_call(
            Call(
                provider=self.model.provider,
                model=self.model.model,
                rubric=request.rubric,
                duration_s=duration_s,
                usage=reply.usage or Usage(),
                error_type=None if isinstance(reply, Completion) else reply.error_type,
            )
        )

    def _fatal(self, run: JobRun, error: JudgeFatal, ticket: Ticket, duration_ms: int) -> None:
        """Give the job up if its own request is to blame, else raise: nothing is known about the job."""
        if error.error_type == "too_large":
            self.breaker.abandon(ticket)
        elif error.error_type != "invalid_request" or not self.breaker.rejected(ticket):
            self.breaker.trip(self._clock(), ticket)
            raise error
        run.failures += 1
        self._note(run, error, duration_ms, "error")

    async def _unavailable(
        self, run: JobRun, error: JudgeError, ticket: Ticket, deadline: float, duration_ms: int
    ) -> Postponed | None:
        run.failures += 1
        run.streak += 1
        now, wish = self._clock(), error.retry_after or 0.0
        wait = backoff(self._policy, run.streak, self._chance(), wish)
        patient = wish > self._policy.retry_after_cap_s
        if patient:
            self.breaker.trip(now, ticket, wish)
        else:
            self.breaker.failed(now, ticket)
        final = self._final(run, now + wait >= deadline and not patient)
        self._note(run, error, duration_ms, final)
        if final is not None:
            return None
        pause = self.breaker.wait(now)
        if pause:
            reason: PostponedReason = "retry_after" if patient else "down"
            return Postponed(reason=reason, retry_in=pause, error_type=error.error_type)
        await self._sleep(wait)
        return None

    def _final(self, run: JobRun, late: bool) -> UnscoredReason | None:
        if run.failures >= self._policy.max_failures:
            return "unavailable"
        return "timeout" if late else None

    def _note(self, run: JobRun, error: JudgeError, duration_ms: int, final: UnscoredReason | None) -> None:
        run.answer(failed_attempt(error, final=final, request_id=error.request_id, duration_ms=duration_ms))

    def _judgement(self, run: JobRun) -> Judgement:
        finished_at = self._now_ms()
        return judgement(
            run.job,
            run.rubric,
            run.prompt,
            self.model,
            result_of(run.rubric, run.session, run.outcomes),
            run.outcomes,
            started_at=finished_at if run.started_at is None else run.started_at,
            finished_at=finished_at,
        )

    def _now_ms(self) -> int:
        return round(self._wall() * 1000)
