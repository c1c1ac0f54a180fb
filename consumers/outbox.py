"""What a partition has to say: records wait here until the broker has them (A7).

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
from aiokafka.errors import KafkaError

from consumers.kafka import TOO_LARGE, is_passing

RETRY_S: Final = 0.5
REFUSALS: Final = 3  # the last ones alone, if no other outbox writes to the same partition just then


class Outgoing(msgspec.Struct, kw_only=True):
    """A record to send. `acknowledged` is told its offset; `stub` goes instead of an over-size one (J5)."""

    topic: str
    value: bytes
    key: bytes | None = None
    partition: int | None = None
    headers: list[tuple[str, bytes]] | None = None
    acknowledged: Callable[[int], None] | None = None
    stub: Callable[[], Outgoing] | None = None
    refusals: int = 0


class Outbox:
    """Sends the records of one partition, again and again while the broker is away.

    A record that is too large goes as its stub; any other failure is given to `fail` and is final.
    """

    def __init__(
        self, producer: AIOKafkaProducer, fail: Callable[[BaseException], None], limit: int = 2_000
    ) -> None:
        self._producer = producer
        self._fail = fail
        self._limit = limit
        self._queue: deque[tuple[Outgoing, asyncio.Future[None]]] = deque()
        self._unacknowledged: set[asyncio.Future[None]] = set()
        self._in_flight: set[asyncio.Future[Any]] = set()
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
        if outgoing.refusals and self._in_flight:
            await asyncio.wait(self._in_flight)
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
        except KafkaError as error:
            self._failed(outgoing, done, error)
            return
        self._in_flight.add(sent)
        sent.add_done_callback(self._in_flight.discard)
        sent.add_done_callback(lambda future: self._acknowledged(outgoing, done, future))
        if outgoing.refusals:
            await asyncio.wait({sent})

    def _acknowledged(self, outgoing: Outgoing, done: asyncio.Future[None], sent: asyncio.Future[Any]) -> None:
        if sent.cancelled() or self._closed:
            return
        error = sent.exception()
        if error is not None:
            self._failed(outgoing, done, error)
            return
        if outgoing.acknowledged is not None:
            outgoing.acknowledged(sent.result().offset)
        self._settle(done)

    def _failed(self, outgoing: Outgoing, done: asyncio.Future[None], error: BaseException) -> None:
        if isinstance(error, TOO_LARGE) and outgoing.refusals + 1 >= REFUSALS:
            self._too_large(outgoing, done, error)
        elif isinstance(error, TOO_LARGE):
            # The broker measured a whole batch; whose fault it was shows when each is sent alone.
            self._again(msgspec.structs.replace(outgoing, refusals=outgoing.refusals + 1), done)
        elif is_passing(error):
            asyncio.get_running_loop().call_later(RETRY_S, self._again, outgoing, done)
        else:
            self._fail(error)

    def _too_large(self, outgoing: Outgoing, done: asyncio.Future[None], error: BaseException) -> None:
        if outgoing.stub is None:
            self._fail(error)
        else:
            self._again(outgoing.stub(), done)

    def _again(self, outgoing: Outgoing, done: asyncio.Future[None]) -> None:
        if not self._closed:
            self._queue.append((outgoing, done))
            self._wake.set()

    def _settle(self, done: asyncio.Future[None]) -> None:
        self._unacknowledged.discard(done)
        if not done.done():
            done.set_result(None)
