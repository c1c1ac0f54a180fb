"""A local server that speaks OpenAI's chat completions on the wire, in the dialects of those who copy it.

It checks requests as strictly as it is told to (key, parameters that it doesn't take, forms of answer that it
doesn't know), remembers them, and answers from a script.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import msgspec

from tests.services.scripted_api import HANG_S, Received, Reply, Script, ScriptedApi, html, raw

__all__ = [
    "API_KEY",
    "ChatApi",
    "Reply",
    "azure_error",
    "azure_filter",
    "chat",
    "drop",
    "failure",
    "flat_error",
    "hang",
    "html",
    "raw",
    "trickle",
]

API_KEY: Final = "key-of-the-tests"
PATH: Final = "/v1/chat/completions"
PARAMETERS: Final = frozenset(
    {
        "model",
        "messages",
        "max_tokens",
        "max_completion_tokens",
        "temperature",
        "seed",
        "reasoning_effort",
        "response_format",
    }
)


def chat(text: str | None, *, finish: str | None = "stop", **changes: Any) -> Reply:
    """Answer with a text; `changes` override fields of the reply, `message` those of the message."""
    message = {"role": "assistant", "content": text} | changes.pop("message", {})
    body: dict[str, Any] = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "a-model",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
    }
    return Reply(body=json.dumps(body | changes).encode())


def failure(
    status: int,
    kind: str,
    text: str = "no",
    *,
    code: str | int | None = None,
    param: str | None = None,
    **headers: str,
) -> Reply:
    """Fail with OpenAI's error object; `headers` with underscores for dashes."""
    error = {"message": text, "type": kind, "param": param, "code": code}
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status=status, headers=names, body=json.dumps({"error": error}).encode())


def flat_error(status: int, kind: str, text: str, *, param: str | None = None) -> Reply:
    """Fail as older vLLM does, without an object around the error."""
    body = {"object": "error", "message": text, "type": kind, "param": param, "code": status}
    return Reply(status=status, body=json.dumps(body).encode())


def azure_error(status: int, code: str, text: str = "no", **headers: str) -> Reply:
    """Fail as Azure does: a code, a message, and no type."""
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    body = {"error": {"code": code, "message": text}}
    return Reply(status=status, headers=names, body=json.dumps(body).encode())


def azure_filter() -> Reply:
    """Refuse a question as Azure's content filter does: status 400."""
    inner = {"code": "ResponsibleAIPolicyViolation", "content_filter_result": {"violence": {"filtered": True}}}
    error = {"message": "filtered", "type": None, "param": "prompt", "code": "content_filter", "status": 400}
    return Reply(status=400, body=json.dumps({"error": error | {"innererror": inner}}).encode())


def hang(seconds: float = HANG_S) -> Reply:
    """Take the request and send nothing."""
    return msgspec.structs.replace(chat("late"), delay_s=seconds)


def trickle(pause_s: float) -> Reply:
    """Send a valid answer so slowly that no single read times out."""
    return msgspec.structs.replace(chat("slow"), pause_s=pause_s)


def drop(sent: int | None = 20) -> Reply:
    """Close the connection after some bytes of the body, or before the status line."""
    return msgspec.structs.replace(chat("a text that never arrives in full"), sent=sent)


