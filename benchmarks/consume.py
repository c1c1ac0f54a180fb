"""One measured consumer in a process of its own, pinned to a core: `python -m benchmarks.consume KIND FILE`.

KIND is `bare` or `assemble`, FILE the settings as JSON. Prints one JSON object, a `Measured`.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import psutil

from consumers.assemble import METERS, Assemble
from consumers.collection import seldom_collected
from consumers.health import Health
from consumers.kafka import consumer
from monitor.config import Settings, load
from monitor.logging import configure
from monitor.metrics import Meters

LOOK_S = 0.02


class Order(msgspec.Struct, kw_only=True):
    """What to do: `values` are settings, `events` says when to stop."""

    values: dict[str, Any]
    events: int
    core: int | None = None


class Measured(msgspec.Struct, kw_only=True):
    """`events` in `seconds` of wall clock and `cpu_seconds` of this process; memory in bytes."""

    events: int
    seconds: float
    cpu_seconds: float
    resident: int
    peak: int


class BareEvent(msgspec.Struct):
    """The fields that every event has, and those of a turn, unchecked."""

    type: str
    event_id: str
    session_id: str
    ts: float
    tenant: str = "default"
    turn_id: str | None = None
    turn_index: int | None = None
    role: str | None = None
    text: str | None = None


class Stopwatch:
    """Time from the first look at which there was progress; what came before that look isn't counted."""

    def __init__(self) -> None:
        self._started: tuple[int, float, float] | None = None

    def look(self, done: int) -> None:
        """Note how much is done."""
        if self._started is None and done:
            self._started = (done, time.perf_counter(), time.process_time())

    def stop(self, done: int) -> Measured:
        """Give what was measured. Raises `RuntimeError` when there was no progress at all."""
        if self._started is None:
            raise RuntimeError("nothing was consumed")
        before, wall, cpu = self._started
        return Measured(
            events=done - before,
            seconds=time.perf_counter() - wall,
            cpu_seconds=time.process_time() - cpu,
            resident=psutil.Process().memory_info().rss,
            peak=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        )


async def bare(settings: Settings, events: int) -> Measured:
    """Read and decode, count per session in a dict, and do nothing else."""
    reader = consumer(settings, None, auto_offset_reset="earliest")
    reader.subscribe([settings.topics.events])
    decode = msgspec.json.Decoder(BareEvent).decode
    sessions: dict[str, int] = {}
    watch, done = Stopwatch(), 0
    await reader.start()
    try:
        while done < events:
            batch = await reader.getmany(timeout_ms=200, max_records=500)
            for records in batch.values():
                for record in records:
                    event = decode(record.value)
                    sessions[event.session_id] = sessions.get(event.session_id, 0) + 1
                done += len(records)
            watch.look(done)
        return watch.stop(done)
    finally:
        await reader.stop()


async def assemble(settings: Settings, events: int) -> Measured:
    """Run the real process until all events are applied, all sessions acknowledged, and the commit is through."""
    meters = Meters(METERS, version="benchmark", process="assemble")
    assembling = Assemble(settings, meters, Health(time.monotonic))
    with seldom_collected():
        return await _assembled(assembling, meters, events)


async def _assembled(assembling: Assemble, meters: Meters, events: int) -> Measured:
    stop, watch = asyncio.Event(), Stopwatch()
    await assembling.start()
    try:
        running = asyncio.create_task(assembling.run(stop))
        while (done := _events(meters)) < events and not running.done():
            watch.look(done)
            await asyncio.sleep(LOOK_S)
        resident = psutil.Process().memory_info().rss
        stop.set()
        await running
        measured = watch.stop(done)
        measured.resident = resident
        return measured
    finally:
        await assembling.close()


def _events(meters: Meters) -> int:
    counted = meters.registry.get_sample_value("backslide_events_total", {"event_type": "turn"}) or 0.0
    ended = meters.registry.get_sample_value("backslide_events_total", {"event_type": "session_end"}) or 0.0
    return round(counted + ended)


def main() -> int:
    """Do what the order says."""
    kind, path = sys.argv[1:]
    order = msgspec.json.decode(Path(path).read_bytes(), type=Order)
    if order.core is not None:
        os.sched_setaffinity(0, {order.core})
    settings = load(None, order.values)
    configure(settings.log)
    work = bare if kind == "bare" else assemble
    print(msgspec.json.encode(asyncio.run(work(settings, order.events))).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
