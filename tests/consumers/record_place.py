"""Records to take in, and the topics and the store of one recorder on a real Kafka."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import GroupCoordinatorNotAvailableError

from consumers.health import Health
from consumers.kafka import event_key
from consumers.record import METERS, rubric_counts, serve
from consumers.topics import create
from monitor.config import Settings, load
from monitor.decision import Decision, PolicyLoaded
from monitor.judgement import Judgement
from monitor.metrics import Meters
from monitor.rubrics import RUBRICS
from monitor.store import Record, Store, Sums
from tests.consumers.broker_io import read_all
from tests.services.kafka import KafkaBroker
from tests.services.process import Child
from tests.unit.store.builders import addendum, decision, judgement, policy, unscored

PARTITIONS = 3
RUN = """
import sys
from pathlib import Path
from consumers.app import run_process
from monitor.config import load
sys.exit(run_process("record", load(Path(sys.argv[1]))))
"""


def records(count: int, seed: int = 1) -> list[Record]:
    """Build what a sampler and judges write of `count` sessions: each kind of record and of fate."""
    made: list[Record] = [policy("base", "corrected")]
    draw = random.Random(seed)
    for number in range(count):
        name = f"s{number}"
        selected = draw.random() < 0.7
        stratum, weight16 = draw.choice([("base", 320), ("corrected", 32)])
        made.append(decision(name, selected=selected, stratum=stratum, weight16=weight16))
        if selected and draw.random() < 0.9:
            if draw.random() < 0.2:  # J4: failed, and judged after all
                made.append(unscored(name))
            made.append(judgement(name, trials=draw.randint(1, 4), failures=draw.randint(0, 1)))
        if draw.random() < 0.1:
            made.append(judgement(name, hash_="of something else"))  # superseded
        if draw.random() < 0.1:
            made.append(addendum(name, offset=number))
        if draw.random() < 0.05:  # R5: overlaps with the first segment
            made.append(decision(name, "later", events=("e0", "later"), selected=selected))
    return made


def shuffled(made: Sequence[Record], seed: int = 2) -> list[Record]:
    """Put records in any order, a third of them twice; segments of a session keep theirs, which R5 goes by."""
    draw = random.Random(seed)
    mixed = [*made, *draw.sample(made, len(made) // 3)]
    draw.shuffle(mixed)
    places: dict[tuple[str, str], list[int]] = {}
    for place, record in enumerate(mixed):
        if isinstance(record, Decision):
            places.setdefault((record.tenant, record.session_id), []).append(place)
    for found in places.values():
        ordered = sorted((mixed[place] for place in found), key=lambda one: getattr(one, "segment", ""))
        for place, record in zip(found, ordered, strict=True):
            mixed[place] = record
    return mixed


class Place:
    """A broker, the settings of a test on it with a store of its own, and ways to write and to look."""

    def __init__(self, broker: KafkaBroker, prefix: str, folder: Path, **more: Any) -> None:
        self.folder = folder
        self.file = folder / "store.sqlite"
        self.values: dict[str, Any] = {
            "kafka.bootstrap_servers": broker.bootstrap,
            "kafka.group_prefix": f"{prefix}g",
            "kafka.session_timeout_s": 3.0,
            "topics.prefix": prefix,
            "topics.events": f"{prefix}events",
            "topics.job_partitions": PARTITIONS,
            "topics.event_partitions": 1,
            "store.url": f"sqlite:///{self.file}",
            "store.batch": 50,
            "health.record_port": 0,
            **more,
        }
        self.settings: Settings = load(None, self.values)
        self.group = f"{prefix}g-record"

    async def create(self) -> None:
        await create(self.settings)

    async def write(self, made: Iterable[Record]) -> None:
        """Write each record where its process would, in this order."""
        await self.write_raw([(*self._address(record), msgspec.json.encode(record)) for record in made])

    async def write_raw(self, values: Iterable[tuple[str, bytes, bytes | None]]) -> None:
        producer = AIOKafkaProducer(bootstrap_servers=self.settings.kafka.bootstrap_servers, linger_ms=5)
        await producer.start()
        try:
            await asyncio.gather(*[await producer.send(topic, value, key=key) for topic, key, value in values])
        finally:
            await producer.stop()

    def _address(self, record: Record) -> tuple[str, bytes]:
        topics = self.settings.topics
        if isinstance(record, PolicyLoaded):
            return topics.decisions, f"policy/{record.policy}".encode()
        key = event_key(record.tenant, record.session_id)
        return (topics.judgements if isinstance(record, Judgement) else topics.decisions), key

    @asynccontextmanager
    async def recorder(self) -> AsyncIterator[tuple[Meters, Health]]:
        """Run the recorder inside this process; its end must come within 10 s."""
        stop = asyncio.Event()
        meters = Meters(METERS, version="test", process="record")
        health = Health(time.monotonic)
        task = asyncio.create_task(serve(self.settings, meters, stop, health))
        try:
            yield meters, health
        finally:
            stop.set()
            started = time.monotonic()
            await task
            assert time.monotonic() - started < 10

    def process(self, name: str) -> Child:
        """Run the recorder in a process of its own."""
        file = self.folder / "settings.json"
        file.write_text(self.settings.model_dump_json(exclude_none=True))
        return Child([sys.executable, "-c", RUN, str(file)], self.folder / f"{name}.log")

    async def letters(self) -> list[dict[str, Any]]:
        """Give the dead letters: key, value and headers."""
        found = await read_all(self.settings.kafka.bootstrap_servers, [self.settings.topics.dead_letters])
        return [
            {**{name: value.decode() for name, value in one.headers}, "key": one.key, "value": one.value}
            for one in found
        ]

    async def committed(self) -> int:
        """Count the records that would not be read again."""
        admin = AIOKafkaAdminClient(bootstrap_servers=self.settings.kafka.bootstrap_servers)
        await admin.start()
        try:
            offsets = await admin.list_consumer_group_offsets(self.group)
        except GroupCoordinatorNotAvailableError:
            return 0  # the broker has just started
        else:
            return sum(item.offset for item in offsets.values() if item.offset >= 0)
        finally:
            await admin.close()

    async def has_committed(self, count: int) -> bool:
        """Whether all of the first `count` records are committed."""
        committed = await self.committed()
        assert committed <= count
        return committed == count

    def content(self) -> tuple[Sums, dict[str, set[Any]]]:
        """Give all totals, and the rows that must not depend on how records came."""
        return content(self.file)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep every other writer out of the store."""
        with closing(sqlite3.connect(self.file, isolation_level=None)) as connection:
            connection.execute("PRAGMA busy_timeout = 10000")
            connection.execute("BEGIN EXCLUSIVE")
            yield
            connection.execute("ROLLBACK")

    @contextmanager
    def broken(self) -> Iterator[None]:
        """Make every transaction fail at once."""
        with closing(sqlite3.connect(self.file, isolation_level=None)) as connection:
            connection.execute("PRAGMA busy_timeout = 10000")
            # Every transaction reads it first; one that adds nothing would not miss the totals.
            connection.execute("ALTER TABLE meta RENAME TO meta_elsewhere")
            yield
            connection.execute("ALTER TABLE meta_elsewhere RENAME TO meta")


