"""`backslide demo`: the whole pipeline on live traffic of its own, with the embedded broker.

It sends sessions at their own pace, waits until all of them are judged, and compares what the pipeline found with
what the generator knows and with a census (the same judge on every session).
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog
import yaml
from aiokafka import AIOKafkaProducer

from consumers import topics
from consumers.demo_report import DemoReport, build_report, finished_sessions, read_results
from consumers.embedded import EmbeddedBroker, free_port
from consumers.kafka import event_key, producer
from consumers.seldom import Seldom
from consumers.supervisor import supervise
from monitor.config import Settings, load
from monitor.errors import BackslideError
from monitor.logging import configure
from monitor.store import Store
from monitor.traffic import SessionLabel, TrafficGenerator, TrafficPlan

PARTITIONS: Final = 2
READY_S: Final = 40.0
SETTLE_S: Final = 60.0
TRAFFIC_S: Final = 26.0
FEEDBACK_S: Final = 4.0  # most thumbs come when their session has closed
PROBED: Final = ("assemble", "sample", "judge", "record")


def run_demo(*, once: bool, as_json: bool, seed: int, sessions: int) -> int:
    """Run the demo and give the exit status: 0 when nothing was lost or counted twice."""
    folder = Path(tempfile.mkdtemp(prefix="backslide-demo-"))
    try:
        return asyncio.run(Demo(folder, seed=seed, sessions=sessions, quiet=as_json).run(once=once))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Demo:
    """One run of the demo in a folder of its own."""

    def __init__(self, folder: Path, *, seed: int, sessions: int, quiet: bool) -> None:
        self._folder = folder
        self._quiet = quiet
        plan = TrafficPlan(sessions=sessions, duration_s=TRAFFIC_S, feedback_delay_s=FEEDBACK_S)
        self._traffic = TrafficGenerator(seed, plan)
        self._labels: tuple[SessionLabel, ...] = tuple(self._traffic.labels())
        self._broker = EmbeddedBroker(folder)
        self._config = folder / "demo.yaml"
        self._settings = self._write_settings()
        self._stop = asyncio.Event()

    def _write_settings(self) -> Settings:
        values = demo_settings(self._folder, self._broker.bootstrap_servers, self._labels)
        self._config.write_text(yaml.safe_dump(values), encoding="utf-8")
        return load(self._config)

    async def run(self, *, once: bool) -> int:
        """Start everything, send, report; then serve until a signal unless `once`."""
        configure(self._settings.log, filters=[Seldom()])
        self._stop_on_signals()
        self._say(f"logs, settings and data: {self._folder} (removed at the end)")
        await self._broker.start()
        pipeline: asyncio.Task[int] | None = None
        try:
            await topics.create(self._settings)
            pipeline = asyncio.create_task(supervise(self._settings, self._config, self._stop))
            await self._unless_stopped(self._until_ready(pipeline))
            self._say_addresses()
            await self._unless_stopped(self._send())
            report = await self._unless_stopped(self._report())
            self._print(report)
            if not once:
                self._say("\nStill serving; Ctrl-C ends it.")
                await self._stop.wait()
        except asyncio.CancelledError:
            return 130
        else:
            return 0 if report.lost == report.duplicated == 0 else 1
        finally:
            self._stop.set()
            if pipeline is not None:
                await pipeline
            self._broker.stop()

    def _stop_on_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)

    async def _unless_stopped(self, work: Any) -> Any:
        """Await work, but leave it when a signal comes."""
        task = asyncio.ensure_future(work)
        stopping = asyncio.ensure_future(self._stop.wait())
        await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not task.done():
            task.cancel()
            raise asyncio.CancelledError
        return task.result()

    # -- steps ---------------------------------------------------------------------------------------------

    async def _until_ready(self, pipeline: asyncio.Task[int]) -> None:
        ports = [getattr(self._settings.health, f"{name}_port") for name in PROBED]
        ports.append(self._settings.web.metrics_port)
        async with asyncio.timeout(READY_S):
            for port in ports:
                while not await asyncio.to_thread(_is_ready, port):
                    if pipeline.done():
                        raise BackslideError("the pipeline ended at its start; its log says why")
                    await asyncio.sleep(0.2)

    async def _send(self) -> None:
        """Send the traffic at its own pace: event times are real, and so is the disorder."""
        sender = producer(self._settings)
        await sender.start()
        base, sent = time.time(), 0
        try:
            for delivery in self._traffic.deliveries(base):
                early = base + delivery.at - time.time()
                if early > 0:
                    await asyncio.sleep(early)
                await self._send_one(sender, delivery)
                sent += 1
                if sent % 5_000 == 0:
                    self._say(f"{sent:>7,} events sent")
            await sender.flush()
        finally:
            await sender.stop()
        self._say(f"{sent:>7,} events sent, {len(self._labels):,} sessions; waiting for the last to close")

    async def _send_one(self, sender: AIOKafkaProducer, delivery: Any) -> None:
        tenant, session_id = delivery.key
        value = msgspec.json.encode(delivery.event)
        await sender.send(self._settings.topics.events, value, key=event_key(tenant, session_id))

    async def _report(self) -> DemoReport:
        """Wait until every session is decided and every job answered, then compare."""
        store = Store.open(self._settings.store.url)
        try:
            await self._until_settled(store)
            results = await read_results(self._settings)
            return await asyncio.to_thread(build_report, store, results, self._labels, self._settings)
        finally:
            store.close()

    async def _until_settled(self, store: Store) -> None:
        log = structlog.get_logger()
        limit, last = time.monotonic() + SETTLE_S, -1
        while time.monotonic() < limit:
            totals = await asyncio.to_thread(store.totals)
            finished = finished_sessions(totals)
            pending = sum(totals.pending.values())
            if finished >= len(self._labels) and not pending and finished == last:
                return
            last = finished
            await asyncio.sleep(1.0)
        log.warning("not_settled", finished=finished, pending=pending, expected=len(self._labels))

    # -- saying --------------------------------------------------------------------------------------------

    def _say(self, text: str) -> None:
        if not self._quiet:
            sys.stdout.write(f"{text}\n")
            sys.stdout.flush()

    def _say_addresses(self) -> None:
        web = self._settings.web
        self._say(f"pages:    http://127.0.0.1:{web.port}/")
        self._say(f"metrics:  http://127.0.0.1:{web.metrics_port}/metrics")

    def _print(self, report: DemoReport) -> None:
        sys.stdout.write((report.as_json() if self._quiet else report.as_text()) + "\n")
        sys.stdout.flush()


def demo_settings(folder: Path, servers: str, labels: tuple[SessionLabel, ...]) -> dict[str, Any]:
    """Give the settings of the demo: short times, free ports, everything inside one folder."""
    versions: dict[str, list[str]] = {}
    for label in labels:
        known = versions.setdefault(label.assistant, [])
        if label.assistant_version not in known:
            known.append(label.assistant_version)
    return {
        "kafka": {
            "bootstrap_servers": servers,
            "commit_metadata": False,
            "session_timeout_s": 10.0,
        },
        "topics": {"event_partitions": PARTITIONS, "job_partitions": PARTITIONS, "check": False},
        "assembly": {"gap_s": 7.0, "grace_s": 2.0, "tick_interval_s": 0.5, "commit_interval_s": 0.5},
        "sampling": {"salt": "the demo's salt is no secret", "assistants": versions},
        "store": {"url": f"sqlite:///{folder / 'demo.sqlite'}"},
        "web": {"port": free_port(8080), "metrics_host": "127.0.0.1", "metrics_port": free_port(9464)},
        "health": {
            "host": "127.0.0.1",
            "supervisor_port": free_port(),
            **{f"{name}_port": free_port() for name in PROBED},
        },
        "log": {"level": "warning", "format": "console"},
    }


def _is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=1.0) as answer:
            return bool(answer.status == 200)  # noqa: PLR2004
    except (urllib.error.URLError, OSError):
        return False
