"""`run all`: the five processes under one supervisor that restarts them with back-off."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import structlog

from consumers.app import EXIT_CONFIG, PROCESSES, SUPERVISED, command
from consumers.health import Health, Server, create_app
from monitor import __version__
from monitor.config import Settings
from monitor.metrics import Meters

FIRST_DELAY_S: Final = 0.5
LONGEST_DELAY_S: Final = 30.0
STEADY_S: Final = 60.0  # alive for so long, the next failure counts as the first
PROVEN_S: Final = 10.0  # settings that worked for so long once: a file broken since then ends one process, not all
STOP_S: Final = 10.0
METERS: Final = ("process_restarts",)


class Supervisor:
    """Starts processes, restarts those that end, and ends all of them together."""

    def __init__(
        self,
        commands: Mapping[str, Sequence[str]],
        meters: Meters,
        *,
        drain_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._commands = dict(commands)
        self._meters = meters
        self._drain = drain_s
        self._env = {**os.environ, SUPERVISED: str(os.getpid())}
        self._clock = clock
        self._running: dict[str, asyncio.subprocess.Process] = {}
        self._stopping = asyncio.Event()
        self._refused: str | None = None
        self._log = structlog.get_logger().bind(process="supervisor")
        for name in self._commands:
            meters.counter("process_restarts", process=name)

    @property
    def pids(self) -> dict[str, int]:
        """Process ids of what runs now, by name."""
        return {name: child.pid for name, child in self._running.items()}

    @property
    def missing(self) -> list[str]:
        """Names of processes that do not run now."""
        return [name for name in self._commands if name not in self._running]

    async def run(self, stop: asyncio.Event) -> int:
        """Keep all processes running until `stop` is set or one refuses its settings; give the exit status."""
        keepers = [asyncio.create_task(self._keep(name), name=f"keep-{name}") for name in self._commands]
        waiter = asyncio.create_task(stop.wait())
        refused = asyncio.create_task(self._stopping.wait())
        await asyncio.wait({waiter, refused}, return_when=asyncio.FIRST_COMPLETED)
        self._stopping.set()
        for task in (waiter, refused):
            task.cancel()
        await asyncio.gather(*(self._end(name) for name in list(self._running)))
        await asyncio.gather(*keepers)
        return EXIT_CONFIG if self._refused else 0

    async def _keep(self, name: str) -> None:
        delay, proven = FIRST_DELAY_S, False
        while not self._stopping.is_set():
            started = self._clock()
            child = await asyncio.create_subprocess_exec(*self._commands[name], env=self._env)
            self._running[name] = child
            if self._stopping.is_set():
                await self._end(name)  # the stop came while it was being started
            status = await child.wait()
            del self._running[name]
            if self._stopping.is_set():
                return
            proven = proven or self._clock() - started > PROVEN_S
            if status == EXIT_CONFIG and not proven:
                self._refuse(name)
                return
            delay = FIRST_DELAY_S if self._clock() - started > STEADY_S else min(delay * 2, LONGEST_DELAY_S)
            self._meters.counter("process_restarts", process=name).inc()
            self._log.warning("restarting", child=name, status=status, delay_s=delay)
            await self._pause(delay)

    def _refuse(self, name: str) -> None:
        """End everything: settings that are refused once are refused each time."""
        self._refused = name
        self._log.error("refused_settings", child=name)
        self._stopping.set()

    async def _pause(self, delay: float) -> None:
        waiter = asyncio.create_task(self._stopping.wait())
        await asyncio.wait({waiter}, timeout=delay)
        waiter.cancel()

    async def _end(self, name: str) -> None:
        """End a process: SIGTERM, its time, SIGKILL."""
        child = self._running.get(name)
        if child is None:
            return
        patience = STOP_S + (self._drain if name == "judge" else 0.0)
        try:
            child.send_signal(signal.SIGTERM)
            await asyncio.wait_for(child.wait(), patience)
        except ProcessLookupError:
            return
        except TimeoutError:
            self._log.error("killed", child=name, after_s=patience)
            child.kill()


async def run_all(settings: Settings, config: Path | None) -> int:
    """Run all processes until a signal; give the exit status."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return await supervise(settings, config, stop)


async def supervise(settings: Settings, config: Path | None, stop: asyncio.Event) -> int:
    """Run all processes until `stop` is set; give the exit status."""
    meters = Meters(METERS, version=__version__, process="supervisor")
    commands = {name: command(name, config) for name in PROCESSES}
    supervisor = Supervisor(commands, meters, drain_s=settings.judge.drain_s)
    health = Health(time.monotonic)
    server = Server(create_app(meters.registry, health), settings.health.host, settings.health.supervisor_port)
    await server.start()
    watching = asyncio.create_task(_watch(supervisor, health))
    try:
        return await supervisor.run(stop)
    finally:
        watching.cancel()
        await server.stop()


async def _watch(supervisor: Supervisor, health: Health) -> None:
    while True:
        missing = supervisor.missing
        health.beat()
        health.ready(not missing, f"not running: {', '.join(missing)}")
        await asyncio.sleep(0.5)
