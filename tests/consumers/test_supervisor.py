"""The supervisor with real children: restarts with back-off, ends all together, and takes nobody down with it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import psutil
import pytest

from consumers.app import PROCESSES
from consumers.supervisor import METERS, Supervisor, supervise
from monitor.config import load
from monitor.metrics import Meters
from tests.consumers.assemble_place import AssemblePlace
from tests.consumers.broker_io import until
from tests.services.kafka import KafkaBroker
from tests.services.ports import Port

# Writes a line with the time at each start, then does what it is told.
CHILD = """
import os, sys, time
with open(sys.argv[1], "a") as log:
    log.write(f"{time.monotonic()} {os.getpid()} {os.environ['BACKSLIDE_SUPERVISED']}\\n")
"""
SLEEPS = CHILD + "time.sleep(600)"
FAILS = CHILD + "sys.exit(1)"
REFUSES = CHILD + "sys.exit(2)"
# Works for a while; from its second start on it finds its settings broken, until the fourth.
BREAKS = (
    CHILD
    + """
starts = len(open(sys.argv[1]).readlines())
time.sleep(0.3 if starts == 1 else 0.0 if starts < 4 else 600)
sys.exit(1 if starts == 1 else 2)
"""
)
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SLEEPS


class Children:
    """Commands of children by name, and what they noted at their starts."""

    def __init__(self, folder: Path, **scripts: str) -> None:
        self._folder = folder
        self.commands: dict[str, Sequence[str]] = {
            name: [sys.executable, "-c", script, str(folder / name)] for name, script in scripts.items()
        }
        self.meters = Meters(METERS, version="0", process="supervisor")

    def supervisor(self, clock: Callable[[], float] = time.monotonic) -> Supervisor:
        return Supervisor(self.commands, self.meters, drain_s=0.0, clock=clock)

    def starts(self, name: str) -> list[tuple[float, int, str]]:
        path = self._folder / name
        lines = path.read_text().splitlines() if path.exists() else []
        return [(float(at), int(pid), parent) for at, pid, parent in (line.split() for line in lines)]

    def restarts(self, name: str) -> float | None:
        return self.meters.registry.get_sample_value("backslide_process_restarts_total", {"process": name})


@asynccontextmanager
async def running(supervisor: Supervisor) -> AsyncIterator[tuple[asyncio.Event, asyncio.Task[int]]]:
    stop = asyncio.Event()
    task = asyncio.create_task(supervisor.run(stop))
    try:
        yield stop, task
    finally:
        stop.set()
        await task


def is_alive(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return False


async def test_a_killed_child_comes_back_and_the_others_stay(tmp_path: Path) -> None:
    children = Children(tmp_path, judge=SLEEPS, record=SLEEPS)
    supervisor = children.supervisor()
    assert (children.restarts("judge"), children.restarts("record")) == (0, 0)
    async with running(supervisor) as (stop, task):
        await until(lambda: children.starts("judge") and children.starts("record"), 10.0, 0.02)
        assert supervisor.missing == []
        before = supervisor.pids
        os.kill(before["judge"], signal.SIGKILL)
        await until(lambda: supervisor.missing == ["judge"], 5.0, 0.02)
        await until(lambda: len(children.starts("judge")) == 2, 10.0, 0.02)
        assert (children.restarts("judge"), children.restarts("record")) == (1, 0)
        assert supervisor.pids["record"] == before["record"]
        assert {parent for _, _, parent in children.starts("judge")} == {str(os.getpid())}
        pids = supervisor.pids.values()
        stop.set()
        assert await asyncio.wait_for(task, 5.0) == 0
    assert not any(is_alive(pid) for pid in pids)


async def test_the_delay_grows_with_each_failure(tmp_path: Path) -> None:
    children = Children(tmp_path, judge=FAILS)
    async with running(children.supervisor()):
        await until(lambda: len(children.starts("judge")) == 3, 15.0, 0.02)
    times = [at for at, _, _ in children.starts("judge")]
    assert 1.0 <= times[1] - times[0] < 2.0
    assert 2.0 <= times[2] - times[1] < 3.5
    assert children.restarts("judge") in {2, 3}


async def test_a_child_that_refuses_its_settings_ends_everything_with_2(tmp_path: Path) -> None:
    children = Children(tmp_path, judge=SLEEPS, record=REFUSES)
    supervisor = children.supervisor()
    async with running(supervisor) as (_, task):
        assert await asyncio.wait_for(task, 10.0) == 2
    assert len(children.starts("record")) == 1
    assert supervisor.pids == {}
    assert not any(is_alive(pid) for _, pid, _ in children.starts("judge"))


async def test_settings_that_worked_and_break_later_end_one_process_and_not_all(tmp_path: Path) -> None:
    children = Children(tmp_path, judge=SLEEPS, sample=BREAKS)
    # A hundred times as fast: a third of a second is longer than settings need to prove themselves.
    async with running(children.supervisor(lambda: time.monotonic() * 100)) as (_, task):
        await until(lambda: len(children.starts("sample")) == 4, 30.0)
        assert not task.done()
    assert len(children.starts("judge")) == 1
    assert children.restarts("sample") == 3


async def test_a_stop_in_the_midst_of_starting_leaves_nobody_behind(tmp_path: Path) -> None:
    children = Children(tmp_path, **dict.fromkeys(PROCESSES, SLEEPS))
    for ticks in range(12):
        supervisor, stop = children.supervisor(), asyncio.Event()
        task = asyncio.create_task(supervisor.run(stop))
        for _ in range(ticks):
            await asyncio.sleep(0)
        stop.set()
        assert await asyncio.wait_for(task, 5.0) == 0
        assert supervisor.pids == {}
    await asyncio.sleep(0.3)
    assert not any(is_alive(pid) for name in PROCESSES for _, pid, _ in children.starts(name))


async def test_a_child_that_ignores_sigterm_is_killed_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("consumers.supervisor.STOP_S", 1.0)  # of 10, which nobody wants to wait for
    children = Children(tmp_path, record=STUBBORN)
    supervisor = children.supervisor()
    async with running(supervisor) as (stop, task):
        await until(lambda: children.starts("record"), 10.0, 0.02)
        started = time.monotonic()
        stop.set()
        await task
    assert 0.9 < time.monotonic() - started < 3.0
    assert not is_alive(children.starts("record")[0][1])


async def test_run_all_with_a_taken_port_refuses_by_name(tmp_path: Path) -> None:
    """All five real processes: `record` can't listen, so nothing goes on, and the status is 2."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        values = {
            "kafka": {"bootstrap_servers": "127.0.0.1:1"},
            "store": {"url": f"sqlite:///{tmp_path / 'store.sqlite'}"},
            "health": {"host": "127.0.0.1", "record_port": port}
            | {f"{name}_port": 0 for name in ("supervisor", "assemble", "sample", "judge")},
            "web": {"port": 0, "metrics_port": 0},
        }
        config = tmp_path / "config.yaml"
        config.write_text(json.dumps(values))
        assert await asyncio.wait_for(supervise(load(config), config, asyncio.Event()), 40.0) == 2