class ChatApi(ScriptedApi):
    """The server. Valid requests are answered from the script; `usage` is added to answers that have none.

    `refuses` holds parameters it doesn't take, `formats` the forms of answer it knows, `bounds` whether schemas
    may have any. `blames` says how it words a refusal: `param` as OpenAI does, `prose` in the message alone,
    `detail` as FastAPI does. `key_header` is where it wants the key, `query` what it wants in the query, `models`
    what it lists (None: no such path).
    """

    def __init__(self, otherwise: Script | None = None) -> None:
        super().__init__(otherwise)
        self._defaults()

    def reset(self) -> None:
        """Forget requests and script, and take everything again."""
        super().reset()
        self._defaults()

    def _defaults(self) -> None:
        self.path = PATH
        self.refuses: Collection[str] = ()
        self.formats: Collection[str] = ("json_schema", "json_object")
        self.bounds = True
        self.blames = "param"
        self.key_header: str | None = "authorization"
        self.query: dict[str, str] = {}
        self.usage = True
        self.models: list[dict[str, Any]] | None = None
        self.model_reply: Reply | None = None

    def answer(self, received: Received) -> Reply:
        """Refuse what is to be refused, list models, and answer the rest from the script."""
        address = urlsplit(received.path)
        if received.method == "GET":
            return self._listed()
        if address.path != self.path or parse_qs(address.query) != {k: [v] for k, v in self.query.items()}:
            return Reply(status=404, body=b'{"detail": "Not Found"}')
        wanted = f"Bearer {API_KEY}" if self.key_header == "authorization" else API_KEY
        if self.key_header is not None and received.headers.get(self.key_header) != wanted:
            return failure(401, "invalid_request_error", "Incorrect API key", code="invalid_api_key")
        return self._wrong(received.body) or self._counted(received.body, self.next_reply(received))

    def _listed(self) -> Reply:
        if self.model_reply is not None:
            return self.model_reply
        if self.models is None:
            return Reply(status=404, body=b'{"detail": "Not Found"}')
        return raw(json.dumps({"object": "list", "data": self.models}).encode())

    def _wrong(self, body: dict[str, Any]) -> Reply | None:
        unknown = [name for name in body if name not in PARAMETERS or name in self.refuses]
        if "max_tokens" in unknown:
            text = (
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens'"
            )
            return self._blamed("max_tokens", text, body)
        if unknown:
            return self._blamed(unknown[0], f"Unsupported parameter: '{unknown[0]}'", body)
        roles = [message.get("role") for message in body.get("messages", [])]
        if not roles or roles[-1] != "user" or any(not m.get("content", "").strip() for m in body["messages"]):
            return failure(400, "invalid_request_error", "messages: must end with a user's, and none be blank")
        if "system" in self.refuses and "system" in roles:
            return failure(400, "BadRequestError", "System role not supported", code=400)
        return self._wrong_format(body)

    def _wrong_format(self, body: dict[str, Any]) -> Reply | None:
        shape = body.get("response_format")
        if shape is None:
            return None
        if shape["type"] not in self.formats:
            return self._blamed("response_format", f"response_format: {shape['type']} is not supported", body)
        if shape["type"] == "json_schema":
            named = shape["json_schema"]
            if not (named.get("name") and named.get("strict") is True and named.get("schema")):
                return failure(
                    400, "invalid_request_error", "response_format: name, strict and schema are required"
                )
            if not self.bounds and '"minimum"' in json.dumps(named["schema"]):
                text = "Invalid schema for response_format 'answer': 'minimum' is not permitted"
                return self._blamed("response_format", text, body)
        return None

    def _blamed(self, parameter: str, text: str, body: dict[str, Any]) -> Reply:
        # Real servers quote what they were sent; so does this one, to show that nobody passes it on.
        quoted = f"{text} in {json.dumps(body)}"
        if self.blames == "param":
            return failure(400, "invalid_request_error", quoted, code="unsupported_parameter", param=parameter)
        if self.blames == "detail":
            detail = [{"type": "extra_forbidden", "loc": ["body", parameter], "msg": text, "input": body}]
            return Reply(status=422, body=json.dumps({"detail": detail}).encode())
        return flat_error(400, "BadRequestError", quoted)

    def _counted(self, body: dict[str, Any], reply: Reply) -> Reply:
        try:
            content = json.loads(reply.body)
        except (ValueError, RecursionError):
            return reply
        if not self.usage or not isinstance(content, dict) or "choices" not in content or "usage" in content:
            return reply
        sent = len(json.dumps(body["messages"])) // 4
        written = sum(len(item["message"].get("content") or "") for item in content["choices"]) // 4 + 7
        content["usage"] = {
            "prompt_tokens": sent,
            "completion_tokens": written,
            "total_tokens": sent + written,
            "prompt_tokens_details": {"cached_tokens": 3},
            "completion_tokens_details": {"reasoning_tokens": 7},
        }
        return msgspec.structs.replace(reply, body=json.dumps(content).encode())
