"""Asking one model about jobs, and waiting while it can't be asked (J3).

A job waits in its slot meanwhile. It goes on where it stopped, so nothing is paid for twice, and it never turns
into a score or an `Unscored` for a reason that isn't its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import structlog

from consumers.outage import Outage
from monitor.errors import JudgeFatal
from monitor.judgement import Judgement
from monitor.judging.accounting import Call, OnCall
from monitor.judging.breaker import Breaker
from monitor.judging.drive import Driver, JobRun
from monitor.judging.family import FamilyWarning
from monitor.judging.gate import Gate
from monitor.judging.limits import Limiter
from monitor.judging.model import JudgeModel
from monitor.judging.open import limit_policy, retry_policy
from monitor.judging.prices import FREE, Price
from monitor.settings import InstrumentSettings


class Asker:
    """One model: the judge, or the screen before it. All its calls pass `gate`.

    `on_call` hears of every call, which is charged at `price`, `on_same_family` of every job whose assistant is
    of the model's own family. `outage` says how long to wait after `JudgeFatal`, `breaker` how long otherwise.
    `clock` is monotonic, in seconds.
    """

    def __init__(
        self,
        model: JudgeModel,
        settings: InstrumentSettings,
        *,
        on_call: OnCall | None = None,
        on_same_family: Callable[[], None] | None = None,
        price: Price = FREE,
        breaker: Breaker | None = None,
        outage: Outage | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.model = model
        self.price = price
        self.gate = Gate(Limiter(limit_policy(settings)), clock=clock)
        self._what = settings.where.rpartition(".")[2]
        self._on_call = on_call
        self._on_same_family = on_same_family
        self._family = FamilyWarning(model, process="judge")
        self._outage = outage or Outage()
        self._clock = clock
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

    @property
    def down(self) -> str | None:
        """Say why the model can't be asked just now, or None when it can."""
        if not self._waiting and not self._driver.paused_for() and not self._outage.wait(self._clock()):
            return None
        return f"the {self._what} is down: {self._trouble or 'see the log'}"

    def stop(self) -> None:
        """Wait no longer: jobs that do are given up; those that are being asked about go on."""
        self._stopping = True
        self._wake.set()

    async def drive(self, run: JobRun) -> Judgement | None:
        """Take a run to its end; None when it had to be given up because of `stop`."""
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

    def heed_family(self, assistant: str | None) -> None:
        """Count, and say once, that an assistant's model is of the family of this one."""
        if self._family.heed(assistant) and self._on_same_family is not None:
            self._on_same_family()

    def _fatal(self, run: JobRun, error: JudgeFatal) -> float:
        now = self._clock()
        again = self._outage.wait(now) > 0
        wait = self._outage.note(now)
        self._trouble = error.error_type
        if not again:
            self._log.error(
                "judge_refuses",
                judge=self.model.name,
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
