"""How long a closed session takes to be visible in `/metrics`, and how fast each stage is alone.

`python -m benchmarks.pipeline` runs the real processes on Apache Kafka and SQLite, with every session judged by
the lexical judge. See docs/performance.md for what exactly is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import re
import sqlite3
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml
from aiokafka import AIOKafkaConsumer, TopicPartition

from benchmarks.assembly import broker
from benchmarks.chat_log import TURNS, ChatLog, event, write
from consumers import topics
from consumers.app import command
from consumers.embedded import free_port
from consumers.kafka import event_key, producer
from monitor.config import Settings, load
from tests.services.process import Child

WAIT_S: Final = 300.0
LOOK_S: Final = 0.05
RESULTS: Final = re.compile(r"^backslide_(?:verdicts|skipped|unscored)_total\{.*\} (\S+)$", re.MULTILINE)
POLICY: Final = {"strata": [{"name": "base", "rate": 1.0, "rubrics": ["correction"]}]}


class Report(msgspec.Struct, kw_only=True):
    """Seconds from close to visible, and what each stage does alone in a second."""

    close_to_visible_p50_s: float
    close_to_visible_p99_s: float
    sessions: int
    assemble_sessions_per_s: float
    sample_sessions_per_s: float
    judge_sessions_per_s: float
    record_judgements_per_s: float


class Place:
    """Settings, topics and a store of one run."""

    def __init__(self, bootstrap: str, folder: Path, **assembly: float) -> None:
        folder.mkdir()
        policy = folder / "policy.yaml"
        policy.write_text(yaml.safe_dump(POLICY), encoding="utf-8")
        self.metrics_port = free_port()
        self.database = folder / "store.sqlite"
        self._folder = folder
        name = folder.name
        self._values: dict[str, Any] = {
            "kafka": {"bootstrap_servers": bootstrap, "group_prefix": name},
            "topics": {"events": f"{name}.events", "prefix": f"{name}."},
            "assembly": assembly,
            "sampling": {"salt": "a salt", "policy": str(policy)},
            "store": {"url": f"sqlite:///{self.database}"},
            "web": {"port": 0, "metrics_host": "127.0.0.1", "metrics_port": self.metrics_port},
            "health": {f"{stage}_port": 0 for stage in ("supervisor", "assemble", "sample", "judge", "record")},
            "log": {"level": "warning", "format": "json"},
        }
        self.config = folder / "backslide.yaml"
        self.config.write_text(yaml.safe_dump(self._values), encoding="utf-8")

    @property
    def settings(self) -> Settings:
        """Give the settings."""
        return load(None, self._values)

    @contextmanager
    def running(self, name: str) -> Iterator[Child]:
        """Run a process, or all of them."""
        child = Child(command(name, self.config), self._folder / f"{name}.log")
        try:
            yield child
        finally:
            child.stop(30.0)

    def results(self) -> int:
        """Count the results that `/metrics` shows now; none while it isn't up."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=5) as answer:
                text = answer.read().decode()
        except OSError:
            return 0
        return round(sum(float(value) for value in RESULTS.findall(text)))


class Stage(msgspec.Struct, kw_only=True, frozen=True):
    """A process and the topic that it fills; `marker` begins the records that count."""

    name: str
    topic: str
    marker: bytes = b"{"


async def timestamps(settings: Settings, stage: Stage, at_least: int) -> list[float]:
    """Wait until a topic holds that many records, and give the times of all (Unix seconds, by their producer)."""
    reader = AIOKafkaConsumer(bootstrap_servers=settings.kafka.bootstrap_servers)
    await reader.start()
    try:
        reader.assign(
            [TopicPartition(stage.topic, number) for number in await topics.partitions_of(reader, stage.topic)]
        )
        await reader.seek_to_beginning()
        found: list[float] = []
        deadline = time.monotonic() + WAIT_S
        quiet = False
        while len(found) < at_least or not quiet:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{stage.topic}: {len(found)} of {at_least} records after {WAIT_S:.0f} s")
            batch = await reader.getmany(timeout_ms=500)
            quiet = not batch
            for records in batch.values():
                found += [record.timestamp / 1000 for record in records if record.value.startswith(stage.marker)]
        return sorted(found)
    finally:
        await reader.stop()


def per_second(times: list[float]) -> float:
    """Give the rate from the first to the last."""
    return (len(times) - 1) / max(times[-1] - times[0], 0.001)


def stages(bootstrap: str, folder: Path, sessions: int) -> dict[str, float]:
    """Run one stage after the other on the same sessions, each alone, and give what it does in a second."""
    place = Place(bootstrap, folder, grace_s=1.0, tick_interval_s=0.5)
    settings, names = place.settings, place.settings.topics
    asyncio.run(topics.create(settings))
    asyncio.run(write(settings, ChatLog(events=sessions * (TURNS + 1), open_sessions=200, grace_s=1.0)))
    rates: dict[str, float] = {}
    for stage in (
        Stage(name="assemble", topic=names.sessions),
        Stage(name="sample", topic=names.decisions, marker=b'{"type":"decision"'),
        Stage(name="judge", topic=names.judgements),
    ):
        with place.running(stage.name):
            rates[stage.name] = per_second(asyncio.run(timestamps(settings, stage, sessions)))
    with place.running("record"):
        rates["record"] = recorded(place.database, sessions)
    return rates


