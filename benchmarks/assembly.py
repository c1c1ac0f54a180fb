"""How fast `assemble` is, as a share of a consumer that only reads and decodes, and what an open session costs.

`python -m benchmarks.assembly` starts Apache Kafka on one core, writes a log, and consumes it on another: by a
bare aiokafka loop and by the real `assemble` in turn. See docs/performance.md.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks.chat_log import TURNS, ChatLog, write
from benchmarks.consume import Measured, Order
from consumers import topics
from consumers.kafka import admin
from monitor.config import Settings, load
from tests.services.kafka import KafkaBroker

MEGA: Final = 1_000_000
TIMEOUT_S: Final = 900.0


class Report(msgspec.Struct, kw_only=True):
    """What is printed: medians over the rounds, the peak of the real process, and the cost of an open session."""

    bare_events_per_s: float
    assemble_events_per_s: float
    ratio: float
    peak_mb: float
    bytes_per_open_session: float


class Extra(msgspec.Struct, kw_only=True):
    """What the readable output says besides: events per second of CPU, and the raw bytes of an open session."""

    bare_per_cpu_s: list[float] = []
    assemble_per_cpu_s: list[float] = []
    event_bytes: int = 0
    raw_bytes_per_open_session: float = 0.0


def cores() -> tuple[int | None, int | None]:
    """Give a core for the broker and one for the consumer; None without two."""
    allowed = sorted(os.sched_getaffinity(0))
    return (allowed[0], allowed[1]) if len(allowed) > 1 else (None, None)


@contextmanager
def broker(folder: Path, core: int | None) -> Iterator[KafkaBroker]:
    """Run Kafka with a full Java compiler, pinned to a core."""
    before = os.sched_getaffinity(0)
    if core is not None:
        os.sched_setaffinity(0, {core})  # the child inherits it, with all its threads
    kafka = KafkaBroker(folder, "1g", options=())
    try:
        kafka.start()
        os.sched_setaffinity(0, before)
        yield kafka
    finally:
        os.sched_setaffinity(0, before)
        kafka.close()


def values(bootstrap: str, events: str, run: str) -> dict[str, Any]:
    """Give the settings of one run: the defaults, but for names and ticks."""
    return {
        "kafka": {"bootstrap_servers": bootstrap, "group_prefix": run},
        "topics": {"events": events, "prefix": f"{run}."},
        # No ticks: they would go into the log that all runs read.
        "assembly": {"tick_interval_s": 3_600},
        "log": {"format": "json"},
    }


class Bench:
    """A broker with a log, and consumers of it."""

    def __init__(self, kafka: KafkaBroker, folder: Path, core: int | None, prefix: str = "") -> None:
        self._prefix = prefix
        self._bootstrap = kafka.bootstrap
        self._folder = folder
        self._core = core
        self._runs = 0

    def settings(self, events: str, run: str) -> Settings:
        """Give the settings of a run."""
        return load(None, values(self._bootstrap, self._prefix + events, run))

    def write(self, events: str, log: ChatLog) -> int:
        """Create a source topic and write a log into it; gives the mean size of its events."""
        settings = self.settings(events, self._prefix + events)
        asyncio.run(topics.create(settings))
        return asyncio.run(write(settings, log))

    def consume(self, kind: str, events: str, count: int) -> Measured:
        """Consume a log in a process of its own."""
        self._runs += 1
        run = f"{self._prefix}run-{self._runs}"
        settings = self.settings(events, run)
        asyncio.run(topics.create(settings))
        order = Order(values=values(self._bootstrap, self._prefix + events, run), events=count, core=self._core)
        path = self._folder / f"{run}.json"
        path.write_bytes(msgspec.json.encode(order))
        with (self._folder / f"{run}.log").open("wb") as log:
            command = [sys.executable, "-m", "benchmarks.consume", kind, str(path)]
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=log, timeout=TIMEOUT_S, check=False)
        if done.returncode:
            raise RuntimeError((self._folder / f"{run}.log").read_text(encoding="utf-8")[-2_000:])
        asyncio.run(_delete(settings))
        return msgspec.json.decode(done.stdout.splitlines()[-1], type=Measured)


async def _delete(settings: Settings) -> None:
    """Delete what a run wrote: the disk has better uses."""
    client = admin(settings)
    await client.start()
    try:
        names = [spec.name for spec in topics.topic_specs(settings) if spec.name != settings.topics.events]
        await client.delete_topics(names)
    finally:
        await client.close()


def throughput(bench: Bench, events: int, rounds: int, open_sessions: int) -> tuple[Report, Extra]:
    """Consume one log by both, in turn, and give the medians."""
    log = ChatLog(events=events, open_sessions=open_sessions)
    extra = Extra(event_bytes=bench.write("chat.events", log))
    count = log.sessions * (TURNS + 1)
    found: dict[str, list[Measured]] = {"bare": [], "assemble": []}
    for _ in range(rounds):
        for kind, runs in found.items():
            runs.append(bench.consume(kind, "chat.events", count))
    rates = {kind: [run.events / run.seconds for run in runs] for kind, runs in found.items()}
    extra.bare_per_cpu_s = [run.events / run.cpu_seconds for run in found["bare"]]
    extra.assemble_per_cpu_s = [run.events / run.cpu_seconds for run in found["assemble"]]
    bare, real = statistics.median(rates["bare"]), statistics.median(rates["assemble"])
    ratio = statistics.median(b / a for a, b in zip(rates["bare"], rates["assemble"], strict=True))
    report = Report(
        bare_events_per_s=bare,
        assemble_events_per_s=real,
        ratio=ratio,
        peak_mb=max(run.peak for run in found["assemble"]) / MEGA,
        bytes_per_open_session=0.0,
    )
    return report, extra


def memory(bench: Bench, few: int, many: int) -> tuple[float, float]:
    """Give the growth of resident memory with each open session, and its raw bytes."""
    resident, size = [], 0
    for sessions in (few, many):
        topic = f"open.{sessions}"
        log = ChatLog(events=sessions * TURNS, open_sessions=sessions, ended=False)
        size = bench.write(topic, log)
        resident.append(bench.consume("assemble", topic, log.events).resident)
    return (resident[1] - resident[0]) / (many - few), float(size * TURNS)


def measure(bench: Bench, events: int, rounds: int, open_sessions: int) -> tuple[Report, Extra]:
    """Run both parts."""
    report, extra = throughput(bench, events, rounds, open_sessions)
    growth = memory(bench, open_sessions, 10 * open_sessions)
    report.bytes_per_open_session, extra.raw_bytes_per_open_session = growth
    return report, extra


def readable(report: Report, extra: Extra) -> str:
    """Say it in words."""

    def thousands(rates: list[float]) -> str:
        return " ".join(f"{rate / 1000:.0f}k" for rate in rates)

    growth = report.bytes_per_open_session / max(extra.raw_bytes_per_open_session, 1.0)
    lines = [
        f"bare       {report.bare_events_per_s:9,.0f} events/s, per CPU-second {thousands(extra.bare_per_cpu_s)}",
        f"assemble   {report.assemble_events_per_s:9,.0f} events/s, per CPU-second "
        + thousands(extra.assemble_per_cpu_s),
        f"ratio      {report.ratio:9.3f}, goal >= 0.5; events of {extra.event_bytes} bytes",
        f"peak       {report.peak_mb:9.1f} MB",
        (
            f"an open session costs {report.bytes_per_open_session:,.0f} bytes, {growth:.2f} x its "
            f"{extra.raw_bytes_per_open_session:,.0f} raw bytes; goal <= 3"
        ),
    ]
    return "\n".join(lines)


def main() -> int:
    """Run the benchmark and print the report."""
    parser = argparse.ArgumentParser(description="Throughput and memory of assemble on a real broker.")
    parser.add_argument("--events", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--open", type=int, default=2_000, help="sessions open at once")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # new topics have no leader at once, and it says so
    broker_core, consumer_core = cores()
    with tempfile.TemporaryDirectory(prefix="backslide-bench-") as name:
        folder = Path(name)
        with broker(folder / "kafka", broker_core) as kafka:
            bench = Bench(kafka, folder, consumer_core)
            report, extra = measure(bench, options.events, options.rounds, options.open)
    print(json.dumps(msgspec.to_builtins(report)) if options.json else readable(report, extra))
    return 0


if __name__ == "__main__":
    sys.exit(main())