def content(file: Path) -> tuple[Sums, dict[str, set[Any]]]:
    """Give all totals of a store, and the rows that must not depend on how records came."""
    store = Store.open(f"sqlite:///{file}")
    try:
        sums = dict(store.totals().sums)
    finally:
        store.close()
    queries = {
        "decisions": "SELECT session_id, segment, stratum, weight16, selected, overlap FROM decisions",
        "jobs": "SELECT job_id, state FROM jobs",
        "judgements": "SELECT digest, standing FROM judgements",
        "addenda": "SELECT log_partition, log_offset, session_id FROM addenda",
        "policies": "SELECT policy, body FROM policies",
    }
    with closing(sqlite3.connect(file)) as connection:
        return sums, {name: set(connection.execute(query)) for name, query in queries.items()}


def direct(file: Path, made: Iterable[Record]) -> tuple[Sums, dict[str, set[Any]]]:
    """Give the same of a store that is fed without Kafka, each record once and in order."""
    store = Store.open(f"sqlite:///{file}", rubrics=rubric_counts(RUBRICS))
    try:
        assert store.record(list(made)).rejected == []
    finally:
        store.close()
    return content(file)


def counted(meters: Meters, name: str, **labels: str) -> float:
    value = meters.registry.get_sample_value(f"backslide_{name}", labels)
    assert value is not None, f"no series {name}{labels}"
    return value
