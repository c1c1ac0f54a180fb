"""A broker, settings, and ways to write events, run `assemble`, and read what it wrote."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from consumers import topics
from consumers.assemble import METERS, serve
from consumers.health import Health
from consumers.kafka import admin, event_key
from consumers.offsets import CommitNote, decode_note
from monitor.config import Settings, load
from monitor.events import SessionEvent, encode
from monitor.metrics import Meters
from monitor.session import FinishedRecord, Session, SessionRecord, decode_record, session_view
from tests.consumers.broker_io import read_all, until
from tests.services.kafka import KafkaBroker

PARTITIONS = 4
FAST = {
    "gap_s": 4.0,
    "grace_s": 0.5,
    "max_age_s": 600.0,
    "memory_s": 60.0,
    "tick_interval_s": 0.3,
    "commit_interval_s": 0.2,
}


class AssemblePlace:
    """Settings of one test on a broker, with topics of its own."""

    def __init__(self, broker: KafkaBroker, prefix: str, folder: Path, **assembly: Any) -> None:
        self.folder = folder
        self.values: dict[str, Any] = {
            "kafka": {
                "bootstrap_servers": broker.bootstrap,
                "group_prefix": f"{prefix}g",
                "session_timeout_s": 6.0,
            },
            "topics": {
                "events": f"{prefix}events",
                "prefix": prefix,
                "event_partitions": PARTITIONS,
                "job_partitions": 2,
            },
            "assembly": FAST | assembly,
            "health": {f"{name}_port": 0 for name in ("supervisor", "assemble", "sample", "judge", "record")},
            "log": {"format": "json"},
        }

    @property
    def settings(self) -> Settings:
        return load(None, self.values)

    async def create(self) -> None:
        await topics.create(self.settings)

    async def produce(
        self, records: Iterable[tuple[bytes | None, bytes | None, int | None]], rate: float | None = None
    ) -> None:
        """Send (key, value, partition) in order, at most `rate` a second."""
        producer = AIOKafkaProducer(
            bootstrap_servers=self.settings.kafka.bootstrap_servers, linger_ms=2, max_request_size=8_000_000
        )
        await producer.start()
        started, sends = time.monotonic(), []
        try:
            for number, (key, value, partition) in enumerate(records):
                if rate and (early := number / rate - (time.monotonic() - started)) > 0.005:
                    await asyncio.sleep(early)
                sends.append(await producer.send(self.settings.topics.events, value, key=key, partition=partition))
            await asyncio.gather(*sends)
        finally:
            await producer.stop()

    async def send(self, events: Iterable[SessionEvent], rate: float | None = None) -> None:
        await self.produce(
            ((event_key(event.tenant, event.session_id), encode(event), None) for event in events), rate
        )

    async def read(self, topic: str) -> list[Any]:
        """Everything that a topic holds now."""
        return await read_all(self.settings.kafka.bootstrap_servers, [topic])

    async def finished(self) -> list[FinishedRecord]:
        return [decode_record(record.value) for record in await self.read(self.settings.topics.sessions)]

    async def views(self) -> list[Session]:
        return [session_view(r.content) for r in await self.finished() if isinstance(r, SessionRecord)]

    async def letters(self) -> list[tuple[dict[str, str], bytes, bytes]]:
        """Dead letters: headers, key and value."""
        return [
            ({name: value.decode() for name, value in record.headers}, record.key, record.value)
            for record in await self.read(self.settings.topics.dead_letters)
        ]

    @asynccontextmanager
    async def admin(self) -> AsyncIterator[AIOKafkaAdminClient]:
        client = admin(self.settings)
        await client.start()
        try:
            yield client
        finally:
            await client.close()

    async def configure(self, topic: str, **configs: str) -> None:
        """Change a topic's settings; dots are written as underscores."""
        # What is left out of this call goes back to the broker's default.
        kept = next(spec.configs for spec in topics.topic_specs(self.settings) if spec.name == topic)
        changed = kept | {name.replace("_", "."): value for name, value in configs.items()}
        async with self.admin() as client:
            await client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, changed)])
        await asyncio.sleep(0.5)  # the controller answers before the broker has heard of it

    async def commits(self) -> dict[int, tuple[int, CommitNote | None]]:
        """Give what the group has committed: partition -> offset and note."""
        async with self.admin() as client:
            found = await client.list_consumer_group_offsets(f"{self.settings.kafka.group_prefix}-assemble")
        return {tp.partition: (item.offset, decode_note(item.metadata)) for tp, item in found.items()}

    async def lengths(self) -> dict[int, int]:
        """Where the partitions of the source topic end."""
        consumer = AIOKafkaConsumer(bootstrap_servers=self.settings.kafka.bootstrap_servers)
        await consumer.start()
        try:
            parts = [TopicPartition(self.settings.topics.events, number) for number in range(PARTITIONS)]
            return {tp.partition: end for tp, end in (await consumer.end_offsets(parts)).items()}
        finally:
            await consumer.stop()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Running]:
        """Run `assemble` in this process, ready when entered; what ends it early is raised at the end."""
        running = Running(self.settings)
        try:
            await until(lambda: running.ready or running.task.done(), 30.0, 0.02)
            yield running
        finally:
            running.stop.set()
            await asyncio.wait({running.task}, timeout=15.0)
        await running.task

    def worker(self, name: str, process: str = "assemble") -> Worker:
        config = self.folder / "config.yaml"
        config.write_text(json.dumps(self.values))
        return Worker(config, self.folder / f"{name}.log", process)


class Running:
    """`assemble` inside of the test's process."""

    def __init__(self, settings: Settings) -> None:
        self.meters = Meters(METERS, version="0", process="assemble")
        self.health = Health(time.monotonic)
        self.stop = asyncio.Event()
        self.task = asyncio.create_task(serve(settings, self.meters, self.stop, self.health))

    @property
    def ready(self) -> bool:
        return self.health.is_ready[0]

    def value(self, name: str, **labels: str) -> float:
        return self.meters.registry.get_sample_value(f"backslide_{name}", labels) or 0.0

    def total(self, name: str) -> dict[str, float]:
        """Give a labelled counter's values, by its only label."""
        found = {}
        for family in self.meters.registry.collect():
            for sample in family.samples:
                if sample.name == f"backslide_{name}_total":
                    found["/".join(sample.labels.values())] = sample.value
        return found


class Worker:
    """A process of the product, run as a user would."""

    def __init__(self, config: Path, log: Path, process: str) -> None:
        self.log = log
        line = [sys.executable, "-m", "consumers", "run", process, "--config", str(config)]
        with log.open("ab") as out:
            self._child = subprocess.Popen(line, stdout=out, stderr=out)

    @property
    def pid(self) -> int:
        return self._child.pid

    def signal(self, number: signal.Signals) -> None:
        os.kill(self._child.pid, number)

    def kill(self) -> None:
        self._child.kill()
        self._child.wait()

    def stop(self, seconds: float = 10.0) -> int:
        """SIGTERM it and give its exit status; raises when it takes longer than promised."""
        self._child.terminate()
        return self._child.wait(seconds)

    def wait(self, seconds: float) -> int:
        return self._child.wait(seconds)

    @property
    def alive(self) -> bool:
        return self._child.poll() is None

    def close(self) -> None:
        if self.alive:
            self._child.kill()
        self._child.wait()