def recorded(database: Path, judgements: int) -> float:
    """Wait until the store has all judgements, and give how many it took in a second.

    From the start of the first transaction with a judgement to that of the last, which itself isn't counted. The
    decisions, which are read at the same time, are not counted either.
    """
    deadline = time.monotonic() + WAIT_S
    rows: list[tuple[int, int]] = []
    while sum(count for _, count in rows) < judgements:
        if time.monotonic() > deadline:
            raise RuntimeError(f"record: {rows} of {judgements} judgements after {WAIT_S:.0f} s")
        time.sleep(0.2)
        if database.exists():
            rows = _recorded(database)
    *counted, last = rows
    return sum(count for _, count in counted) / max((last[0] - rows[0][0]) / 1000, 0.001)


def _recorded(database: Path) -> list[tuple[int, int]]:
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        try:
            query = "SELECT recorded_at, COUNT(*) FROM judgements GROUP BY recorded_at ORDER BY recorded_at"
            return connection.execute(query).fetchall()
        except sqlite3.OperationalError:  # not migrated yet
            return []


async def latencies(bootstrap: str, folder: Path, sessions: int, a_minute: float) -> list[float]:
    """Send sessions at a steady rate through the whole pipeline; give the seconds from close to visible, sorted.

    A session closes when `assemble` stamps its record. The k-th close is held against the moment at which
    `/metrics` shows the k-th result: what is visible has no names.
    """
    place = Place(bootstrap, folder, grace_s=1.0, tick_interval_s=0.5)
    await topics.create(place.settings)
    shown: list[tuple[float, int]] = [(0.0, 0)]
    with place.running("all"):
        sending = asyncio.create_task(_send(place.settings, sessions, 60.0 / a_minute))
        deadline = time.monotonic() + sessions * 60.0 / a_minute + WAIT_S
        while shown[-1][1] < sessions:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{shown[-1][1]} of {sessions} results are visible")
            count = await asyncio.to_thread(place.results)
            if count > shown[-1][1]:
                shown.append((time.time(), count))
            await asyncio.sleep(LOOK_S)
        await sending
    closes = await timestamps(
        place.settings, Stage(name="assemble", topic=place.settings.topics.sessions), sessions
    )
    return sorted(_visible(shown, number) - close for number, close in enumerate(closes, 1))


def _visible(shown: list[tuple[float, int]], number: int) -> float:
    return next(moment for moment, count in shown if count >= number)


async def _send(settings: Settings, sessions: int, every_s: float) -> None:
    """Send chats as they happen, each within two and a half seconds."""
    sender = producer(settings)
    await sender.start()
    places = sorted(
        (session * every_s + index * 0.3, session, index)
        for session in range(sessions)
        for index in range(TURNS + 1)
    )
    began = time.time()
    try:
        for at, session, index in places:
            if (early := began + at - time.time()) > 0.005:
                await asyncio.sleep(early)
            name = f"live-{session:08d}"
            value = event(name, index, time.time(), "please tell me where it is now")
            await sender.send(settings.topics.events, value, key=event_key("acme", name))
    finally:
        await sender.stop()


def measure(bootstrap: str, folder: Path, sessions: int, a_minute: float) -> Report:
    """Run both parts."""
    rates = stages(bootstrap, folder / "stages", sessions)
    found = asyncio.run(latencies(bootstrap, folder / "latency", sessions, a_minute))
    cuts = statistics.quantiles(found, n=100, method="inclusive")
    return Report(
        close_to_visible_p50_s=cuts[49],
        close_to_visible_p99_s=cuts[98],
        sessions=sessions,
        assemble_sessions_per_s=rates["assemble"],
        sample_sessions_per_s=rates["sample"],
        judge_sessions_per_s=rates["judge"],
        record_judgements_per_s=rates["record"],
    )


def readable(report: Report) -> str:
    """Say it in words."""
    p50, p99 = report.close_to_visible_p50_s, report.close_to_visible_p99_s
    lines = [
        f"close to visible  p50 {p50:.2f} s  p99 {p99:.2f} s, goal p99 <= 5",
        f"assemble {report.assemble_sessions_per_s:9,.0f} sessions/s",
        f"sample   {report.sample_sessions_per_s:9,.0f} sessions/s",
        f"judge    {report.judge_sessions_per_s:9,.0f} sessions/s, lexical",
        f"record   {report.record_judgements_per_s:9,.0f} judgements/s, goal >= 1,500 (SQLite, durable)",
    ]
    return "\n".join(lines)


def main() -> int:
    """Run the benchmark and print the report."""
    parser = argparse.ArgumentParser(description="Latency and throughput of the pipeline on a real broker.")
    parser.add_argument("--sessions", type=int, default=5_000)
    parser.add_argument("--a-minute", type=float, default=1_000.0, help="sessions a minute, for the latency")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # new topics have no leader at once, and it says so
    with tempfile.TemporaryDirectory(prefix="backslide-bench-") as name:
        folder = Path(name)
        with broker(folder / "kafka", None) as kafka:
            report = measure(kafka.bootstrap, folder, options.sessions, options.a_minute)
    print(json.dumps(msgspec.to_builtins(report)) if options.json else readable(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
