"""A consumer's place in its group, kept for as long as slow work takes.

aiokafka leaves the group when nothing polls for max.poll.interval, and its `getmany` waits for the end of a
rebalance whatever its timeout. So whoever waits for something here goes on polling, with everything paused, and a
stop ends every wait.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from aiokafka import TopicPartition
from aiokafka.errors import CommitFailedError, IllegalStateError

from monitor.errors import BackslideError

T = TypeVar("T")

POLL_MS: Final = 500
TICK_S: Final = 0.5


class LeftBehind(BackslideError):
    """The stop came before the work in hand was done; its offsets stay uncommitted."""


class Membership:
    """Polls, waits and commits for one aiokafka consumer that has been started.

    `batch` is the most records that a poll gives. `tick` is called about twice a second, with what is being waited
    for and since how many seconds (nothing and 0 while polling). After `stopping` is done, the work in hand has
    `drain_s` seconds, all of it together.
    """

    def __init__(
        self,
        reader: Any,
        stopping: asyncio.Future[Any],
        *,
        batch: int,
        drain_s: float,
        tick: Callable[[str, float], None],
    ) -> None:
        self._reader = reader
        self._stopping = stopping
        self._batch = batch
        self._drain = drain_s
        self._tick = tick
        self._stash: list[Any] = []
        self._leave_by: float | None = None

    async def poll(self) -> list[Any]:
        """Give the next records, none when there are none for half a second."""
        if not self._stash:
            self._reader.resume(*self._reader.paused())
            await self._fetch(POLL_MS)
        batch, self._stash = self._stash[: self._batch], self._stash[self._batch :]
        return batch

    async def hold(self, work: asyncio.Future[T], what: str) -> T:
        """Wait for work in hand, however long it takes; `what` names what it waits for.

        Raises `LeftBehind` when the stop has come and the work isn't done in time.
        """
        started = time.monotonic()
        try:
            while not work.done():
                either: set[asyncio.Future[Any]] = {work, self._stopping}
                await asyncio.wait(either, timeout=TICK_S, return_when=asyncio.FIRST_COMPLETED)
                if self._stopping.done():
                    await self._drained(work)
                elif not work.done():
                    self._tick(what, time.monotonic() - started)
                    await self._stay()
            return work.result()
        finally:
            work.cancel()

    async def pause(self, seconds: float) -> None:
        """Wait before another try. Raises `LeftBehind` when the stop comes."""
        until = time.monotonic() + seconds
        while (rest := until - time.monotonic()) > 0:
            await asyncio.wait({self._stopping}, timeout=min(rest, TICK_S))
            if self._stopping.done():
                raise LeftBehind("stopped before another try")
            await self._stay()

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Commit what is still owned. False when the group moved on, and others get the records again."""
        # A partition that was lost meanwhile would fail the commit of all others.
        owned = self._reader.assignment()
        mine = {partition: offset for partition, offset in offsets.items() if partition in owned}
        if not mine:
            return True
        try:
            await self.hold(asyncio.ensure_future(self._reader.commit(mine)), "the broker, to commit")
        except (CommitFailedError, IllegalStateError):
            return False
        return True

    async def _fetch(self, timeout_ms: int) -> None:
        poll = asyncio.ensure_future(self._reader.getmany(timeout_ms=timeout_ms, max_records=self._batch))
        either: set[asyncio.Future[Any]] = {poll, self._stopping}
        try:
            while not poll.done() and not self._stopping.done():
                await asyncio.wait(either, timeout=TICK_S, return_when=asyncio.FIRST_COMPLETED)
                self._tick("", 0.0)
            if poll.done():
                for records in poll.result().values():
                    self._stash += records
        finally:
            poll.cancel()

    async def _stay(self) -> None:
        """Poll without wanting anything.

        A rebalance in between hands partitions out that aren't paused; what then comes is stashed, never dropped.
        """
        self._reader.pause(*self._reader.assignment())
        await self._fetch(0)

    async def _drained(self, work: asyncio.Future[Any]) -> None:
        now = time.monotonic()
        if self._leave_by is None:
            self._leave_by = now + self._drain
        await asyncio.wait({work}, timeout=max(self._leave_by - now, 0))
        if not work.done():
            raise LeftBehind("the work in hand was not done in time")
