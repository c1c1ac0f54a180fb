"""What a partition has to say: records wait here until the broker has them (A7).

`put` never waits, so it can be called in the same stretch that advances the position; one task sends, in batches
of its own making: handing records to the producer one by one costs more than all else that is done for them.
A commit waits for all that was put in before it, and only then commits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import msgspec
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from consumers.kafka import TOO_LARGE, is_passing

RETRY_S: Final = 0.5
ROOM_BYTES: Final = 33_554_432
REFUSALS: Final = 3  # the last ones alone, if no other outbox writes to the same partition just then
# A larger record goes alone: the producer compares it with its limits, which it doesn't do for a ready batch.
BATCHED_BYTES: Final = 32_768


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

    @property
    def batched(self) -> bool:
        """Whether it may share a batch with others for its partition."""
        return (
            self.partition is not None
            and not self.refusals
            and not self.headers
            and len(self.value) + len(self.key or b"") <= BATCHED_BYTES
        )


class _Item(msgspec.Struct):
    """A record and the drain that waits for it: those up to `epoch` are done when it is.

    `size` is that of the record that was put in, in bytes, whatever goes instead.
    """

    outgoing: Outgoing
    epoch: int
    size: int


class Outbox:
    """Sends the records of one partition, again and again while the broker is away.

    A record that is too large goes as its stub; any other failure is given to `fail` and is final.
    """

    def __init__(
        self,
        producer: AIOKafkaProducer,
        fail: Callable[[BaseException], None],
        limit: int = 2_000,
        limit_bytes: int = ROOM_BYTES,
    ) -> None:
        self._producer = producer
        self._fail = fail
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._queue: deque[_Item] = deque()
        # How many records are unacknowledged, by epoch: every drain begins a new one.
        self._unacknowledged: dict[int, int] = {}
        self._epoch = 0
        self._length = 0
        self._bytes = 0
        self._in_flight: set[asyncio.Future[Any]] = set()
        self._wake = asyncio.Event()
        self._progress = asyncio.Event()
        self._closed = False
        self._task = asyncio.create_task(self._run(), name="outbox")

    def __len__(self) -> int:
        return self._length

    @property
    def full(self) -> bool:
        """Whether so much is unacknowledged that reading should wait; see `room`."""
        # Sessions differ in size by four orders of magnitude: a count alone bounds nothing.
        return self._length >= self._limit or self._bytes >= self._limit_bytes

    def put(self, outgoing: Outgoing) -> None:
        """Add a record; it is sent soon."""
        self._unacknowledged[self._epoch] = self._unacknowledged.get(self._epoch, 0) + 1
        self._length += 1
        size = len(outgoing.value)
        self._bytes += size
        self._queue.append(_Item(outgoing, self._epoch, size))
        self._wake.set()

    async def drain(self) -> bool:
        """Wait until the broker has all that was put in before this call; False when it was closed before that."""
        last = self._epoch
        self._epoch += 1
        while any(epoch <= last for epoch in self._unacknowledged):
            self._progress.clear()
            await self._progress.wait()
        return not self._closed

    async def room(self, within_s: float) -> bool:
        """Wait a while for room, so that a slow broker slows reading down instead of filling memory."""
        if self.full:
            self._progress.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._progress.wait(), within_s)
        return not self.full

    def close(self) -> None:
        """Stop sending. What is unsent is dropped: whoever owns the partition next says it again."""
        self._closed = True
        self._task.cancel()
        # Whoever waits for these (a commit, the reading loop) would wait for ever.
        self._unacknowledged.clear()
        self._length = 0
        self._bytes = 0
        self._progress.set()

    async def _run(self) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._queue:
                    if self._queue[0].outgoing.batched:
                        await self._send_batch()
                    else:
                        await self._send(self._queue.popleft())
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the process has to end
            self._fail(error)

    async def _send_batch(self) -> None:
        """Send what lies next in the queue for one partition, as much as fits a batch."""
        first = self._queue[0].outgoing
        batch, items = self._producer.create_batch(), []
        while self._queue:
            outgoing = self._queue[0].outgoing
            if outgoing.partition != first.partition or outgoing.topic != first.topic or not outgoing.batched:
                break
            if batch.append(timestamp=None, key=outgoing.key, value=outgoing.value) is None:
                break
            items.append(self._queue.popleft())
        batch.close()  # the producer then neither adds to it nor lets it linger
        try:
            sent = await self._producer.send_batch(batch, first.topic, partition=first.partition)
        except KafkaError as error:
            self._failed(items, error)
        else:
            self._follow(sent, items)

    async def _send(self, item: _Item) -> None:
        outgoing = item.outgoing
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
            self._too_large(item, error)
            return
        except KafkaError as error:
            self._failed([item], error)
            return
        self._follow(sent, [item])
        if outgoing.refusals:
            await asyncio.wait({sent})

    def _follow(self, sent: asyncio.Future[Any], items: list[_Item]) -> None:
        self._in_flight.add(sent)
        sent.add_done_callback(self._in_flight.discard)
        sent.add_done_callback(lambda future: self._acknowledged(items, future))

    def _acknowledged(self, items: list[_Item], sent: asyncio.Future[Any]) -> None:
        if sent.cancelled():
            return
        error = sent.exception()
        if self._closed:
            return
        if error is not None:
            self._failed(items, error)
            return
        for offset, item in enumerate(items, sent.result().offset):
            if item.outgoing.acknowledged is not None:
                item.outgoing.acknowledged(offset)
            self._settle(item)
        self._progress.set()

    def _failed(self, items: list[_Item], error: BaseException) -> None:
        if isinstance(error, TOO_LARGE):
            for item in items:
                self._refused(item, error)
        elif is_passing(error):
            asyncio.get_running_loop().call_later(RETRY_S, self._again, items)
        else:
            self._fail(error)

    def _refused(self, item: _Item, error: BaseException) -> None:
        refusals = item.outgoing.refusals + 1
        if refusals >= REFUSALS:
            self._too_large(item, error)
        else:
            # The broker measured a whole batch; whose fault it was shows when each is sent alone.
            self._again([_Item(msgspec.structs.replace(item.outgoing, refusals=refusals), item.epoch, item.size)])

    def _too_large(self, item: _Item, error: BaseException) -> None:
        if item.outgoing.stub is None:
            self._fail(error)
        else:
            self._again([_Item(item.outgoing.stub(), item.epoch, item.size)])

    def _again(self, items: list[_Item]) -> None:
        if not self._closed:
            self._queue.extend(items)
            self._wake.set()

    def _settle(self, item: _Item) -> None:
        self._length -= 1
        self._bytes -= item.size
        left = self._unacknowledged[item.epoch] - 1
        if left:
            self._unacknowledged[item.epoch] = left
        else:
            del self._unacknowledged[item.epoch]
