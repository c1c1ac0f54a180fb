"""A local server that speaks the Anthropic Messages API on the wire, and can break in all the ways it does.

It checks requests as strictly as the real one (version, credentials, sampling parameters, grammar of the schema,
blank messages), remembers them, and answers from a script. Plain sockets, since some answers are not HTTP.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Final, Self, TypeAlias

import msgspec

API_VERSION: Final = "2026-10-21"
API_KEY: Final = "key-of-the-tests"
PARAMETERS: Final = frozenset(
    {"model", "max_tokens", "messages", "system", "output_config", "thinking", "metadata", "service_tier"}
)
EFFORTS: Final = frozenset({"low", "medium", "high", "xhigh", "max"})
GRAMMAR: Final = frozenset(
    {
        "type",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "minItems",
        "enum",
        "const",
        "anyOf",
        "allOf",
        "description",
        "title",
        "format",
    }
)
HANG_S: Final = 30.0


class Received(msgspec.Struct, kw_only=True, frozen=True):
    """One request. Header names are lower-case; `body` is {} if it was no JSON object."""

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


def message(text: str, *, stop: str | None = "end_turn", **changes: Any) -> Reply:
    """Answer with a text; `changes` override fields of the message, such as `content` and `usage`."""
    body: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-haiku-5-5",
        "content": [{"type": "text", "text": text}],
        "stop_reason": stop,
        "stop_sequence": None,
        "stop_details": None,
    }
    return Reply(body=json.dumps(body | changes).encode())


def refusal(category: str | None = "general_harms") -> Reply:
    """Refuse before any output: status 200, no content."""
    details = {"type": "refusal", "category": category, "explanation": None}
    return message("", stop="refusal", content=[], stop_details=details)


def failure(status: int, kind: str, text: str = "no", *, code: str | None = None, **headers: str) -> Reply:
    """Fail with the API's error object; `headers` with underscores for dashes."""
    error: dict[str, Any] = {"type": kind, "message": text}
    if code:
        error["details"] = {"error_code": code}
    body = {"type": "error", "error": error, "request_id": "req_failed"}
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status=status, headers=names, body=json.dumps(body).encode())


def rate_limited(**headers: str) -> Reply:
    """429; pass `retry_after="1"` or `retry_after_ms="20"`."""
    return failure(429, "rate_limit_error", **headers)


def cut_on_its_way() -> Reply:
    """Complain of a body that lost its end somewhere in the network."""
    text = "The request body is not valid JSON: unexpected end of data: line 1 column 7 (char 6)"
    return failure(400, "invalid_request_error", text)


def overloaded() -> Reply:
    """529."""
    return failure(529, "overloaded_error")


def server_error() -> Reply:
    """500."""
    return failure(500, "api_error")


def html(status: int = 200) -> Reply:
    """Answer as a proxy or a login page in between does."""
    return Reply(status=status, headers={"content-type": "text/html"}, body=b"<html><body>Sign in</body></html>")


def raw(body: bytes) -> Reply:
    """Answer 200, as JSON by its content type, with any bytes."""
    return Reply(body=body)


def hang(seconds: float = HANG_S) -> Reply:
    """Take the request and send nothing."""
    return msgspec.structs.replace(message("late"), delay_s=seconds)


def trickle(pause_s: float) -> Reply:
    """Send a valid answer so slowly that no single read times out."""
    return msgspec.structs.replace(message("slow"), pause_s=pause_s)


def drop(sent: int | None = 20) -> Reply:
    """Close the connection after some bytes of the body, or before the status line."""
    return msgspec.structs.replace(message("a text that never arrives in full"), sent=sent)


