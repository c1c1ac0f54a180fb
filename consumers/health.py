"""`/metrics`, `/healthz` and `/readyz` of a process, as a small ASGI app on its own port."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import uvicorn
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from monitor.errors import ConfigError


class Health:
    """What a process says of itself. Liveness is local: a poll loop that went round lately, never the broker."""

    def __init__(self, clock: Callable[[], float], *, alive_within_s: float = 60.0) -> None:
        self._clock = clock
        self._alive_within = alive_within_s
        self._beat = clock()
        self._ready = False
        self._reason = "starting"

    def beat(self) -> None:
        """Note that the main loop went round."""
        self._beat = self._clock()

    def ready(self, ready: bool, reason: str = "") -> None:
        """Say whether the process does its work, and why not."""
        self._ready, self._reason = ready, reason

    @property
    def is_ready(self) -> tuple[bool, str]:
        """Whether the process does its work, and why not."""
        return self._ready, self._reason

    @property
    def is_alive(self) -> tuple[bool, str]:
        """Whether the main loop went round lately."""
        silent = self._clock() - self._beat
        return silent <= self._alive_within, f"main loop silent for {silent:.0f} s"


def create_app(registry: CollectorRegistry, health: Health) -> Starlette:
    """Build the app with the three routes."""

    def metrics(request: Request) -> Response:
        encoder, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encoder(registry), headers={"content-type": content_type})

    def healthz(_: Request) -> Response:
        return _probe(*health.is_alive)

    def readyz(_: Request) -> Response:
        return _probe(*health.is_ready)

    routes = [Route("/metrics", metrics), Route("/healthz", healthz), Route("/readyz", readyz)]
    return Starlette(routes=routes)


def _probe(good: bool, reason: str) -> Response:
    return PlainTextResponse("ok\n" if good else f"{reason}\n", status_code=200 if good else 503)


class Server:
    """An ASGI server inside a running loop. It leaves signals and logging alone.

    `setting` names the key of the port, for the error when it is taken.
    """

    def __init__(self, app: Starlette, host: str, port: int, *, setting: str = "") -> None:
        config = uvicorn.Config(app, host=host, port=port, log_config=None, access_log=False, lifespan="off")
        self._host, self._port = host, port
        self._remedy = f" Set {setting} to another." if setting else ""
        self._server = uvicorn.Server(config)
        self._task: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        """The port it listens on, once started (a configured 0 means any free one)."""
        for server in self._server.servers:
            for socket in server.sockets:
                return int(socket.getsockname()[1])
        return self._port

    async def start(self) -> None:
        """Start listening. Raises `ConfigError` when the address is taken."""
        self._task = asyncio.create_task(self._serve(), name=f"http-{self._port}")
        while not self._server.started:
            if self._task.done():
                await self._task
                raise ConfigError(f"can't listen on {self._host}:{self._port}.{self._remedy}")
            await asyncio.sleep(0.01)

    async def _serve(self) -> None:
        try:
            # `serve` would replace the process's signal handlers; `_serve` is the same without that.
            await self._server._serve()  # noqa: SLF001
        except SystemExit:
            raise ConfigError(
                f"can't listen on {self._host}:{self._port}: is the port taken?{self._remedy}"
            ) from None

    async def stop(self) -> None:
        """Stop listening; requests under way get a second."""
        if self._task is None:
            return
        self._server.should_exit = True
        done, _ = await asyncio.wait({self._task}, timeout=1.0)
        if not done:
            self._server.force_exit = True
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=1.0)
