"""Sessions with a correction, their jobs, a judge that does as it is told, and the topics of one test."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.coordinator.assignors.range import RangePartitionAssignor

from consumers import topics
from consumers.health import Health
from consumers.job_judge import JobJudge
from consumers.judge import METERS, Worker
from consumers.outage import Outage
from monitor.config import Settings, load
from monitor.decision import Job, Priority, job_id
from monitor.events import Correction, Role, SessionEvent, Turn, encode
from monitor.judgement import Judgement, decode_judgement
from monitor.judging.breaker import Breaker, BreakerPolicy
from monitor.judging.lexical import LexicalJudge
from monitor.judging.model import Completion, JudgeRequest
from monitor.metrics import Meters
from monitor.session import SessionContent, content_hash
from tests.consumers.broker_io import read_all, until
from tests.services.kafka import KafkaBroker
from tests.services.process import Child


def job(name: str, *, urgent: bool = False, corrections: int = 1, rubric: str = "correction") -> Job:
    """Make the job of a session in which the user corrects the assistant, once or several times."""
    said: list[tuple[Role, str]] = [
        ("user", f"A table for {name}, please."),
        ("assistant", "A table for 4 it is."),
    ]
    for number in range(corrections):
        said += [
            ("user", f"No, not {4 + number}. I said {5 + number} people, and the name is {name}."),
            ("assistant", f"Sorry, {5 + number} people, under the name of {name}."),
        ]
    events: list[SessionEvent] = [
        Turn(event_id=f"{name}-{at}", session_id=name, ts=float(at), turn_id=f"t{at}", role=role, text=text)
        for at, (role, text) in enumerate(said)
    ]
    events += [
        Correction(
            event_id=f"{name}-c{number}",
            session_id=name,
            ts=99.0,
            turn_id=f"t{2 + 2 * number}",
            corrected_claim=f"{4 + number} people",
            correction_content=f"{5 + number} people",
        )
        for number in range(corrections)
    ]
    content = SessionContent(
        tenant="default",
        session_id=name,
        segment=f"{name}-0",
        previous_segment=None,
        close_reason="ended",
        events=[msgspec.Raw(encode(event)) for event in events],
    )
    raw = msgspec.Raw(msgspec.json.encode(content))
    priority: Priority = "urgent" if urgent else "routine"
    return Job(
        job_id=job_id("default", name, f"{name}-0", rubric),
        tenant="default",
        session_id=name,
        segment=f"{name}-0",
        rubric=rubric,
        stratum="base",
        priority=priority,
        content_hash=content_hash(raw),
        content=raw,
    )


class Scripted:
    """A judge at the seam: answers as the lexical one does, but when and how the test says."""

    name, provider, model = "scripted", "scripted", "scripted-1"

    def __init__(self) -> None:
        self.started: list[str] = []
        self.running = self.peak = 0
        self.held: set[str] | None = set()  # sessions that get no answer; None: all of them
        self.delay = 0.0
        self.error: Callable[[], Exception] | None = None
        self.text: Callable[[str], str] = lambda text: text
        self._lexical = LexicalJudge()

    def holds(self, name: str) -> bool:
        return self.held is None or name in self.held

    async def complete(self, request: JudgeRequest, *, timeout: float) -> Completion:  # noqa: ASYNC109
        found = re.search(r"the name is (\w+)", request.window.event.text)
        assert found
        self.started.append(found[1])
        self.running += 1
        self.peak = max(self.peak, self.running)
        try:
            await asyncio.sleep(self.delay)
            while self.holds(found[1]):  # noqa: ASYNC110 - the test sets a plain attribute
                await asyncio.sleep(0.01)
        finally:
            self.running -= 1
        if self.error is not None:
            raise self.error()
        answer = await self._lexical.complete(request, timeout=timeout)
        return msgspec.structs.replace(answer, text=self.text(answer.text))

    async def aclose(self) -> None:
        """Nothing is open."""


class Running:
    """A worker inside this process."""

    def __init__(self, settings: Settings, model: Scripted) -> None:
        self.meters = Meters(METERS, version="test", process="judge")
        self.health = Health(time.monotonic)
        self.stop = asyncio.Event()
        judge = JobJudge(
            settings.judge,
            model,
            breaker=Breaker(BreakerPolicy(cool_down_s=0.2, max_cool_down_s=0.4)),
            outage=Outage(0.4, 0.8),
        )
        self.worker = Worker(settings, self.meters, self.health, judge)
        self.task = asyncio.create_task(self.worker.run(self.stop))

    def sample(self, name: str, **labels: str) -> float | None:
        return self.meters.registry.get_sample_value(f"backslide_{name}", labels)

    @property
    def verdicts(self) -> float:
        return self.sample("judgements_total", rubric="correction", kind="verdict") or 0.0


class Place:
    """A broker, the settings of a test on it, and ways to write and read its topics."""

    def __init__(self, broker: KafkaBroker, prefix: str, **more: Any) -> None:
        self.values: dict[str, Any] = {
            "kafka.bootstrap_servers": broker.bootstrap,
            "kafka.group_prefix": f"{prefix}g",
            "kafka.session_timeout_s": 3.0,
            "topics.prefix": prefix,
            "topics.events": f"{prefix}events",
            "topics.event_partitions": 1,
            "topics.job_partitions": 1,
            "judge.concurrency": 4,
            "judge.repeat_share": 0.0,
        } | more
        self.settings = load(None, self.values)
        self.group = f"{prefix}g-judge"

    async def create(self, **limits: int) -> None:
        """Create the topics; `limits` gives some a smaller max.message.bytes than the settings say."""
        admin = AIOKafkaAdminClient(bootstrap_servers=self.settings.kafka.bootstrap_servers)
        await admin.start()
        try:
            for name, limit in limits.items():
                configs = {"max.message.bytes": str(limit)}
                topic = NewTopic(self.topic(name), self.partitions(name), 1, topic_configs=configs)
                await admin.create_topics([topic])
        finally:
            await admin.close()
        await topics.create(self.settings)

    def topic(self, name: str) -> str:
        return str(getattr(self.settings.topics, name))

    def partitions(self, name: str) -> int:
        return 1 if name in {"dead_letters", "batches"} else self.settings.topics.job_partitions

    async def write(self, jobs: Iterable[Job]) -> None:
        items = list(jobs)
        for name, urgent in (("jobs_urgent", True), ("jobs_routine", False)):
            values = [
                (item.job_id.encode(), msgspec.json.encode(item))
                for item in items
                if (item.priority == "urgent") == urgent
            ]
            await self.write_raw(name, values)

    async def write_raw(self, name: str, values: Iterable[tuple[bytes, bytes | None]]) -> None:
        producer = AIOKafkaProducer(bootstrap_servers=self.settings.kafka.bootstrap_servers, linger_ms=2)
        await producer.start()
        try:
            await asyncio.gather(*[await producer.send(self.topic(name), value, key=key) for key, value in values])
        finally:
            await producer.stop()

    async def read(self, name: str) -> list[Any]:
        """Give everything that a topic holds now."""
        return await read_all(self.settings.kafka.bootstrap_servers, [self.topic(name)])

    async def judgements(self) -> list[Judgement]:
        return [decode_judgement(record.value) for record in await self.read("judgements")]

    async def judged(self) -> Counter[str]:
        """Count the judgements of each session."""
        return Counter(item.session_id for item in await self.judgements())

    async def committed(self) -> int:
        """Give the sum of the committed offsets of both topics: how many jobs won't come again."""
        admin = AIOKafkaAdminClient(bootstrap_servers=self.settings.kafka.bootstrap_servers)
        await admin.start()
        try:
            offsets = await admin.list_consumer_group_offsets(self.group)
            return sum(max(item.offset, 0) for item in offsets.values())
        finally:
            await admin.close()

    async def has_committed(self, jobs: int) -> bool:
        return await self.committed() == jobs

    @asynccontextmanager
    async def worker(self, model: Scripted) -> AsyncIterator[Running]:
        """Run a worker; at the end it is stopped, and nothing is held any more."""
        running = Running(self.settings, model)
        try:
            await until(lambda: running.health.is_ready[0] or running.task.done())
            yield running
        finally:
            model.held, model.error = set(), None
            running.stop.set()
            await running.task

    @asynccontextmanager
    async def intruder(self) -> AsyncIterator[None]:
        """Join the group with a member that takes partitions and does nothing with them, then leave."""
        consumer = AIOKafkaConsumer(
            self.topic("jobs_urgent"),
            self.topic("jobs_routine"),
            bootstrap_servers=self.settings.kafka.bootstrap_servers,
            group_id=self.group,
            enable_auto_commit=False,
            partition_assignment_strategy=(RangePartitionAssignor,),
            session_timeout_ms=3_000,
            heartbeat_interval_ms=300,
        )
        await consumer.start()
        try:
            await until(consumer.assignment)
            yield
        finally:
            await consumer.stop()

    def process(self, folder: Path, name: str) -> Child:
        """Run a worker in a process of its own."""
        file = folder / "settings.json"
        file.write_text(json.dumps(self.values))
        return Child([sys.executable, "-m", "tests.consumers.judge_process", str(file)], folder / f"{name}.log")


__all__ = ["Place", "Running", "Scripted", "job", "until"]