class MessagesApi:
    """The server, on a free port of 127.0.0.1 in a thread of its own. A context manager.

    Valid requests take the next reply of the script, then what `otherwise` says (by default status 500). Invalid
    ones are answered as the real API answers them and take nothing from the script.
    """

    def __init__(self, otherwise: Script | None = None) -> None:
        self.requests: list[Received] = []
        self.base_url = ""
        self._otherwise = otherwise or self._ended
        self._beyond = 0
        self._script: deque[Reply] = deque()
        self._cached: set[str] = set()
        self._arrival = threading.Condition()
        self._started: Future[None] = Future()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="messages-api", daemon=True)

    def script(self, *replies: Reply) -> None:
        """Append replies."""
        self._script.extend(replies)

    def check(self) -> None:
        """Raise `AssertionError` unless the script was asked for to its end and not beyond."""
        if self._script or self._beyond:
            raise AssertionError(f"{len(self._script)} replies left, {self._beyond} requests beyond the script")

    def reset(self) -> None:
        """Forget requests, script and cache."""
        self.requests.clear()
        self._script.clear()
        self._beyond = 0
        self._cached.clear()

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
            self.requests.append(received)
            self._arrival.notify_all()
        reply = self._reply(received)
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

    def _reply(self, received: Received) -> Reply:
        wrong = _refused(received)
        if wrong is not None:
            return wrong
        reply = self._script.popleft() if self._script else self._otherwise(received)
        return self._priced(received.body, reply)

    def _ended(self, _: Received) -> Reply:
        self._beyond += 1
        return failure(500, "api_error", "the script has ended")

    def _priced(self, body: dict[str, Any], reply: Reply) -> Reply:
        """Add usage to a message that has none: the system prefix is written to the cache once, then read."""
        try:
            content = json.loads(reply.body)
        except ValueError:
            return reply
        if not (isinstance(content, dict) and content.get("type") == "message" and "usage" not in content):
            return reply
        # A change of the schema invalidates the cache, so the schema is part of its key.
        prefix = json.dumps([body["system"], body["output_config"]])
        tokens, known = len(prefix) // 4, prefix in self._cached
        written = 0 if known else tokens
        hour = body["system"][-1].get("cache_control", {}).get("ttl") == "1h"
        self._cached.add(prefix)
        content["usage"] = {
            "input_tokens": len(json.dumps(body["messages"])) // 4,
            "cache_creation_input_tokens": written,
            "cache_creation": {
                "ephemeral_5m_input_tokens": 0 if hour else written,
                "ephemeral_1h_input_tokens": written if hour else 0,
            },
            "cache_read_input_tokens": tokens if known else 0,
            "output_tokens": 5 + sum(len(block.get("text", "")) for block in content["content"]) // 4,
            "output_tokens_details": {"thinking_tokens": 5},
        }
        return msgspec.structs.replace(reply, body=json.dumps(content).encode())


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
    path = first.split(" ")[1]
    return Received(path=path, headers=headers, body=decoded if isinstance(decoded, dict) else {})


async def _send(writer: asyncio.StreamWriter, body: bytes, pause_s: float) -> None:
    step = 1 if pause_s else max(1, len(body))
    for start in range(0, len(body), step):
        writer.write(body[start : start + step])
        await writer.drain()
        await asyncio.sleep(pause_s)


def _refused(received: Received) -> Reply | None:
    headers, body = received.headers, received.body
    if received.path != "/v1/messages":
        return failure(404, "not_found_error", "no such path")
    if headers.get("authorization") != f"Bearer {API_KEY}":
        return failure(401, "authentication_error", f"invalid key {headers.get('authorization')}")
    if headers.get("anthropic-version") != API_VERSION:
        return failure(400, "invalid_request_error", "anthropic-version: unknown")
    # The real API quotes what it was sent; so does this one, to show that nobody passes it on.
    wrong = _wrong_body(body)
    return failure(400, "invalid_request_error", f"{wrong} in {json.dumps(body)}") if wrong else None


def _wrong_body(body: Mapping[str, Any]) -> str | None:
    unknown = body.keys() - PARAMETERS
    if unknown:
        return f"{sorted(unknown)}: extra inputs are not permitted"
    if not isinstance(body.get("max_tokens"), int) or body["max_tokens"] < 1:
        return "max_tokens: must be 1 or more"
    return (
        _wrong_system(body.get("system"))
        or _wrong_messages(body.get("messages"))
        or _wrong_output(body.get("output_config"))
    )


def _wrong_system(system: Any) -> str | None:
    blocks = system if isinstance(system, list) else []
    if not blocks or any(block.get("type") != "text" or not block.get("text", "").strip() for block in blocks):
        return "system: text blocks must hold text"
    caches = [block["cache_control"] for block in blocks if "cache_control" in block]
    if any(cache.get("type") != "ephemeral" or cache.get("ttl") not in {"5m", "1h"} for cache in caches):
        return "system: cache_control"
    return None


def _wrong_messages(messages: Any) -> str | None:
    if not isinstance(messages, list) or not messages:
        return "messages: at least one is required"
    if any(not str(item.get("content", "")).strip() for item in messages):
        return "messages: text must be non-empty"
    roles = [item.get("role") for item in messages]
    if roles[0] != "user" or roles[-1] != "user":
        return "messages: the first and the last must be the user's (no prefill)"
    return None


def _wrong_output(config: Any) -> str | None:
    if not isinstance(config, dict) or config.get("effort", "high") not in EFFORTS:
        return "output_config: effort"
    shape = config.get("format")
    if not isinstance(shape, dict) or shape.get("type") != "json_schema":
        return "output_config.format: json_schema is required by these tests"
    return _wrong_schema(shape.get("schema"))


def _wrong_schema(schema: Any) -> str | None:
    if not isinstance(schema, dict) or not schema:
        return "schema: must be an object"
    unknown = schema.keys() - GRAMMAR
    if unknown:
        return f"schema: {sorted(unknown)} not supported"
    if schema.get("type") == "object" and schema.get("additionalProperties") is not False:
        return "schema: additionalProperties must be false"
    inner = [*schema.get("properties", {}).values(), *schema.get("anyOf", []), *schema.get("allOf", [])]
    inner += [schema["items"]] if "items" in schema else []
    return next((wrong for part in inner if (wrong := _wrong_schema(part))), None)
