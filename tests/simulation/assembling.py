"""`assemble` on the simulated broker: processes of one group, and what they have written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.structs import OffsetAndMetadata

from consumers.assemble import METERS, Assemble
from consumers.health import Health
from consumers.kafka import event_key, partition_for
from consumers.offsets import CommitNote, decode_note
from monitor.config import Settings, load
from monitor.events import Event, Tick, encode
from monitor.metrics import Meters
from monitor.session import Addendum, SessionRecord, decode_content, decode_record
from tests.simulation.broker import EPOCH, SimulatedBroker
from tests.simulation.clients import SimulatedAdmin, SimulatedConsumer, SimulatedProducer
from tests.simulation.process import SimulatedProcess

PARTITIONS = 2
# Ticks and commits are as seldom or often as a test needs; times are seconds of stream time.
ASSEMBLY = {
    "gap_s": 100.0,
    "grace_s": 10.0,
    "max_age_s": 1_000.0,
    "memory_s": 200.0,
    "tick_interval_s": 1e9,
    "commit_interval_s": 0.002,
}
START_S = EPOCH / 1000


class Bench:
    """A broker with the topics of one deployment. Its log may be written before or while processes run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **assembly: Any) -> None:
        self.settings: Settings = load(
            None, {"assembly": ASSEMBLY | assembly, "topics.event_partitions": PARTITIONS}
        )
        names = self.settings.topics
        self.broker = SimulatedBroker(
            {names.events: PARTITIONS, names.sessions: PARTITIONS, names.dead_letters: 1}
        )
        broker = self.broker
        self._group = f"{self.settings.kafka.group_prefix}-assemble"

        def consumer(settings: Settings, group: str | None, **_: Any) -> SimulatedConsumer:
            return SimulatedConsumer(broker, None if group is None else self._group)

        for module in ("consumers.assemble", "consumers.read_back"):
            monkeypatch.setattr(f"{module}.consumer", consumer)
        monkeypatch.setattr("consumers.assemble.producer", lambda settings: SimulatedProducer(broker))
        monkeypatch.setattr("consumers.assemble.admin", lambda settings: SimulatedAdmin(broker))

    # -- the log -------------------------------------------------------------------------------------------

    def source(self, partition: int) -> TopicPartition:
        return TopicPartition(self.settings.topics.events, partition)

    def say(self, event: Event, *, partition: int | None = None, at: float | None = None) -> int:
        """Write an event to its partition, or to another one; `at` is the broker's time in seconds of the log."""
        key = None if isinstance(event, Tick) else event_key(event.tenant, event.session_id)
        if partition is None:
            partition = partition_for(key or b"", PARTITIONS)
        timestamp = round(event.ts * 1000) if at is None else EPOCH + round(at * 1000)
        record = self.broker.logs[self.source(partition)].append(encode(event), key, timestamp=timestamp)
        return int(record.offset)

    # -- what came of it -----------------------------------------------------------------------------------

    def sessions(self) -> list[bytes]:
        """Every record of the sessions topic, sorted: finished sessions with their spans, and addenda."""
        return sorted(record.value or b"" for record in self.broker.topic(self.settings.topics.sessions))

    def contents(self) -> list[tuple[str, list[bytes]]]:
        """Session id and raw events of each finished session that was written."""
        found = [decode_record(value) for value in self.sessions()]
        contents = [decode_content(record.content) for record in found if isinstance(record, SessionRecord)]
        return [(content.session_id, [bytes(raw) for raw in content.events]) for content in contents]

    def addenda(self) -> list[Addendum]:
        found = [decode_record(value) for value in self.sessions()]
        return [record for record in found if isinstance(record, Addendum)]

    def letters(self) -> list[tuple[bytes, bytes]]:
        """Key and value of every dead letter."""
        found = self.broker.topic(self.settings.topics.dead_letters)
        return sorted((record.key or b"", record.value or b"") for record in found)

    def records(self, topic: str, partition: int) -> list[ConsumerRecord[bytes, bytes]]:
        return self.broker.logs[TopicPartition(topic, partition)].records

    def commit(self, partition: int, offset: int, note: str) -> None:
        """Make the group's last commit another one."""
        self.broker.commits[self._group][self.source(partition)] = OffsetAndMetadata(offset, note)

    def commits(self) -> dict[int, tuple[int, CommitNote | None]]:
        """Partition -> offset and note of its last commit."""
        found = self.broker.commits[self._group]
        return {tp.partition: (commit.offset, decode_note(commit.metadata)) for tp, commit in found.items()}

    def all_committed(self) -> bool:
        """Whether the group has nothing left to do: the whole log is committed."""
        ends = {tp.partition: log.end for tp, log in self.broker.logs.items() if tp.topic == self.source(0).topic}
        return {number: offset for number, (offset, _) in self.commits().items()} == ends

    # -- processes -----------------------------------------------------------------------------------------

    @asynccontextmanager
    async def process(self, dies_behind: int | None = None) -> AsyncIterator[AssembleProcess]:
        """Run `assemble` in a process of its own; what is left of it at the end is killed."""
        process = AssembleProcess(self, dies_behind)
        try:
            yield process
        finally:
            await process.end()


class AssembleProcess:
    """One `assemble`, and its fate."""

    def __init__(self, bench: Bench, dies_behind: int | None) -> None:
        self.process = SimulatedProcess(dies_behind)
        self.meters = Meters(METERS, version="0", process="assemble")
        self.stop = asyncio.Event()
        self.task = self.process.run(self._serve(bench.settings))
        self.assemble: Assemble | None = None

    async def _serve(self, settings: Settings) -> None:
        clock = asyncio.get_running_loop().time
        health = Health(clock)
        self.assemble = Assemble(settings, self.meters, health, clock=clock, wall=lambda: START_S + clock())
        try:
            await self.assemble.start()
            await self.assemble.run(self.stop)
        finally:
            await self.assemble.close()

    @property
    def consumer(self) -> SimulatedConsumer:
        assert self.assemble is not None, "it hasn't begun"
        found: SimulatedConsumer = self.assemble._consumer
        return found

    @property
    def dead(self) -> bool:
        return self.process.dead.is_set()

    def has_taken(self, steps: int) -> bool:
        """Whether it has begun, and taken so many steps."""
        return self.assemble is not None and len(self.steps) >= steps

    @property
    def steps(self) -> list[str]:
        return self.process.steps

    def value(self, name: str, **labels: str) -> float:
        return self.meters.registry.get_sample_value(f"backslide_{name}", labels) or 0.0

    async def until(self, done: Callable[[], bool], seconds: float = 60.0, every: float = 0.001) -> None:
        """Wait until something is done, or this process is dead or over. Fails after `seconds` of virtual time."""
        loop = asyncio.get_running_loop()
        limit = loop.time() + seconds
        while not (done() or self.dead or self.task.done()):
            assert loop.time() < limit, f"waited in vain; the last steps were {self.steps[-5:]}"
            await asyncio.sleep(every)

    async def end(self) -> None:
        """Kill what is left of it, and let the group find out. Raises what ended the process by itself."""
        failed = self.task.exception() if self.task.done() and not self.task.cancelled() else None
        self.process.kill()
        if self.assemble is not None:
            self.consumer.expire()
        await self.process.bury()
        if failed is not None:
            raise failed
