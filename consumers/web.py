"""The web process: pages from the store on one port, the quality `/metrics` and probes on another.

It only reads. Schema and rows belong to `record`, so until that has run there is nothing here: the pages say so,
`backslide_store_up` is 0, and readiness waits.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from typing import Any, Final

import structlog

from consumers.daemon_thread import in_thread
from consumers.health import Health, Server, create_app
from monitor.config import Settings, WebSettings
from monitor.errors import StoreError
from monitor.exporter import QualityCollector
from monitor.metrics import Meters
from monitor.store import Store
from monitor.store.connect import connect
from monitor.web import create_app as create_pages

# Nothing of its own but `build_info`: what it shows is read from the store, `store_up` included.
METERS: Final[tuple[str, ...]] = ()
CHECK_S: Final = 2.0
TICK_S: Final = 1.0
SLOW_S: Final = 5.0
# At a first start `record` makes the schema while `web` waits; that is nothing to warn of.
START_S: Final = 15.0


async def serve(settings: Settings, meters: Meters, stop: asyncio.Event, health: Health) -> None:
    """Serve pages and metrics until `stop` is set; what `meters` holds is shown beside the quality metrics.

    Raises `ConfigError` when a port is taken or `store.url` is no database URL.
    """
    health.ready(False, "connecting to the store")
    store = Store(connect(settings.store.url))
    collector = QualityCollector(store)
    meters.registry.register(collector)
    web = settings.web
    servers = [
        Server(
            create_app(meters.registry, health), web.metrics_host, web.metrics_port, setting="web.metrics_port"
        ),
        Server(_pages(store, web), web.host, web.port, setting="web.port"),
    ]
    try:
        for server in servers:
            await server.start()
        ports = [server.port for server in servers]
        structlog.get_logger().info("serving", process="web", metrics_port=ports[0], pages_port=ports[1])
        await _watch(store, stop, health)
    finally:
        health.ready(False, "stopping")
        await asyncio.gather(*(server.stop() for server in servers))
        meters.registry.unregister(collector)
        store.close()


def is_loopback(host: str) -> bool:
    """Say whether only this machine can reach what listens on a host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _pages(store: Store, web: WebSettings) -> Any:
    if is_loopback(web.host):
        return create_pages(store)
    warning = (
        f"These pages ask for no password and listen on {web.host}: whoever reaches this address reads the "
        "transcripts. Put them behind a proxy that asks, or set web.host to 127.0.0.1."
    )
    structlog.get_logger().warning("pages_without_authentication", process="web", host=web.host, remedy=warning)
    # Any host name will do: which ones lead here, such as a Service's or a proxy's, can't be known.
    return create_pages(store, hosts=("*",), warning=warning)


async def _watch(store: Store, stop: asyncio.Event, health: Health) -> None:
    """Keep liveness and readiness up to date until the stop."""
    stopping = asyncio.ensure_future(stop.wait())
    state: tuple[bool, str] | None = None
    started = time.monotonic()
    try:
        while not stopping.done():
            found = await _check(store, stopping, health)
            starting = not found[0] and time.monotonic() - started < START_S
            if found != state and not stopping.done() and not starting:
                state = found
                _tell(state)
            await asyncio.wait({stopping}, timeout=CHECK_S)
    finally:
        stopping.cancel()


async def _check(store: Store, stopping: asyncio.Future[Any], health: Health) -> tuple[bool, str]:
    """Ask the store, however long it takes to answer, and say so meanwhile."""
    asked = time.monotonic()
    answer = in_thread(store.ping, name="store")
    try:
        while not answer.done() and not stopping.done():
            await asyncio.wait({answer, stopping}, timeout=TICK_S, return_when=asyncio.FIRST_COMPLETED)
            health.beat()
            if not answer.done() and (silent := time.monotonic() - asked) >= SLOW_S:
                health.ready(False, f"the store has not answered for {silent:.0f} s")
        state = _state(answer) if answer.done() else (False, "stopping")
        health.ready(*state)
        return state
    finally:
        answer.cancel()


def _state(answer: asyncio.Future[bool]) -> tuple[bool, str]:
    try:
        trusted = answer.result()
    except StoreError as error:
        return False, f"{error}; `backslide run record` makes what is missing"
    return trusted, "" if trusted else "the totals are being rebuilt"


def _tell(state: tuple[bool, str]) -> None:
    ready, reason = state
    log = structlog.get_logger().bind(process="web")
    if ready:
        log.info("ready")
    else:
        log.warning("not_ready", reason=reason)


__all__ = ["METERS", "is_loopback", "serve"]
