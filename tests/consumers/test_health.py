"""`/metrics`, `/healthz`, `/readyz`: local liveness, reasons in words, signals left alone, taken ports refused."""

from __future__ import annotations

import asyncio
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import AsyncIterator

import pytest
from prometheus_client import CollectorRegistry, Counter

from consumers.health import Health, Server, create_app
from monitor.errors import ConfigError


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


class Service:
    def __init__(self) -> None:
        self.clock = Clock()
        self.health = Health(self.clock, alive_within_s=10.0)
        self.registry = CollectorRegistry()
        self.server = Server(create_app(self.registry, self.health), "127.0.0.1", 0)

    async def get(self, path: str, accept: str = "*/*") -> tuple[int, str, str]:
        return await asyncio.to_thread(self._get, path, accept)

    def _get(self, path: str, accept: str) -> tuple[int, str, str]:
        request = urllib.request.Request(f"http://127.0.0.1:{self.server.port}{path}", headers={"Accept": accept})
        try:
            with urllib.request.urlopen(request, timeout=5.0) as answer:
                return answer.status, answer.headers["content-type"], answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.headers["content-type"], error.read().decode()


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    service = Service()
    await service.server.start()
    yield service
    await service.server.stop()


async def test_readiness_says_why_not(service: Service) -> None:
    assert (await service.get("/readyz"))[::2] == (503, "starting\n")
    service.health.ready(True)
    assert (await service.get("/readyz"))[::2] == (200, "ok\n")
    service.health.ready(False, "loading 3 partitions")
    assert (await service.get("/readyz"))[::2] == (503, "loading 3 partitions\n")


async def test_liveness_is_a_loop_that_went_round_lately(service: Service) -> None:
    assert (await service.get("/healthz"))[::2] == (200, "ok\n")
    service.clock.now += 10.0
    assert (await service.get("/healthz"))[0] == 200
    service.clock.now += 0.5
    assert (await service.get("/healthz"))[::2] == (503, "main loop silent for 10 s\n")
    service.health.beat()
    assert (await service.get("/healthz"))[0] == 200


async def test_metrics_come_in_the_format_that_is_asked_for(service: Service) -> None:
    Counter("backslide_x", "X.", registry=service.registry).inc(3)
    status, kind, text = await service.get("/metrics")
    assert (status, kind.split(";")[0]) == (200, "text/plain")
    assert "backslide_x_total 3.0" in text.splitlines()
    status, kind, text = await service.get("/metrics", "application/openmetrics-text; version=1.0.0")
    assert (status, kind.split(";")[0]) == (200, "application/openmetrics-text")
    assert text.endswith("# EOF\n")
    assert (await service.get("/elsewhere"))[0] == 404


async def test_a_taken_port_is_refused_by_name(service: Service) -> None:
    port = service.server.port
    other = Server(create_app(CollectorRegistry(), service.health), "127.0.0.1", port)
    with pytest.raises(ConfigError, match=f"can't listen on 127.0.0.1:{port}"):
        await other.start()
    await other.stop()


async def test_signals_stay_with_the_process() -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    service = Service()
    await service.server.start()
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
    await service.server.stop()
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


async def test_a_stop_does_not_wait_for_idle_connections_and_frees_the_port() -> None:
    service = Service()
    await service.server.start()
    port = service.server.port
    with socket.create_connection(("127.0.0.1", port)):
        await asyncio.wait_for(service.server.stop(), 3.0)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 1.0)


async def test_a_stop_without_a_start_is_harmless() -> None:
    await Service().server.stop()
