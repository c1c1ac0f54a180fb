"""aiokafka's clients on the simulated broker, with the traits of the real ones that rules A4 to A8 are about."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Any

from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.errors import (
    CommitFailedError,
    IllegalStateError,
    MessageSizeTooLargeError,
    OffsetOutOfRangeError,
    UnknownError,
)
from aiokafka.structs import OffsetAndMetadata, RecordMetadata

from consumers.kafka import partition_for
from tests.simulation.broker import LATENCY_S, SimulatedBroker
from tests.simulation.process import CURRENT, SimulatedProcess

# A fetch takes longer than a commit, and brings one record of each partition: there is a commit at every point.
FETCH_S = 0.006
BATCH = 1
IDLE_S = 0.05
LINGER_S = 0.004
BATCH_RECORDS = 2
# Longer than a fetch: more is read and put while a commit waits for the outbox.
ACKNOWLEDGE_S = 0.009


class SimulatedBatch:
    """Records that go together, and are refused together."""

    def __init__(self) -> None:
        self.records: list[tuple[bytes | None, bytes, Any]] = []

    def append(self, *, timestamp: int | None, key: bytes | None, value: bytes, headers: Any = ()) -> int | None:
        """Add a record; None when the batch is full."""
        if len(self.records) == BATCH_RECORDS:
            return None
        self.records.append((key, value, headers))
        return len(self.records)

    def close(self) -> None:
        """Take in no more."""


class SimulatedProducer:
    """Gathers records for a while before the broker has any of them: `send` promises nothing yet."""

    def __init__(self, broker: SimulatedBroker) -> None:
        self._broker = broker
        self._process = CURRENT.get()
        self._queue: deque[tuple[TopicPartition, SimulatedBatch, asyncio.Future[RecordMetadata]]] = deque()
        self._sending: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Connect."""

    async def stop(self) -> None:
        """Disconnect."""
        if self._sending is not None:
            await asyncio.wait({self._sending})

    def create_batch(self) -> SimulatedBatch:
        return SimulatedBatch()

    async def send_batch(
        self, batch: SimulatedBatch, topic: str, *, partition: int
    ) -> asyncio.Future[RecordMetadata]:
        """Queue a batch; the future is done when the broker has it, and tells the offset of its first record."""
        sent: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        self._queue.append((TopicPartition(topic, partition), batch, sent))
        if self._sending is None or self._sending.done():
            self._sending = self._process.run(self._send_queue())
        return sent

    async def send(
        self,
        topic: str,
        value: bytes,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Any = (),
    ) -> asyncio.Future[RecordMetadata]:
        """Queue a record by itself."""
        batch = SimulatedBatch()
        batch.append(timestamp=None, key=key, value=value, headers=headers)
        if partition is None:
            partition = partition_for(key or b"", self._broker.partitions[topic])
        return await self.send_batch(batch, topic, partition=partition)

    async def _send_queue(self) -> None:
        while self._queue:
            await asyncio.sleep(LINGER_S)
            await self._broker.present.wait()
            going = [self._queue.popleft() for _ in range(len(self._queue))]
            answers = [
                await self._process.step(f"send {tp.topic}", partial(self._append, tp, batch))
                for tp, batch, _ in going
            ]
            await asyncio.sleep(ACKNOWLEDGE_S)
            for (tp, _, sent), answer in zip(going, answers, strict=True):
                if isinstance(answer, Exception):
                    sent.set_exception(answer)
                else:
                    sent.set_result(RecordMetadata(tp.topic, tp.partition, tp, answer, None, 1, 0))

    def _append(self, tp: TopicPartition, batch: SimulatedBatch) -> int | Exception:
        try:
            return self._broker.write_batch(tp, batch.records)
        except MessageSizeTooLargeError as error:
            refused: Exception = error
            return refused


