"""A process that dies behind a chosen step: a send or a commit. Deaths between two of these are all the same."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from tests.simulation.broker import LATENCY_S

T = TypeVar("T")
CURRENT: contextvars.ContextVar[SimulatedProcess] = contextvars.ContextVar("process")


class SimulatedProcess:
    """What runs in one process. It dies when its step number `dies_behind` has taken effect, before any answer.

    A dead process neither calls the broker again nor hears from it; nobody is told.
    """

    def __init__(self, dies_behind: int | None = None) -> None:
        self._dies_behind = dies_behind
        self._context = contextvars.copy_context()
        self._context.run(CURRENT.set, self)
        self._tasks: list[asyncio.Task[Any]] = []
        self.steps: list[str] = []
        self.dead = asyncio.Event()

    def run(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a task in this process: its own tasks and clients belong to the process, too."""
        task = asyncio.get_running_loop().create_task(work, context=self._context)
        self._tasks.append(task)
        return task

    async def ask(self, question: Callable[[], T]) -> T:
        """Ask the broker: a request that travels, and its answer."""
        await asyncio.sleep(LATENCY_S)
        await self.live()
        result = question()
        await asyncio.sleep(LATENCY_S)
        await self.live()
        return result

    async def step(self, name: str, act: Callable[[], T]) -> T:
        """Take the next step: from now on the broker knows, and the process does if it lives to see the answer."""
        await self.live()
        if self._dies_behind == 0:
            self.kill()
            await self.live()
        result = act()
        self.steps.append(name)
        if self._dies_behind is not None and len(self.steps) >= self._dies_behind:
            self.kill()
        await self.live()
        return result

    async def live(self) -> None:
        """Go on while the process lives; in a dead one nothing ever does."""
        if self.dead.is_set():
            await asyncio.get_running_loop().create_future()

    def kill(self) -> None:
        """End it like SIGKILL."""
        self.dead.set()

    async def bury(self) -> None:
        """Cancel what is left of a dead process, so that nothing of it stays in the loop."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
