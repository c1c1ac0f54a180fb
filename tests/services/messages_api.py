"""A local server that speaks the Anthropic Messages API on the wire, and can break in all the ways it does.

It checks requests as strictly as the real one (version, credentials, sampling parameters, grammar of the schema,
blank messages), remembers them, and answers from a script. It describes the models that it is given.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import msgspec

from tests.services.message_batches import PATH, Batches
from tests.services.scripted_api import HANG_S, Received, Reply, Script, ScriptedApi, html, raw

__all__ = [
    "API_KEY",
    "API_VERSION",
    "HANG_S",
    "MessagesApi",
    "Received",
    "Reply",
    "Script",
    "cut_on_its_way",
    "drop",
    "failure",
    "hang",
    "html",
    "message",
    "model",
    "overloaded",
    "rate_limited",
    "raw",
    "refusal",
    "server_error",
    "trickle",
]

_OK: Final = 200
_NOT_FOUND: Final = 404
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


def model(name: str, **changes: Any) -> dict[str, Any]:
    """Describe a model as the Models API does; `changes` override its fields."""
    levels = {level: {"supported": True} for level in ("low", "medium", "high", "xhigh", "max")}
    body: dict[str, Any] = {
        "type": "model",
        "id": name,
        "display_name": name,
        "created_at": "2026-08-01T00:00:00Z",
        "lifecycle": "active",
        "deprecated_at": None,
        "retires_at": None,
        "max_tokens": 64_000,
        "max_input_tokens": 200_000,
        "capabilities": {
            "structured_outputs": {"supported": True},
            "effort": {"supported": True} | levels,
            "thinking": {"supported": True, "types": {"adaptive": {"supported": True}}},
        },
    }
    return body | changes


def hang(seconds: float = HANG_S) -> Reply:
    """Take the request and send nothing."""
    return msgspec.structs.replace(message("late"), delay_s=seconds)


def trickle(pause_s: float) -> Reply:
    """Send a valid answer so slowly that no single read times out."""
    return msgspec.structs.replace(message("slow"), pause_s=pause_s)


def drop(sent: int | None = 20) -> Reply:
    """Close the connection after some bytes of the body, or before the status line."""
    return msgspec.structs.replace(message("a text that never arrives in full"), sent=sent)


class MessagesApi(ScriptedApi):
    """The server. Valid requests are answered from the script, and messages without usage get one.

    `models` are described under /v1/models; None is a gateway that knows nothing of that path. `model_reply`
    answers all such questions instead.
    """

    def __init__(self, otherwise: Script | None = None) -> None:
        super().__init__(otherwise)
        self.models: list[dict[str, Any]] | None = None
        self.model_reply: Reply | None = None
        self.batches = Batches(_wrong_body)
        self.batch_failures: deque[Reply] = deque()
        self._cached: set[str] = set()

    def reset(self) -> None:
        """Forget requests, script, cache and models."""
        super().reset()
        self.models = self.model_reply = None
        self._cached.clear()

    def answer(self, received: Received) -> Reply:
        """Refuse what the API refuses, describe models, and answer the rest from the script."""
        if received.method == "GET" and received.path.startswith("/v1/models"):
            return self._described(received)
        if received.path.startswith(PATH):
            return _unauthorized(received) or self._batched(received)
        return _refused(received) or self._priced(received.body, self.next_reply(received))

    def _batched(self, received: Received) -> Reply:
        """Serve batches; `batch_failures` come instead, one a request: those with status 200 when it is done."""
        lost = self.batch_failures.popleft() if self.batch_failures else None
        if lost is not None and lost.status != _OK:
            return lost
        path = urlsplit(received.path).path.removeprefix(PATH).strip("/")
        status, body = self.batches.answer(received.method, path, received.body, self.base_url)
        if status != _OK:
            return failure(
                status, "not_found_error" if status == _NOT_FOUND else "invalid_request_error", str(body)
            )
        return lost or raw(body if isinstance(body, bytes) else json.dumps(body).encode())

    def _described(self, received: Received) -> Reply:
        if self.model_reply is not None:
            return self.model_reply
        if self.models is None:
            return Reply(status=404, body=b'{"detail": "Not Found"}')
        wrong = _unauthorized(received)
        if wrong is not None:
            return wrong
        name = unquote(urlsplit(received.path).path.removeprefix("/v1/models").strip("/"))
        if not name:
            return raw(json.dumps({"data": self.models, "has_more": False}).encode())
        found = next((item for item in self.models if item["id"] == name), None)
        return raw(json.dumps(found).encode()) if found else failure(404, "not_found_error", f"model: {name}")

    def _priced(self, body: dict[str, Any], reply: Reply) -> Reply:
        """Add usage to a message that has none: the system prefix is written to the cache once, then read."""
        try:
            content = json.loads(reply.body)
        except (ValueError, RecursionError):
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


def _refused(received: Received) -> Reply | None:
    if received.path != "/v1/messages":
        return failure(404, "not_found_error", "no such path")
    unauthorized, body = _unauthorized(received), received.body
    if unauthorized is not None:
        return unauthorized
    # The real API quotes what it was sent; so does this one, to show that nobody passes it on.
    wrong = _wrong_body(body)
    return failure(400, "invalid_request_error", f"{wrong} in {json.dumps(body)}") if wrong else None


def _unauthorized(received: Received) -> Reply | None:
    headers = received.headers
    if headers.get("authorization") != f"Bearer {API_KEY}":
        return failure(401, "authentication_error", f"invalid key {headers.get('authorization')}")
    if headers.get("anthropic-version") != API_VERSION:
        return failure(400, "invalid_request_error", "anthropic-version: unknown")
    return None


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
