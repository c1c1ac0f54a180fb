"""The composition root of a process: settings, logs, meters, health server, signals, and the work itself."""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
import structlog
from aiokafka.errors import KafkaError

from consumers.health import Health, Server, create_app
from consumers.seldom import Seldom
from monitor import __version__
from monitor.config import Settings
from monitor.errors import BackslideError, ConfigError
from monitor.logging import configure
from monitor.metrics import Meters

Serve: TypeAlias = Callable[[Settings, Meters, asyncio.Event, Health], Awaitable[None]]

# The order in which a supervisor starts them: what reads a topic is there before what writes it.
PROCESSES: Final = ("web", "record", "judge", "sample", "assemble")
SUPERVISED: Final = "BACKSLIDE_SUPERVISED"  # holds the supervisor's process id
EXIT_CONFIG: Final = 2
EXIT_FAILED: Final = 1


class Process(msgspec.Struct, kw_only=True, frozen=True):
    """One of the five processes: what it does, the metrics it needs, the port of its health server."""

    name: str
    serve: Serve
    meters: tuple[str, ...]
    port: int | None


def process(name: str, settings: Settings) -> Process:
    """Look a process up. Its module is imported only now, since each brings its own clients."""
    module: Any = importlib.import_module(f"consumers.{name}")
    port = None if name == "web" else getattr(settings.health, f"{name}_port")
    return Process(name=name, serve=module.serve, meters=module.METERS, port=port)


def run_process(name: str, settings: Settings) -> int:
    """Run a process until a signal or a failure, and give its exit status."""
    configure(settings.log, filters=[Seldom()])
    log = structlog.get_logger().bind(process=name)
    try:
        asyncio.run(_main(process(name, settings), settings))
    except ConfigError as error:
        log.error("refused", error=str(error))  # noqa: TRY400 - the message says it all
        return EXIT_CONFIG
    except BackslideError as error:
        log.error("failed", error=str(error), kind=type(error).__name__)  # noqa: TRY400
        return EXIT_FAILED
    except KafkaError as error:
        servers = settings.kafka.bootstrap_servers
        remedy = f"are the brokers of kafka.bootstrap_servers = {servers} there and reachable?"
        log.error("failed", error=str(error), kind=type(error).__name__, remedy=remedy)  # noqa: TRY400
        return EXIT_FAILED
    return 0


async def _main(chosen: Process, settings: Settings) -> None:
    meters = Meters(chosen.meters, version=__version__, process=chosen.name)
    health = Health(time.monotonic)
    stop = asyncio.Event()
    _stop_on_signals(stop)
    server = None
    if chosen.port is not None:
        app = create_app(meters.registry, health)
        server = Server(app, settings.health.host, chosen.port, setting=f"health.{chosen.name}_port")
        await server.start()
    log = structlog.get_logger().bind(process=chosen.name)
    log.info("started", version=__version__, pid=os.getpid(), port=server.port if server else None)
    parent = os.environ.get(SUPERVISED)
    orphaned = asyncio.create_task(_stop_when_orphaned(stop, int(parent))) if parent else None
    try:
        await chosen.serve(settings, meters, stop, health)
    except BaseException as error:
        if getattr(error, "end_at_once", False):
            _end_at_once(error, chosen.name)
        raise
    finally:
        if orphaned is not None:
            orphaned.cancel()
        if server is not None:
            await server.stop()
    log.info("stopped")


def _stop_on_signals(stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)


async def _stop_when_orphaned(stop: asyncio.Event, parent: int) -> None:
    """Stop when the supervisor is gone without having said so, be it before this process came up."""
    while os.getppid() == parent:  # noqa: ASYNC110 - nothing announces it
        await asyncio.sleep(1.0)
    stop.set()


def _end_at_once(error: BaseException, name: str) -> None:
    """End without awaiting anything more: any clean-up might commit what must not be committed."""
    structlog.get_logger().error("ended_at_once", process=name, error=f"{type(error).__name__}: {error}")
    sys.stderr.flush()
    os._exit(EXIT_FAILED)


def command(name: str, config: Path | None) -> list[str]:
    """Give the command line that runs one process."""
    line = [sys.executable, "-m", "consumers", "run", name]
    return [*line, "--config", str(config)] if config else line
