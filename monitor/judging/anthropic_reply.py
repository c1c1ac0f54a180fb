"""Reading what the Messages API sends: a message into a `Completion`, an error object into a `JudgeError`.

Works on bytes, without the SDK, so that live replies and the lines of a batch's results are read the same way.
What is decoded is checked: `{}`, a page of HTML or half a JSON text is `bad_response`, never an empty answer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from monitor.errors import JudgeError, JudgeFatal, JudgeUnavailable
from monitor.judgement import Usage
from monitor.judging.model import Completion, FatalType, Stop, UnavailableType
from monitor.judging.quota import Limits, anthropic_limits
from monitor.judging.retry import retry_after
from monitor.judging.words import word

_BAD_REQUEST: Final = 400
_SERVER_ERRORS: Final = 500
_FATAL_STATUS: Final[Mapping[int, FatalType]] = {
    400: "invalid_request",
    401: "authentication",
    402: "spend_limit",
    403: "permission",
    404: "not_found",
    413: "too_large",
}
_UNAVAILABLE_STATUS: Final[Mapping[int, UnavailableType]] = {
    408: "timeout",
    409: "server_error",
    429: "rate_limit",
    499: "connection",
    504: "timeout",
    529: "overloaded",
}
# The status that goes with an error's type, for errors that come without one (results of a batch).
_STATUS_OF: Final[Mapping[str, int]] = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "timeout_error": 504,
    "overloaded_error": 529,
}
# A 429 with one of these codes is no matter of waiting: someone has to raise the limit.
_SPEND_CODES: Final = frozenset(
    {
        "contract_spend_limit_reached",
        "enforced_spend_limit_reached",
        "linked_organization_spend_limit_reached",
        "linked_organization_billing_unavailable",
    }
)
_HELD_CODES: Final = frozenset({"organization_on_hold"})
# How the API words a request whose bytes were cut on their way: our bytes were fine, so it is worth another try.
_CUT_ON_ITS_WAY: Final = re.compile(r"not valid json|unexpected end of (?:data|json|input|file)", re.IGNORECASE)
# A stop sequence is none of ours (we send none); the text before it is the answer, and is checked like any other.
_STOPS: Final[Mapping[str, Stop]] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "max_tokens": "max_tokens",
    "refusal": "refusal",
}


class _Block(msgspec.Struct):
    type: str
    text: str = ""


class _OutputDetails(msgspec.Struct):
    thinking_tokens: int | None = None


class _CacheCreation(msgspec.Struct):
    ephemeral_5m_input_tokens: int = 0
    ephemeral_1h_input_tokens: int = 0


class _Usage(msgspec.Struct):
    input_tokens: int
    output_tokens: int
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_creation: _CacheCreation | None = None
    output_tokens_details: _OutputDetails | None = None


class _StopDetails(msgspec.Struct):
    category: str | None = None


class _Message(msgspec.Struct):
    """What we need of a message; everything else may change without us."""

    content: list[_Block]
    stop_reason: str | None
    usage: _Usage
    stop_details: _StopDetails | None = None


class _Details(msgspec.Struct):
    error_code: str | None = None


class _Error(msgspec.Struct):
    type: str
    message: str = ""
    details: _Details | None = None


class _ErrorBody(msgspec.Struct):
    error: _Error
    request_id: str | None = None


_MESSAGE: Final = msgspec.json.Decoder(_Message)
_ERROR_BODY: Final = msgspec.json.Decoder(_ErrorBody)


def completion_from(
    raw: bytes, *, request_id: str | None = None, duration_ms: int = 0, limits: Limits | None = None
) -> Completion:
    """Read a message, as JSON. A refusal and an answer cut at `max_tokens` are completions.

    Raises `JudgeUnavailable(bad_response)` for what is no message or ended in a way that can't be an answer, and
    `JudgeFatal(too_large)` when the model's context was full. Both carry the usage, if there was any.
    """
    message = _decoded(raw)
    if message is None:
        raise JudgeUnavailable(
            "bad_response", f"{len(raw)} bytes that are no message", request_id=request_id, limits=limits
        )
    usage = _usage(message.usage)
    stop = _STOPS.get(message.stop_reason or "")
    if stop is None:
        raise _stopped(message.stop_reason, request_id, usage, limits)
    return Completion(
        text="".join(block.text for block in message.content if block.type == "text"),
        stop=stop,
        usage=usage,
        request_id=request_id,
        duration_ms=duration_ms,
        refusal=word(message.stop_details.category) if message.stop_details else None,
        limits=limits,
    )


def error_from(
    raw: bytes,
    *,
    model: str,
    status: int | None = None,
    headers: Mapping[str, str] | None = None,
    now: float = 0.0,
) -> JudgeError:
    """Put an error reply, or a batch's `errored` result (no status, no headers), into the closed set.

    Only words of known shape go into the message, no prose: the API may quote what it was sent. `headers` must be
    case-insensitive or lower-case; `now` is Unix time, for dates in them.
    """
    headers = headers or {}
    body = _error_body(raw)
    kind = word(body.error.type) if body else None
    code = word(body.error.details.error_code) if body and body.error.details else None
    request_id = word(headers.get("request-id") or (body.request_id if body else None))
    status = _STATUS_OF.get(kind or "", _SERVER_ERRORS) if status is None else status
    parts = (f"status {status}", kind, code, request_id and f"request {request_id}")
    said = ", ".join(part for part in parts if part)
    limits = anthropic_limits(headers, now)
    fatal = _fatal_type(status, code, body, headers)
    if fatal:
        remedy = f"; is {model!r} the right model?" if fatal == "not_found" else ""
        return JudgeFatal(fatal, f"{fatal}: {said}{remedy}", request_id=request_id, limits=limits)
    unavailable = _unavailable_type(status, kind)
    return JudgeUnavailable(
        unavailable,
        f"{unavailable}: {said}",
        retry_after=retry_after(headers, now),
        request_id=request_id,
        limits=limits,
    )


def _stopped(reason: str | None, request_id: str | None, usage: Usage, limits: Limits | None) -> JudgeError:
    """Describe an answer that ended in a way that no rubric can read. It was paid for all the same."""
    if reason == "model_context_window_exceeded":
        said = "the session doesn't fit into the model's context"
        return JudgeFatal("too_large", said, request_id=request_id, usage=usage, limits=limits)
    # pause_turn and tool_use answer to tools, which we never offer; others are of a future API.
    said = f"stopped by {word(reason)}"
    return JudgeUnavailable("bad_response", said, request_id=request_id, usage=usage, limits=limits)


def _decoded(raw: bytes) -> _Message | None:
    try:
        return _MESSAGE.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _error_body(raw: bytes) -> _ErrorBody | None:
    try:
        return _ERROR_BODY.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _usage(usage: _Usage) -> Usage:
    thinking, written = usage.output_tokens_details, usage.cache_creation or _CacheCreation()
    split = written.ephemeral_5m_input_tokens + written.ephemeral_1h_input_tokens
    return Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_input_tokens or 0,
        cache_write_tokens=usage.cache_creation_input_tokens or split,
        cache_write_1h_tokens=written.ephemeral_1h_input_tokens,
        thinking_tokens=(thinking.thinking_tokens or 0) if thinking else 0,
    )


def _unavailable_type(status: int, kind: str | None) -> UnavailableType:
    if kind == "overloaded_error":
        return "overloaded"
    return "bad_response" if status == _BAD_REQUEST else _UNAVAILABLE_STATUS.get(status, "server_error")


def _fatal_type(
    status: int, code: str | None, body: _ErrorBody | None, headers: Mapping[str, str]
) -> FatalType | None:
    if code in _SPEND_CODES or (body and body.error.type == "billing_error"):
        return "spend_limit"
    if code in _HELD_CODES:
        return "permission"
    if status in _UNAVAILABLE_STATUS or status >= _SERVER_ERRORS:
        return None
    # The provider may say of any status that it is worth another try.
    if headers.get("x-should-retry") == "true" or (status == _BAD_REQUEST and _damaged(body)):
        return None
    return _FATAL_STATUS.get(status, "invalid_request")


def _damaged(body: _ErrorBody | None) -> bool:
    # A 400 without the API's own error object comes from something in between.
    return body is None or bool(_CUT_ON_ITS_WAY.search(body.error.message))