async def test_run_all_restarts_a_killed_process_and_dies_as_a_whole(
    kafka: KafkaBroker, topic_prefix: str, tmp_path: Path
) -> None:
    place = AssemblePlace(kafka, topic_prefix, tmp_path)
    port = Port()
    place.values["health"] |= {"host": "127.0.0.1", "supervisor_port": port.number}
    place.values["web"] = {"port": 0, "metrics_port": 0, "metrics_host": "127.0.0.1"}
    place.values["store"] = {"url": f"sqlite:///{tmp_path / 'store.sqlite'}"}
    await place.create()
    with closing(place.worker("all", "all")) as worker:

        def children() -> dict[str, int]:
            found = {}
            for child in psutil.Process(worker.pid).children():
                with suppress(psutil.NoSuchProcess, IndexError):  # it ended, or has yet to become the command
                    found[child.cmdline()[4]] = child.pid
            return found

        await until(lambda: set(children()) == set(PROCESSES), 20.0)
        await until(lambda: text_of(port.number, "readyz") == "ok\n", 20.0)
        before = children()
        os.kill(before["judge"], signal.SIGKILL)
        await until(lambda: children().get("judge", before["judge"]) != before["judge"], 20.0)
        assert 'process_restarts_total{process="judge"} 1.0' in text_of(port.number, "metrics")
        assert {name: pid for name, pid in children().items() if name != "judge"} == {
            name: pid for name, pid in before.items() if name != "judge"
        }
        orphans = children()
        worker.kill()  # it has no time to end anybody: they notice by themselves
        await until(lambda: not any(is_alive(pid) for pid in orphans.values()), 20.0)
    port.release()


def text_of(port: int, path: str) -> str:
    with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=5.0) as answer:
        return str(answer.read().decode())
    return ""
