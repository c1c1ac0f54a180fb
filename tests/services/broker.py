"""What the two kinds of broker have in common."""

import socket
import struct
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.services.ports import Port
from tests.services.process import Child, ServiceError, tail

START_SECONDS = 60.0


class Broker(ABC):
    """A broker process on 127.0.0.1 that keeps its port and folder over restarts.

    Every method blocks; in a coroutine whose clients must go on, use `await asyncio.to_thread(...)`.
    """

    name = "broker"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / f"{self.name}.log"
        self._port = Port()
        self._child: Child | None = None

    @property
    def bootstrap(self) -> str:
        """The address for clients, as host:port."""
        return f"127.0.0.1:{self._port.number}"

    @property
    def pid(self) -> int:
        """The process id; raises ServiceError when it was never started."""
        return self._running().pid

    @property
    def alive(self) -> bool:
        """Whether the process is there (a paused one is)."""
        return self._child is not None and self._child.alive

    def start(self) -> Self:
        """Start and wait until it answers; raises ServiceError, with the end of its log, when it does not."""
        if self.alive:
            raise ServiceError(f"{self.name} runs already (pid {self.pid})")
        self.folder.mkdir(parents=True, exist_ok=True)
        self._prepare()
        self._child = Child(self._command(), self.log)
        self._wait()
        return self

    def stop(self) -> None:
        """SIGTERM, bounded, then SIGKILL. Harmless when it does not run."""
        if self._child is not None:
            self._child.stop()

    def kill(self) -> None:
        """SIGKILL."""
        self._running().kill()

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nothing answers."""
        self._running().pause()

    def resume(self) -> None:
        """SIGCONT."""
        self._running().resume()

    def restart(self) -> Self:
        """Stop (when it runs) and start on the same port and folder."""
        self.stop()
        return self.start()

    def close(self) -> None:
        """Stop for good, and give the ports up."""
        self.stop()
        self._port.release()

    def __enter__(self) -> Self:
        return self if self.alive else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def _command(self) -> Sequence[str]:
        """Return the command that runs the broker in the foreground."""

    def _prepare(self) -> None:  # noqa: B027 - not every broker needs it
        """Put on disk what a start needs."""

    def _running(self) -> Child:
        if self._child is None:
            raise ServiceError(f"{self.name} was not started")
        return self._child

    def _wait(self) -> None:
        child = self._running()
        deadline = time.monotonic() + START_SECONDS
        while not answers(self._port.number):
            if not child.alive:
                raise ServiceError(f"{self.name} ended at start; {self.log}:\n{tail(self.log)}")
            if time.monotonic() > deadline:
                child.kill()
                raise ServiceError(f"{self.name} gave no answer in {START_SECONDS:.0f} s; {tail(self.log)}")
            time.sleep(0.02)


def answers(port: int, timeout: float = 2.0) -> bool:
    """Say whether a broker answers a metadata request and knows of at least one broker.

    Written by hand, since a client library would need an event loop of its own in each caller. An open
    port alone says too little: Kafka opens it before the broker has joined its controller.
    """
    try:
        with socket.create_connection(("127.0.0.1", port), timeout) as connection:
            connection.sendall(_metadata_request())
            # size, correlation id, throttle time, number of brokers
            head = _read(connection, 16)
    except OSError:
        return False
    return len(head) == 16 and int(struct.unpack(">iiii", head)[3]) > 0


def _metadata_request() -> bytes:
    # Metadata v4: api key 3, version 4, correlation id 1, no client id; no topics, no auto-creation.
    body = struct.pack(">hhihi?", 3, 4, 1, -1, 0, False)
    return struct.pack(">i", len(body)) + body


def _read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = connection.recv(size - len(data))
        if not chunk:
            break
        data += chunk
    return data
