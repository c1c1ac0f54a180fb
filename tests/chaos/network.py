"""What lies between the processes and their broker: a second listener of the broker, and a proxy that fails."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal, TypeAlias

from tests.services.kafka import KafkaBroker
from tests.services.ports import Port

Mode: TypeAlias = Literal["open", "refusing", "silent"]
CHUNK: Final = 65_536

# Later lines win. Clients are told to come back through the proxy, or they would go around it.
LISTENERS: Final = """\
listeners=PLAINTEXT://127.0.0.1:{direct},PROXIED://127.0.0.1:{behind},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{direct},PROXIED://127.0.0.1:{proxy}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
"""


class ProxiedBroker(KafkaBroker):
    """A broker that the harness reaches at `bootstrap`, and the processes only at `proxy`."""

    def __init__(self, folder: Path, heap: str = "512m") -> None:
        super().__init__(folder, heap)
        self.behind = Port()
        self.proxy = Port()

    def close(self) -> None:
        """Stop for good, and give the ports up."""
        super().close()
        self.behind.release()
        self.proxy.release()

    def _write_configuration(self) -> None:
        super()._write_configuration()
        lines = LISTENERS.format(
            direct=self._port.number,
            behind=self.behind.number,
            proxy=self.proxy.number,
            controller=self._controller.number,
        )
        with self._properties.open("a", encoding="utf-8") as file:
            file.write(lines)


class Proxy:
    """A TCP proxy on 127.0.0.1. `refusing`: connections break and new ones are refused, as after a host's end.

    `silent`: connections stay, new ones are made, and nothing comes through, as behind a broken switch; what was
    sent meanwhile arrives later.
    """

    def __init__(self, port: int, target: int) -> None:
        self._port = port
        self._target = target
        self._server: asyncio.Server | None = None
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)

    async def become(self, mode: Mode) -> None:
        """Change what happens to connections, old and new."""
        if mode == "refusing":
            await self.stop()
            return
        if self._server is None:
            await self.start()
        if mode == "silent":
            self._flowing.clear()
        else:
            self._flowing.set()

    async def stop(self) -> None:
        """Break all connections and listen no longer."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for connection in list(self._connections):
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        self._flowing.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await self._join(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._connections.discard(task)
            writer.transport.abort()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._flowing.wait()
        there, back = await asyncio.open_connection("127.0.0.1", self._target)
        pumps = [asyncio.ensure_future(self._pump(reader, back)), asyncio.ensure_future(self._pump(there, writer))]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            back.transport.abort()

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while chunk := await source.read(CHUNK):
                await self._flowing.wait()
                target.write(chunk)
                await target.drain()
