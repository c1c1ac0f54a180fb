"""More than the pipeline can take at once: bounded memory, nothing lost, urgent jobs first.

    python -m benchmarks.overload [--json] [--only NAME] [--scale SHARE]

Real processes on a real Kafka broker. Each scenario writes its flood first, as an outage would leave it, and then
starts the processes: `never_ending` sessions, `one_turn` sessions, a `hot` partition, `huge` sessions, and a
`backlog` of ordinary ones with the judge coming last. Resident memory is read twice a second.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, Final

import msgspec
import psutil
from aiokafka.errors import GroupCoordinatorNotAvailableError

from consumers.embedded import free_port
from consumers.kafka import event_key, partition_for
from monitor.decision import Decision, decode_decision
from monitor.events import Role, SessionEnd, SessionEvent, Turn
from monitor.judgement import decode_judgement
from monitor.metrics import PREFIX
from monitor.session import SessionRecord, decode_record, session_view
from monitor.store import SessionFilter
from monitor.traffic import TrafficGenerator, TrafficPlan
from tests.consumers.assemble_place import PARTITIONS, Worker
from tests.consumers.broker_io import until
from tests.e2e.pipeline import Pipeline, settled, sum_of
from tests.services.kafka import KafkaBroker

Figures = dict[str, Any]
MB: Final = 1_048_576
PATIENCE_S: Final = 1_800.0


class Watch:
    """Resident memory and lag of processes, twice a second."""

    def __init__(self) -> None:
        self.curves: dict[str, list[tuple[float, float]]] = {}
        self.lags: dict[str, float] = {}
        self._processes: dict[str, tuple[psutil.Process, int]] = {}
        self._started = time.monotonic()

    def add(self, name: str, worker: Worker, port: int) -> None:
        """Watch a process from now on."""
        self._processes[name] = psutil.Process(worker.pid), port

    async def run(self) -> None:
        """Look until canceled."""
        while True:
            for name, (process, port) in list(self._processes.items()):
                with contextlib.suppress(psutil.NoSuchProcess):
                    point = (time.monotonic() - self._started, process.memory_info().rss / MB)
                    self.curves.setdefault(name, []).append(point)
                for topic, lag in (await asyncio.to_thread(lags, port)).items():
                    label = f"{name}:{topic.rpartition('-')[2]}"
                    self.lags[label] = max(self.lags.get(label, 0.0), lag)
            await asyncio.sleep(0.5)

    def figures(self) -> Figures:
        """Give peaks, curves of at most 20 points, and the largest lags seen."""
        found: Figures = {}
        for name, curve in self.curves.items():
            shown = curve[:: max(len(curve) // 20, 1)]
            found[name] = {
                "peak_mb": round(max(rss for _, rss in curve)),
                "curve_s_mb": [(round(at), round(rss)) for at, rss in shown],
            }
        return {"rss": found, "max_lag_s": {name: round(lag, 1) for name, lag in self.lags.items()}}


def lags(port: int) -> dict[str, float]:
    """Read a process's `lag_seconds` by topic; nothing while it can't be reached."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
    except OSError:
        return {}
    prefix = f'{PREFIX}lag_seconds{{topic="'
    found = [line.removeprefix(prefix).split('"} ') for line in lines if line.startswith(prefix)]
    return {topic: float(value) for topic, value in found}


