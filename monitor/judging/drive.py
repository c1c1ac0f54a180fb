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
from monitor.judging.extract import Opening, opening
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
from monitor.judging.gate import Gate, Pass
from monitor.judging.model import Completion, JudgeModel, JudgeRequest
from monitor.judging.prices import FREE, Price
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

    Windows are asked about in order, after the question that finds what they are about if the rubric has one:
    `session` then has what was found. After the first `Unscored` one the rest are left out, since the session is
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
        self.spent_s = 0.0  # of the deadline, on calls and the waits between them; being put off doesn't count
        self.started_at: int | None = None  # Unix milliseconds of the first call
        self._max_tokens = max_tokens
        self._cap = max(MAX_TOKENS_CAP, max_tokens)
        self._windows: deque[Window] = deque()
        self._flow: Flow | None = None
        self._opening = opening(rubric, session, prompt)
        if self._opening is None:
            self._windows.extend(windows_of(rubric, session))
        else:
            self._open(self._opening)
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

    def _open(self, first: Opening) -> None:
        self._flow = first.flow(max_tokens=self._max_tokens, max_tokens_cap=self._cap)
        if self._flow is None:
            self._found(first, None)
        else:
            self.request = next(self._flow)

    def _found(self, first: Opening, outcome: WindowOutcome | None) -> None:
        self._opening, found = None, first.session(outcome)
        if found is not None:
            self.session = found
            self._windows.extend(windows_of(self.rubric, found))

    def _open_next(self) -> None:
        while self.request is None and self._windows:
            window = self.rubric.carry(self._windows.popleft(), results(self.outcomes))
            self._flow = judge_flow(
                self.rubric, window, self.prompt, max_tokens=self._max_tokens, max_tokens_cap=self._cap
            )
            try:
                self.request = next(self._flow)
            except StopIteration as stop:
                self._close(stop.value)

    def _close(self, outcome: WindowOutcome) -> None:
        self.outcomes.append(outcome)
        self.request = self._flow = None
        if self._opening is not None:
            self._found(self._opening, outcome)
        if isinstance(outcome.result, Unscored):
            self._windows.clear()


class Driver:
    """Drives runs over one model; shared by all jobs of a process, since breaker and gate are.

    `clock` is monotonic and `wall` Unix time, both in seconds; `chance` gives a number in [0, 1) for the jitter.
    Every call is charged at `price`, and `on_call` hears of it, before its answer is parsed.
    """

    def __init__(
        self,
        model: JudgeModel,
        policy: RetryPolicy | None = None,
        *,
        breaker: Breaker | None = None,
        gate: Gate | None = None,
        price: Price = FREE,
        on_call: OnCall | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.model = model
        self.breaker = breaker or Breaker()
        self.gate = gate or Gate(clock=clock)
        self.price = price
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
        while run.request is not None:
            if run.spent_s >= self._policy.deadline_s:
                late = JudgeUnavailable("timeout", "no time left for another call")
                self._note(run, late, None, "timeout")
                continue
            leave = await self._leave(run, run.request)
            if isinstance(leave, Refused):
                return Postponed(reason="down", retry_in=leave.retry_in, error_type=run.error_type)
            postponed = await self._step(run, run.request, *leave)
            if postponed is not None:
                return postponed
        return self._judgement(run)

    async def _leave(self, run: JobRun, request: JudgeRequest) -> tuple[Ticket, Pass] | Refused:
        """Wait at the gate, and ask the breaker before and after: it may open meanwhile.

        The wait isn't part of the deadline, because it is our own doing and not this job's.
        """
        down = self.breaker.wait(self._clock())
        if down:
            return Refused(retry_in=down)
        leave = await self.gate.enter(request, urgent=run.job.priority == "urgent")
        ticket = self.breaker.admit(self._clock(), run.job.job_id)
        if isinstance(ticket, Refused):
            self.gate.abandon(leave, made=False)
            return ticket
        return ticket, leave

    async def _step(self, run: JobRun, request: JudgeRequest, ticket: Ticket, leave: Pass) -> Postponed | None:
        began = self._clock()
        deadline = began - run.spent_s + self._policy.deadline_s
        try:
            reply, call = await self._call(run, request, ticket, leave, deadline)
            if isinstance(reply, Completion):
                self.breaker.succeeded(ticket)
                run.streak = 0
                run.answer(msgspec.structs.replace(reply, cost_nusd=call.cost_nusd))
                return None
            run.error_type = reply.error_type
            if isinstance(reply, JudgeFatal):
                self._fatal(run, reply, ticket, call)
                return None
            return await self._unavailable(run, reply, ticket, deadline, call)
        finally:
            run.spent_s += self._clock() - began

    async def _call(
        self, run: JobRun, request: JudgeRequest, ticket: Ticket, leave: Pass, deadline: float
    ) -> tuple[Completion | JudgeError, Call]:
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
            self.gate.abandon(leave, made=True)
            raise
        call = self._charged(run, request, reply, self._clock() - started)
        if self._on_call is not None:
            self._on_call(call)
        self.gate.leave(leave, reply)
        return reply, call

    def _charged(
        self, run: JobRun, request: JudgeRequest, reply: Completion | JudgeError, duration_s: float
    ) -> Call:
        usage = reply.usage or Usage()
        return Call(
            provider=self.model.provider,
            model=self.model.model,
            judge=self.model.name,
            rubric=request.rubric,
            stratum=run.job.stratum,
            duration_s=duration_s,
            usage=usage,
            cost_nusd=self.price.cost(usage),
            error_type=None if isinstance(reply, Completion) else reply.error_type,
        )

    def _fatal(self, run: JobRun, error: JudgeFatal, ticket: Ticket, call: Call) -> None:
        """Give the job up if its own request is to blame, else raise: nothing is known about the job."""
        if error.error_type == "too_large":
            self.breaker.abandon(ticket)
        elif error.error_type != "invalid_request" or not self.breaker.rejected(ticket):
            self.breaker.trip(self._clock(), ticket)
            raise error
        run.failures += 1
        self._note(run, error, call, "error")

    async def _unavailable(
        self, run: JobRun, error: JudgeError, ticket: Ticket, deadline: float, call: Call
    ) -> Postponed | None:
        run.failures += 1
        run.streak += 1
        now, wish = self._clock(), error.retry_after or 0.0
        wait = backoff(self._policy, run.streak, self._chance(), wish)
        patient = wish > self._policy.retry_after_cap_s
        if patient:
            self.breaker.trip(now, ticket, wish)
        else:
            self.breaker.failed(now, ticket, limited=error.error_type == "rate_limit")
        final = self._final(run, now + wait >= deadline and not patient)
        self._note(run, error, call, final)
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

    def _note(self, run: JobRun, error: JudgeError, call: Call | None, final: UnscoredReason | None) -> None:
        duration_ms, cost = (0, 0) if call is None else (round(call.duration_s * 1000), call.cost_nusd)
        run.answer(failed_attempt(error, final=final, duration_ms=duration_ms, cost_nusd=cost))

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
            prices=self.price.version,
        )

    def _now_ms(self) -> int:
        return round(self._wall() * 1000)
