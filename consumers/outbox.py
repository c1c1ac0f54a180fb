"""What a partition has to say, in order: records wait here until the broker has them (A7).

`put` never waits, so it can be called in the same stretch that advances the position; one task sends. A commit
takes a snapshot of what is unacknowledged, waits for it, and only then commits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import msgspec
from aiokafka import AIOKafkaProducer
from aiokafka.errors import MessageSizeTooLargeError, RecordListTooLargeError

TOO_LARGE: Final = (MessageSizeTooLargeError, RecordListTooLargeError)


class Outgoing(msgspec.Struct, kw_only=True):
    """A record to send. `acknowledged` is told its offset; `stub` goes instead of an over-size one (J5)."""

    topic: str
    value: bytes
    key: bytes | None = None
    partition: int | None = None
    headers: list[tuple[str, bytes]] | None = None
    acknowledged: Callable[[int], None] | None = None
    stub: Callable[[], Outgoing] | None = None


class Outbox:
    """Sends the records of one partition. Any failure but an over-size record is given to `fail` and is final."""

    def __init__(
        self, producer: AIOKafkaProducer, fail: Callable[[BaseException], None], limit: int = 2_000
    ) -> None:
        self._producer = producer
        self._fail = fail
        self._limit = limit
        self._queue: deque[tuple[Outgoing, asyncio.Future[None]]] = deque()
        self._unacknowledged: set[asyncio.Future[None]] = set()
        self._wake = asyncio.Event()
        self._closed = False
        self._task = asyncio.create_task(self._run(), name="outbox")

    def __len__(self) -> int:
        return len(self._unacknowledged)

    def put(self, outgoing: Outgoing) -> None:
        """Add a record; it is sent soon."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._unacknowledged.add(done)
        self._queue.append((outgoing, done))
        self._wake.set()

    async def drain(self) -> bool:
        """Wait until the broker has all that was put in before this call; False when it was closed before that."""
        waiting = set(self._unacknowledged)
        if waiting:
            await asyncio.wait(waiting)
        return not self._closed

    async def room(self, within_s: float) -> bool:
        """Wait a while for room, so that a slow broker slows reading down instead of filling memory."""
        if len(self._unacknowledged) < self._limit:
            return True
        await asyncio.wait(set(self._unacknowledged), timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        return len(self._unacknowledged) < self._limit

    def close(self) -> None:
        """Stop sending. What is unsent is dropped: whoever owns the partition next says it again."""
        self._closed = True
        self._task.cancel()
        # Whoever waits for these (a commit, the reading loop) would wait for ever.
        for done in self._unacknowledged:
            done.cancel()
        self._unacknowledged.clear()

    async def _run(self) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._queue:
                    await self._send(*self._queue.popleft())
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the process has to end
            self._fail(error)

    async def _send(self, outgoing: Outgoing, done: asyncio.Future[None]) -> None:
        try:
            sent = await self._producer.send(
                outgoing.topic,
                outgoing.value,
                key=outgoing.key,
                partition=outgoing.partition,
                headers=outgoing.headers or (),
            )
        except TOO_LARGE as error:
            self._too_large(outgoing, done, error)
            return
        sent.add_done_callback(lambda future: self._acknowledged(outgoing, done, future))

    def _acknowledged(self, outgoing: Outgoing, done: asyncio.Future[None], sent: asyncio.Future[Any]) -> None:
        error = None if sent.cancelled() else sent.exception()
        if sent.cancelled():
            return
        if isinstance(error, TOO_LARGE):
            self._too_large(outgoing, done, error)
        elif error is not None:
            self._fail(error)
        else:
            if outgoing.acknowledged is not None:
                outgoing.acknowledged(sent.result().offset)
            self._settle(done)

    def _too_large(self, outgoing: Outgoing, done: asyncio.Future[None], error: BaseException) -> None:
        if outgoing.stub is None:
            self._fail(error)
            return
        self._queue.append((outgoing.stub(), done))
        self._wake.set()

    def _settle(self, done: asyncio.Future[None]) -> None:
        self._unacknowledged.discard(done)
        if not done.done():
            done.set_result(None)