class Flood(Pipeline):
    """A pipeline whose processes are started one by one, each with a port to look at."""

    def __init__(self, broker: KafkaBroker, name: str, folder: Path, **assembly: Any) -> None:
        super().__init__(broker, f"{name}-", folder, grace_s=2.0, **assembly)
        self.ports = {process: free_port() for process in ("assemble", "sample", "judge", "record")}
        self.values["health"] = {f"{process}_port": port for process, port in self.ports.items()} | {
            "supervisor_port": 0
        }
        self.values["log"] = {"level": "warning", "format": "json"}
        self.watch = Watch()

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Look at the processes meanwhile."""
        looking = asyncio.create_task(self.watch.run())
        try:
            yield
        finally:
            looking.cancel()

    @contextlib.contextmanager
    def process(self, *names: str) -> Iterator[None]:
        """Run processes, and stop them at the end."""
        with contextlib.ExitStack() as stack:
            for name in names:
                worker = stack.enter_context(closing(self.worker(name, name)))
                if name in self.ports:
                    self.watch.add(name, worker, self.ports[name])
            yield

    async def flood(self, events: Iterable[SessionEvent]) -> float:
        """Write events as fast as they can be, and give the seconds."""
        started = time.monotonic()
        await self.send(events)
        return time.monotonic() - started


async def never_ending(broker: KafkaBroker, folder: Path, scale: float) -> Figures:
    """Thousands of sessions that go on for ever: what is open at once is bounded by bytes of the log."""
    sessions, rounds = round(4_000 * scale), 60
    bound = max(round(16 * MB * scale), MB)
    place = Flood(broker, "never-ending", folder, gap_s=8.0, max_pinned_bytes=bound)
    await place.create()
    now = time.time() - 600
    events = (_turn(f"s{number}", turn, now + turn) for turn in range(rounds) for number in range(sessions))
    figures = await _assembled(place, events, sessions * rounds)
    return figures | {"bound_mb": PARTITIONS * bound / MB}


async def one_turn(broker: KafkaBroker, folder: Path, scale: float) -> Figures:
    """Sessions of one turn: what is remembered of closed ones is what counts."""
    sessions = round(200_000 * scale)
    place = Flood(broker, "one-turn", folder, gap_s=1.0)
    await place.create()
    now = time.time() - 300
    events = (_turn(f"s{number}", 0, now + number * 200 / sessions) for number in range(sessions))
    return await _assembled(place, events, sessions)


async def hot(broker: KafkaBroker, folder: Path, scale: float) -> Figures:
    """All traffic but a little in one partition: the others don't wait for it."""
    number = round(300_000 * scale)
    place = Flood(broker, "hot", folder, gap_s=1.0)
    await place.create()
    now = time.time() - 300
    names = _names(0, number // 6)
    hot_events = (event for at, name in enumerate(names) for event in _short(name, now + at * 1e-3))
    calm = [event for part in (1, 2, 3) for name in _names(part, 20) for event in _short(name, now)]
    figures = await _assembled(place, [*hot_events, *calm], len(names) * 6 + len(calm))
    order = [record.partition for record in await place.read(place.settings.topics.sessions)]
    records = [record for record in await place.read(place.settings.topics.sessions) if record.partition != 0]
    stamps = sorted(record.timestamp for record in await place.read(place.settings.topics.sessions))
    behind = max(record.timestamp for record in records) - stamps[0]
    return figures | {"calm_sessions": len(records), "calm_done_after_s": behind / 1000, "sessions": len(order)}


async def huge(broker: KafkaBroker, folder: Path, scale: float) -> Figures:
    """Sessions of 390 kB through every process."""
    sessions = round(1_500 * scale)
    place = Flood(broker, "huge", folder, gap_s=1.0)
    place.values["sampling"]["policy"] = _everything(folder)
    await place.create()
    now = time.time() - 300
    text = "All work and no play. " * 4_400
    events = (
        event for number in range(sessions) for event in _short(f"s{number}", now + number / sessions, 4, text)
    )
    seconds = await place.flood(events)
    return {"write_s": round(seconds)} | await _drained(place, sessions)


async def backlog(broker: KafkaBroker, folder: Path, scale: float) -> Figures:
    """Ordinary sessions, all at once, as an outage leaves them; the judge comes when all jobs are there."""
    sessions = round(50_000 * scale)
    place = Flood(broker, "backlog", folder, gap_s=12.0)
    await place.create()
    traffic = TrafficGenerator(7, TrafficPlan(sessions=sessions, duration_s=600.0))
    base = time.time() - 700
    decode = msgspec.json.Decoder(SessionEvent)
    events = (decode.decode(msgspec.json.encode(each.event)) for each in traffic.deliveries(base))
    seconds = await place.flood(events)
    figures = {"write_s": round(seconds)} | await _drained(place, sessions, judge_last=True)
    return figures | await _truth(place, traffic) | _pages(place)


SCENARIOS: Final[dict[str, Callable[[KafkaBroker, Path, float], Awaitable[Figures]]]] = {
    "never_ending": never_ending,
    "one_turn": one_turn,
    "hot": hot,
    "huge": huge,
    "backlog": backlog,
}


async def _assembled(place: Flood, events: Iterable[SessionEvent], turns: int) -> Figures:
    """Write a flood, let `assemble` work it off, and count the turns that came out."""
    seconds = await place.flood(events)
    started = time.monotonic()
    async with place.watched():
        with place.process("assemble"):
            await until(lambda: _caught_up(place), PATIENCE_S, 1.0)
            drained = time.monotonic() - started
    views = [
        (session_view(record.content), record.span)
        for record in map(decode_record, [one.value for one in await place.read(place.settings.topics.sessions)])
        if isinstance(record, SessionRecord)
    ]
    out = Counter(each.turn_id for view, _ in views for each in view.turns)
    figures: Figures = {
        "write_s": round(seconds),
        "drain_s": round(drained),
        "turns_in": turns,
        "turns_out": len(out),
        "doubled": sum(count > 1 for count in out.values()),
        "closed": dict(Counter(view.close_reason for view, _ in views)),
    }
    return figures | place.watch.figures()


async def _caught_up(place: Flood) -> bool:
    """Whether the group has committed all of the log but what is still open."""
    try:
        commits, lengths = await place.commits(), await place.lengths()
    except GroupCoordinatorNotAvailableError:
        return False  # the broker has just started
    if commits.keys() != lengths.keys():
        return False
    # Ticks are written as long as anything is open: of a log that grows no more, all is closed.
    return all(offset == lengths[number] for number, (offset, _) in commits.items())


async def _drained(place: Flood, sessions: int, *, judge_last: bool = False) -> Figures:
    """Start all processes on a flood and wait until every session is decided and judged."""
    started = time.monotonic()
    figures: Figures = {}
    with closing(place.store()) as store:
        async with place.watched():
            first = ("record", "sample", "assemble", "web")
            with place.process(*(first if judge_last else (*first, "judge"))):
                await until(lambda: sum_of(store.totals(), "sessions_finished") == sessions, PATIENCE_S, 0.5)
                figures["decided_s"] = round(time.monotonic() - started)
                figures["pending_jobs"] = sum(store.totals().pending.values())
                again = time.monotonic()
                with place.process(*(("judge",) if judge_last else ())):
                    await until(lambda: settled(store, sessions), PATIENCE_S, 0.5)
                figures["judged_s"] = round(time.monotonic() - again)
                scraping = time.monotonic()
                figures["metrics_bytes"] = len(place.metrics())
                figures["metrics_ms"] = round((time.monotonic() - scraping) * 1000)
        totals = store.totals()
        figures |= {name: sum_of(totals, name) for name in ("sessions_finished", "jobs_listed", "verdicts")}
        figures["superseded"] = sum_of(totals, "judgements_superseded")
    return figures | place.watch.figures()


async def _truth(place: Flood, traffic: TrafficGenerator) -> Figures:
    """Compare decisions with what was sent, and see when urgent jobs were answered."""
    decided: Counter[tuple[str, str]] = Counter()
    urgent: set[str] = set()
    for record in await place.read(place.settings.topics.decisions):
        decision = decode_decision(record.value)
        if isinstance(decision, Decision):
            decided[decision.tenant, decision.session_id] += 1
            if decision.priority == "urgent":
                urgent |= {ref.job_id for ref in decision.jobs}
    sent = {(label.tenant, label.session_id) for label in traffic.labels()}
    judged = sorted(await place.read(place.settings.topics.judgements), key=lambda record: record.timestamp)
    places = [decode_judgement(record.value).job_id in urgent for record in judged]
    last = len(places) - places[::-1].index(True) if True in places else 0
    return {
        "lost": len(sent - decided.keys()),
        "doubled": sum(count > 1 for count in decided.values()),
        "urgent_jobs": sum(places),
        "answered_until_last_urgent": last,
    }


def _pages(place: Flood) -> Figures:
    """Time the queries behind the pages (best of three, ms)."""
    with closing(place.store()) as store:
        newest = store.sessions(SessionFilter()).rows[0]
        queries = {
            "list_ms": lambda: store.sessions(SessionFilter()),
            "failures_ms": lambda: store.sessions(SessionFilter(failure="reverted")),
            "stratum_ms": lambda: store.sessions(SessionFilter(stratum="escalated")),
            "one_ms": lambda: store.session(newest.tenant, newest.session_id, newest.segment),
            "totals_ms": store.totals,
        }
        return {name: min(_timed(query) for _ in range(3)) for name, query in queries.items()}


def _timed(query: Callable[[], object]) -> float:
    started = time.perf_counter()
    query()
    return round((time.perf_counter() - started) * 1000, 1)


def _turn(name: str, number: int, ts: float, text: str = "") -> Turn:
    role: Role = "user" if number % 2 == 0 else "assistant"
    said = text or f"Turn {number} of {name}. " * 15
    return Turn(
        event_id=f"{name}-{number}", session_id=name, ts=ts, turn_id=f"{name}-{number}", role=role, text=said
    )


def _short(name: str, ts: float, turns: int = 6, text: str = "") -> Iterator[SessionEvent]:
    for number in range(turns):
        yield _turn(name, number, ts + number * 1e-6, text)
    if text:
        yield SessionEnd(event_id=f"{name}-end", session_id=name, ts=ts + 1e-3)


def _names(partition: int, count: int) -> list[str]:
    """Give session ids whose events go into one partition."""
    found: list[str] = []
    number = 0
    while len(found) < count:
        name = f"h{number}"
        if partition_for(event_key("default", name), PARTITIONS) == partition:
            found.append(name)
        number += 1
    return found


def _everything(folder: Path) -> str:
    policy = folder / "policy.yaml"
    policy.write_text("strata: [{name: base, rate: 1, rubrics: [correction]}]")
    return str(policy)


async def run(names: Iterable[str], scale: float, folder: Path) -> dict[str, Figures]:
    """Run scenarios, one after the other, on one broker."""
    found = {}
    with KafkaBroker(folder / "kafka", "512m") as broker:
        for name in names:
            place = folder / name
            place.mkdir()
            found[name] = await SCENARIOS[name](broker, place, scale)
            print(f"{name}: done", file=sys.stderr)
    return found


def main(arguments: list[str] | None = None) -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.overload", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--only", choices=sorted(SCENARIOS), help="run one scenario")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full size")
    chosen = parser.parse_args(arguments)
    names = [chosen.only] if chosen.only else list(SCENARIOS)
    with tempfile.TemporaryDirectory(prefix="backslide-overload-") as folder:
        found = asyncio.run(run(names, chosen.scale, Path(folder)))
    if chosen.json:
        print(json.dumps(found, indent=2))
        return
    for name, figures in found.items():
        print(name)
        for key, value in figures.items():
            print(f"  {key}: {json.dumps(value)}")


if __name__ == "__main__":
    main()
