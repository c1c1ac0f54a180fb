"""A local HTTP server that answers from a script, and can break in all the ways a provider does.

Plain sockets, since some answers are not HTTP. What an API checks and says is its subclass's.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, Self, TypeAlias

import msgspec

HANG_S: Final = 30.0


class Received(msgspec.Struct, kw_only=True, frozen=True):
    """One request. Header names are lower-case; `body` is {} if it was no JSON object."""

    method: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any]


class Reply(msgspec.Struct, kw_only=True, frozen=True):
    """One answer. `sent` cuts the bytes of the body (and drops the connection); None sends no byte at all.

    `delay_s` waits before the first byte; `pause_s` waits between the bytes of the body.
    """

    status: int = 200
    headers: dict[str, str] = {}
    body: bytes = b""
    sent: int | None = -1
    delay_s: float = 0.0
    pause_s: float = 0.0


Script: TypeAlias = Callable[[Received], Reply]


def html(status: int = 200) -> Reply:
    """Answer as a proxy or a login page in between does."""
    return Reply(status=status, headers={"content-type": "text/html"}, body=b"<html><body>Sign in</body></html>")


def raw(body: bytes) -> Reply:
    """Answer 200, as JSON by its content type, with any bytes."""
    return Reply(body=body)


class ScriptedApi:
    """The server, on a free port of 127.0.0.1 in a thread of its own. A context manager.

    `answer` is a subclass's: it refuses what its API refuses, and takes the next reply of the script for the rest
    (then what `otherwise` says, by default status 500). Questions about models are no part of the script.
    """

    def __init__(self, otherwise: Script | None = None) -> None:
        self.requests: list[Received] = []
        self.looked_up: list[Received] = []
        self.base_url = ""
        self._otherwise = otherwise or self._ended
        self._beyond = 0
        self._script: deque[Reply] = deque()
        self._arrival = threading.Condition()
        self._started: Future[None] = Future()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="scripted-api", daemon=True)

    def script(self, *replies: Reply) -> None:
        """Append replies."""
        self._script.extend(replies)

    def check(self) -> None:
        """Raise `AssertionError` unless the script was asked for to its end and not beyond."""
        if self._script or self._beyond:
            raise AssertionError(f"{len(self._script)} replies left, {self._beyond} requests beyond the script")

    def reset(self) -> None:
        """Forget requests and script."""
        self.requests.clear()
        self._script.clear()
        self._beyond = 0
        self.looked_up.clear()

    def wait_for(self, requests: int, seconds: float = 10.0) -> None:
        """Wait until so many requests have come in; raises `TimeoutError`."""
        with self._arrival:
            if not self._arrival.wait_for(lambda: len(self.requests) >= requests, seconds):
                raise TimeoutError(f"{len(self.requests)} of {requests} requests within {seconds} s")

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.result(timeout=10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._connection, "127.0.0.1", 0))
        self.base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._started.set_result(None)
        self._loop.run_forever()
        server.close()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._exchange(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client went away, as it does after a timeout
        except asyncio.CancelledError:
            pass  # the server stops; asyncio would log a canceled connection as an error
        finally:
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Serve one request; tell whether the connection stays open."""
        received = await _receive(reader)
        if received is None:
            return False
        with self._arrival:
            (self.looked_up if "/models" in received.path else self.requests).append(received)
            self._arrival.notify_all()
        reply = self.answer(received)
        await asyncio.sleep(reply.delay_s)
        if reply.sent is None:
            return False
        headers = {
            "content-type": "application/json",
            "request-id": f"req_{len(self.requests)}",
            "content-length": str(len(reply.body)),
        } | reply.headers
        lines = [f"HTTP/1.1 {reply.status} Reply", *(f"{name}: {value}" for name, value in headers.items())]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        whole = reply.sent < 0
        await _send(writer, reply.body if whole else reply.body[: reply.sent], reply.pause_s)
        return whole

    def answer(self, received: Received) -> Reply:
        """Answer a request."""
        raise NotImplementedError

    def next_reply(self, received: Received) -> Reply:
        """Take the next reply of the script."""
        return self._script.popleft() if self._script else self._otherwise(received)

    def _ended(self, _: Received) -> Reply:
        self._beyond += 1
        return Reply(status=500, body=b'{"error": {"type": "api_error", "message": "the script has ended"}}')


async def _receive(reader: asyncio.StreamReader) -> Received | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.rstrip().split("\r\n")
    headers = {name.lower(): value.strip() for name, value in (line.split(":", 1) for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    try:
        decoded = json.loads(body)
    except ValueError:
        decoded = None
    method, path, _ = first.split(" ", 2)
    return Received(method=method, path=path, headers=headers, body=decoded if isinstance(decoded, dict) else {})


async def _send(writer: asyncio.StreamWriter, body: bytes, pause_s: float) -> None:
    step = 1 if pause_s else max(1, len(body))
    for start in range(0, len(body), step):
        writer.write(body[start : start + step])
        await writer.drain()
        await asyncio.sleep(pause_s)
