"""Sessions to sample, and the topics of one sampler on a real Kafka."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from consumers.health import Health
from consumers.sample import METERS, serve
from monitor.config import Settings
from monitor.decision import Decision, decode_decision
from monitor.events import Correction, Escalation, Feedback, Role, SessionEvent, Turn, encode
from monitor.metrics import Meters
from monitor.rubrics import RUBRICS
from monitor.sampling.decide import decide
from monitor.sampling.policy import default_policy, parse_policy
from monitor.session import Addendum, LogSpan, SessionContent, SessionRecord
from tests.consumers.broker_io import read_all, until
from tests.services.kafka import KafkaBroker
from tests.services.process import Child

PARTITIONS = 4
ASSISTANTS = {"concierge": ["1"]}
SALT = "grain"
ALL = "strata: [{name: base, rate: 1, rubrics: [correction]}]"


def session(number: int, text: str = "hello") -> SessionRecord:
    """Every 50th session is escalated, every 10th corrected twice."""
    name = f"s{number}"
    events: list[SessionEvent] = []
    for place in range(6):
        role: Role = "user" if place % 2 == 0 else "assistant"
        events.append(
            Turn(
                event_id=f"{name}-e{place}",
                session_id=name,
                ts=float(place),
                turn_id=f"t{place}",
                role=role,
                text=f"{text} {place}",
                assistant="concierge",
                assistant_version="1",
            )
        )
    if number % 10 == 0:
        events += [
            Correction(event_id=f"{name}-c{turn}", session_id=name, ts=9.0, turn_id=turn) for turn in ("t2", "t4")
        ]
    if number % 50 == 0:
        events.append(Escalation(event_id=f"{name}-x", session_id=name, ts=9.0))
    content = SessionContent(
        tenant="default",
        session_id=name,
        segment=events[0].event_id,
        previous_segment=None,
        close_reason="ended",
        events=[msgspec.Raw(encode(event)) for event in events],
    )
    return SessionRecord(
        content=msgspec.Raw(msgspec.json.encode(content)),
        span=LogSpan(partition=0, first=number, last=number + 1, closed_at=1),
    )


def addendum(number: int) -> Addendum:
    feedback = Feedback(event_id=f"late{number}", session_id=f"s{number}", ts=99.0, rating="down")
    return Addendum(
        tenant="default",
        session_id=f"s{number}",
        segment=f"s{number}-e0",
        event=msgspec.Raw(encode(feedback)),
        partition=0,
        offset=number,
    )


class Place:
    """A broker, the settings of a test on it, and ways to write and read its topics."""

    def __init__(self, broker: KafkaBroker, prefix: str, **sampling: Any) -> None:
        self.values: dict[str, Any] = {
            "kafka": {
                "bootstrap_servers": broker.bootstrap,
                "group_prefix": f"{prefix}g",
                "session_timeout_s": 3.0,
            },
            "topics": {"prefix": prefix, "job_partitions": PARTITIONS, "check": False},
            "sampling": {"salt": SALT, "assistants": ASSISTANTS, "reload_interval_s": 0.2} | sampling,
        }

    @property
    def settings(self) -> Settings:
        return Settings(**self.values)

    @property
    def group(self) -> str:
        return f"{self.settings.kafka.group_prefix}-sample"

    @property
    def bootstrap(self) -> str:
        return self.settings.kafka.bootstrap_servers

    async def create(self, **configs: dict[str, str]) -> None:
        topics = self.settings.topics
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await admin.start()
        try:
            await admin.create_topics(
                [
                    NewTopic(
                        getattr(topics, name),
                        PARTITIONS,
                        1,
                        topic_configs={"max.message.bytes": "2097152"} | configs.get(name, {}),
                    )
                    for name in ("sessions", "jobs_urgent", "jobs_routine", "decisions", "dead_letters")
                ]
            )
        finally:
            await admin.close()

    async def write(self, values: Iterable[tuple[str, bytes | None]]) -> None:
        producer = AIOKafkaProducer(bootstrap_servers=self.bootstrap, max_request_size=4_000_000, linger_ms=5)
        await producer.start()
        try:
            sends = [
                await producer.send(self.settings.topics.sessions, value, key=key.encode())
                for key, value in values
            ]
            await asyncio.gather(*sends)
        finally:
            await producer.stop()

    async def read(self, *names: str) -> list[Any]:
        """Everything that topics hold now."""
        return await read_all(self.bootstrap, [getattr(self.settings.topics, name) for name in names])

    async def decisions(self) -> list[Decision]:
        found = [decode_decision(record.value) for record in await self.read("decisions")]
        return [item for item in found if isinstance(item, Decision)]

    async def committed(self) -> dict[int, int]:
        """Give the committed offsets of sessions by partition."""
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await admin.start()
        try:
            offsets = await admin.list_consumer_group_offsets(self.group)
            return {part.partition: item.offset for part, item in offsets.items() if item.offset >= 0}
        finally:
            await admin.close()

    async def has_committed(self, records: int) -> bool:
        """Whether none of the first `records` records would be read again."""
        return sum((await self.committed()).values()) == records

    @asynccontextmanager
    async def sampler(self) -> AsyncIterator[tuple[Meters, Health]]:
        """Run the sampler inside this process."""
        stop = asyncio.Event()
        meters = Meters(METERS, version="test", process="sample")
        health = Health(time.monotonic)
        task = asyncio.create_task(serve(self.settings, meters, stop, health))
        try:
            await until(lambda: health.is_ready[0] or task.done())
            yield meters, health
        finally:
            stop.set()
            await task

    def process(self, folder: Path, name: str) -> Child:
        """Run the sampler in a process of its own."""
        file = folder / "settings.json"
        file.write_text(json.dumps(self.values))
        return Child([sys.executable, "-m", "tests.consumers.sample_process", str(file)], folder / f"{name}.log")


def encoded(records: Iterable[SessionRecord]) -> list[tuple[str, bytes]]:
    return [(msgspec.json.decode(record.content)["session_id"], msgspec.json.encode(record)) for record in records]


def expected(records: Iterable[SessionRecord], policy_text: str | None = None) -> tuple[set[bytes], set[bytes]]:
    """Give the bytes of the decisions and of the jobs that sessions must give."""
    policy = parse_policy(policy_text, source="p", rubrics=RUBRICS) if policy_text else default_policy(RUBRICS)
    decisions, jobs = set(), set()
    for record in records:
        decision, own = decide(record, policy, salt=SALT.encode(), assistants=ASSISTANTS)
        decisions.add(msgspec.json.encode(decision))
        jobs |= {msgspec.json.encode(job) for job in own}
    return decisions, jobs


def values_of(records: Sequence[Any]) -> Counter[bytes]:
    return Counter(record.value for record in records)