class SimulatedAdmin:
    """Reads commits with their metadata, which the consumer's own call leaves out."""

    def __init__(self, broker: SimulatedBroker) -> None:
        self._broker = broker
        self._process = CURRENT.get()

    async def start(self) -> None:
        """Connect."""

    async def close(self) -> None:
        """Disconnect."""

    async def list_consumer_group_offsets(
        self, group: str, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        found = self._broker.commits[group]
        none = OffsetAndMetadata(-1, "")
        return await self._process.ask(lambda: {tp: found.get(tp, none) for tp in partitions})


class SimulatedConsumer:
    """A member of a group, or a reader with partitions of its own choice."""

    def __init__(self, broker: SimulatedBroker, group: str | None) -> None:
        self._broker = broker
        self._process: SimulatedProcess = CURRENT.get()
        self._group = None if group is None else broker.group(group)
        self._commits = broker.commits[group or ""]
        self._positions: dict[TopicPartition, int | None] = {}
        self._highwaters: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._reassigned = asyncio.Event()
        self._listener: Any = None
        self._topics: set[str] = set()
        self._client = self
        # What aiokafka does with an error of a callback: it logs it, and goes on.
        self.logged: list[BaseException] = []
        self.callbacks_running = 0
        # Hands out nothing more, for no reason.
        self.stuck = False

    async def start(self) -> None:
        """Connect."""

    async def stop(self) -> None:
        """Leave."""
        if self._group is not None and not self._process.dead.is_set():
            self._group.leave(self)

    def expire(self) -> None:
        """Be thrown out of the group, without a word to this member: its session timed out."""
        if self._group is not None:
            self._group.leave(self)

    def rejoin(self) -> None:
        """Find out, and come back."""
        if self._group is not None:
            self._group.join(self, self._topics)

    async def force_metadata_update(self) -> None:
        """Ask for the topics again."""

    def partitions_for_topic(self, topic: str) -> set[int]:
        return set(range(self._broker.partitions[topic]))

    # -- membership ----------------------------------------------------------------------------------------

    def subscribe(self, topics: list[str], listener: Any) -> None:
        assert self._group is not None
        self._listener, self._topics = listener, set(topics)
        self._group.join(self, self._topics)

    def assign(self, partitions: list[TopicPartition]) -> None:
        self._positions = dict.fromkeys(partitions)
        self._reassigned.set()

    def assignment(self) -> set[TopicPartition]:
        return set(self._positions)

    async def revoke(self) -> None:
        """Hand out no records from now on, and call back while the old assignment is in force."""
        if self._process.dead.is_set():
            return
        self._reassigned.clear()
        await self._called(self._listener.on_partitions_revoked(set(self._positions)))

    async def assign_members_share(self, share: set[TopicPartition]) -> None:
        """Put the assignment in force, begin to fetch from the commits, and call back (A6)."""
        if self._process.dead.is_set():
            return
        self._positions = dict.fromkeys(share)
        self._highwaters, self._paused = {}, set()
        self._reassigned.set()
        self._process.run(self._start_at_commits(self._positions))
        await self._called(self._listener.on_partitions_assigned(share))

    async def _start_at_commits(self, positions: dict[TopicPartition, int | None]) -> None:
        """Begin to fetch where the group left off, whatever the callback is doing."""
        found = await self._process.ask(lambda: dict(self._commits))
        for tp, position in positions.items():
            if position is None and tp in found:
                positions[tp] = found[tp].offset

    async def _called(self, callback: Any) -> None:
        called = self._process.run(callback)
        self.callbacks_running += 1
        died = asyncio.ensure_future(self._process.dead.wait())
        await asyncio.wait({called, died}, return_when=asyncio.FIRST_COMPLETED)
        died.cancel()
        self.callbacks_running -= 1
        if called.done() and (error := called.exception()) is not None:
            self.logged.append(error)

    # -- reading -------------------------------------------------------------------------------------------

    def _assigned(self, tp: TopicPartition) -> TopicPartition:
        if tp not in self._positions:
            raise IllegalStateError(f"No current assignment for partition {tp}")
        return tp

    def pause(self, *partitions: TopicPartition) -> None:
        self._paused |= {self._assigned(tp) for tp in partitions}

    def paused(self) -> set[TopicPartition]:
        return set(self._paused)

    def resume(self, *partitions: TopicPartition) -> None:
        self._paused -= {self._assigned(tp) for tp in partitions}

    def seek(self, tp: TopicPartition, offset: int) -> None:
        self._positions[self._assigned(tp)] = offset

    async def position(self, tp: TopicPartition) -> int:
        position = self._positions[self._assigned(tp)]
        assert position is not None, "the real one would wait"
        return position

    def highwater(self, tp: TopicPartition) -> int | None:
        assert tp in self._positions, "Partition is not assigned"
        return self._highwaters.get(tp)

    async def beginning_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        logs = self._broker.logs
        return await self._process.ask(lambda: {tp: logs[tp].start for tp in partitions})

    async def end_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        logs = self._broker.logs
        return await self._process.ask(lambda: {tp: logs[tp].end for tp in partitions})

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord[bytes, bytes]]]:
        """Give the next records, a few at a time; waits for the end of a rebalance whatever the timeout."""
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout_ms / 1000
        while True:
            await asyncio.sleep(FETCH_S)
            await self._reassigned.wait()
            fetched = await self._process.ask(lambda: self._fetch(partitions))
            found = self._hand_out(fetched) if self._reassigned.is_set() else {}
            if found or loop.time() >= until:
                return found
            await asyncio.sleep(IDLE_S)

    def _fetch(self, wanted: Any) -> dict[TopicPartition, list[ConsumerRecord[bytes, bytes]]]:
        found = {}
        for tp, position in self._positions.items():
            if position is None or tp in self._paused or (wanted and tp not in wanted):
                continue
            log = self._broker.logs[tp]
            if position < log.start:
                raise OffsetOutOfRangeError({tp: position})
            self._highwaters[tp] = log.end
            found[tp] = [] if self.stuck else log.records[position:][:BATCH]
        return found

    def _hand_out(self, fetched: Any) -> dict[TopicPartition, list[ConsumerRecord[bytes, bytes]]]:
        """Give what was fetched, unless the partition was paused, taken away or sought elsewhere meanwhile."""
        found = {}
        for tp, records in fetched.items():
            if records and tp not in self._paused and self._positions.get(tp) == records[0].offset:
                self._positions[tp] = records[-1].offset + 1
                found[tp] = records
        return found

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        for tp in offsets:
            self._assigned(tp)
        await asyncio.sleep(LATENCY_S)
        if self._broker.refused_commits:
            self._broker.refused_commits -= 1
            raise UnknownError("try again")
        done = await self._process.step("commit", lambda: self._commit(offsets))
        await asyncio.sleep(LATENCY_S)
        if not done:
            raise CommitFailedError("the group has already rebalanced")

    def _commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> bool:
        if self._group is None or not self._group.is_current(self):
            return False
        self._commits.update(offsets)
        return True
