"""The gate before each call: callers wait here until the limits let them pass, urgent ones first."""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Callable
from itertools import count
from typing import Final, TypeAlias

import msgspec

from monitor.errors import JudgeError
from monitor.judging.limits import Limiter, Need, Outcome
from monitor.judging.model import Completion, JudgeRequest

CHARACTERS_A_TOKEN: Final = 3
FIRST_OUTPUT_TOKENS: Final = 1_000
_SMOOTHING: Final = 0.1


class Pass(msgspec.Struct, frozen=True, eq=False):
    """Leave to make one call, to be given back with `Gate.leave`."""

    need: Need
    rubric: str


_Waiting: TypeAlias = tuple[int, int, Need, asyncio.Future[None]]


class Gate:
    """One gate a model, in one event loop. `clock` is monotonic, in seconds.

    Expected input is the length of the texts by 3, the frozen prefix only until the provider has read it from its
    cache for the same rubric; expected output is a moving mean. Both are set right once the usage is known.
    """

    def __init__(self, limiter: Limiter | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.limiter = limiter or Limiter()
        self._clock = clock
        self._line: list[_Waiting] = []
        self._number = count()
        self._timer: asyncio.TimerHandle | None = None
        self._cached: set[str] = set()
        self._output = float(FIRST_OUTPUT_TOKENS)

    @property
    def waiting(self) -> int:
        """How many callers wait."""
        return sum(not future.done() for *_, future in self._line)

    async def enter(self, request: JudgeRequest, *, urgent: bool) -> Pass:
        """Wait for leave to make a call. Safe to cancel."""
        need = self._need(request)
        if self._line or self._begin(need) != 0:
            await self._queue(need, urgent=urgent)
        return Pass(need, request.rubric)

    def leave(self, leave: Pass, reply: Completion | JudgeError) -> None:
        """Give a pass back with what came of the call."""
        usage = reply.usage
        if usage is not None:
            self._learn(leave.rubric, cached=usage.cache_read_tokens > 0, output=usage.output_tokens)
        self.limiter.end(
            self._clock(),
            leave.need,
            _outcome(reply),
            usage=usage,
            limits=reply.limits,
            retry_after=(reply.retry_after or 0.0) if isinstance(reply, JudgeError) else 0.0,
        )
        self._admit()

    def abandon(self, leave: Pass, *, made: bool) -> None:
        """Give a pass back without an outcome: the call was canceled, or never `made`."""
        self.limiter.end(self._clock(), leave.need, "canceled" if made else "unused")
        self._admit()

    async def _queue(self, need: Need, *, urgent: bool) -> None:
        future = asyncio.get_running_loop().create_future()
        heapq.heappush(self._line, (0 if urgent else 1, next(self._number), need, future))
        self._admit()
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self.limiter.end(self._clock(), need, "unused")  # admitted and canceled in one step of the loop
            self._admit()
            raise

    def _begin(self, need: Need) -> float | None:
        wait = self.limiter.wait(self._clock(), need)
        if wait == 0:
            self.limiter.begin(self._clock(), need)
        return wait

    def _admit(self) -> None:
        """Let in whoever may go, in order; nobody overtakes the first one."""
        while self._line:
            _, _, need, future = self._line[0]
            if not future.done():
                wait = self._begin(need)
                if wait != 0:
                    self._call_again(wait)
                    return
                future.set_result(None)
            heapq.heappop(self._line)

    def _call_again(self, wait: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if wait is not None:
            self._timer = asyncio.get_running_loop().call_later(wait, self._admit)

    def _need(self, request: JudgeRequest) -> Need:
        texts = sum(len(message.text) for message in request.messages)
        prefix = 0 if request.rubric in self._cached else len(request.system)
        output = min(request.max_tokens, round(self._output))
        return Need(input_tokens=(texts + prefix) // CHARACTERS_A_TOKEN, output_tokens=output)

    def _learn(self, rubric: str, *, cached: bool, output: int) -> None:
        (self._cached.add if cached else self._cached.discard)(rubric)
        self._output += _SMOOTHING * (output - self._output)


def _outcome(reply: Completion | JudgeError) -> Outcome:
    if isinstance(reply, Completion):
        return "answered"
    return "rate_limited" if reply.error_type == "rate_limit" else "failed"
