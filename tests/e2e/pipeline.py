"""The whole pipeline as a user runs it, on a real broker: `backslide run all`, traffic, and what came of it."""

from __future__ import annotations

import asyncio
import signal
import time
import urllib.request
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import psutil

from consumers.embedded import free_port
from consumers.kafka import event_key, producer
from monitor.store import Store, Totals
from monitor.traffic import TrafficGenerator
from tests.consumers.assemble_place import AssemblePlace, Worker
from tests.consumers.broker_io import until
from tests.services.kafka import KafkaBroker
from tests.unit.sampling.policies import built_in_text

ASSISTANTS = {name: ["2026.10", "2026.11"] for name in ("concierge", "helpdesk")}


class Pipeline(AssemblePlace):
    """Settings, topics and processes of one run; one rubric, so that a finished session is in one frame."""

    def __init__(self, broker: KafkaBroker, prefix: str, folder: Path, **assembly: Any) -> None:
        super().__init__(broker, prefix, folder, **assembly)
        self.metrics_port = free_port()
        policy = folder / "one-rubric.yaml"
        policy.write_text(built_in_text("correction"))
        self.values |= {
            "sampling": {"salt": "a salt", "assistants": ASSISTANTS, "policy": str(policy)},
            "store": {"url": f"sqlite:///{folder / 'store.sqlite'}"},
            "web": {"port": 0, "metrics_host": "127.0.0.1", "metrics_port": self.metrics_port},
            "log": {"level": "info", "format": "json"},
        }

    def store(self) -> Store:
        return Store.open(self.settings.store.url)

    def run_all(self) -> Worker:
        return self.worker("all", "all")

    async def send_traffic(self, traffic: TrafficGenerator) -> None:
        """Send generated traffic at its own pace, with real event times."""
        topic = self.settings.topics.events
        sender = producer(self.settings)
        await sender.start()
        base = time.time()
        try:
            for delivery in traffic.deliveries(base):
                early = base + delivery.at - time.time()
                if early > 0.01:
                    await asyncio.sleep(early)
                value = msgspec.json.encode(delivery.event)
                await sender.send(topic, value, key=event_key(*delivery.key))
        finally:
            await sender.stop()

    def metrics(self) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=5) as answer:
            return str(answer.read().decode())


def settled(store: Store, sessions: int) -> bool:
    """Say whether so many sessions are finished, and no job waits for its result."""
    totals = store.totals()
    return sum_of(totals, "sessions_finished") == sessions and not sum(totals.pending.values())


def sum_of(totals: Totals, name: str) -> int:
    """Sum a metric over all labels."""
    return sum(value for key, value in totals.sums.items() if key.name == name)


def children(worker: Worker) -> dict[str, psutil.Process]:
    """Give the processes under a supervisor by name; one that is just ending or beginning isn't among them."""
    found = {}
    for child in psutil.Process(worker.pid).children():
        try:
            command = child.cmdline()
        except psutil.Error:
            continue
        if "run" in command:
            found[command[command.index("run") + 1]] = child
    return found


async def kill_each(worker: Worker, names: Iterable[str], every: float) -> None:
    """SIGKILL each process once, one after the other, when it is there."""
    for name in names:
        await asyncio.sleep(every)
        await until(partial(running, worker, name), 60)
        children(worker)[name].send_signal(signal.SIGKILL)


def running(worker: Worker, name: str) -> bool:
    """Say whether a process of that name runs under a supervisor."""
    return name in children(worker)
