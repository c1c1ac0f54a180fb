"""The Anthropic judge: one Messages API call in, one `Completion` or one classified error out.

The SDK only carries bytes and raises for error statuses. What comes back is decoded here, strictly, because the
SDK hands out a `str` for a page of HTML, a `Message` without attributes for `{}`, and a bare `JSONDecodeError` for
broken JSON. Retrying is the driver's business (`max_retries=0`): the SDK's own has no deadline and no cap.

Errors never carry the SDK's exception, not even as `__context__`: it holds the request, hence transcript and key.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NoReturn, TypeAlias

import anthropic
import msgspec
from anthropic.types import MessageParam, TextBlockParam

from monitor.errors import JudgeError, JudgeFatal, JudgeUnavailable
from monitor.judgement import Usage
from monitor.judging.model import Completion, FatalType, JudgeRequest, Stop, UnavailableType
from monitor.judging.retry import retry_after

Effort: TypeAlias = Literal["low", "medium", "high"]
CacheTtl: TypeAlias = Literal["5m", "1h"]

BASE_URL: Final = "https://api.anthropic.com"
MAX_CONNECT_S: Final = 10.0

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
_STOPS: Final[Mapping[str, Stop]] = {"end_turn": "end", "max_tokens": "max_tokens", "refusal": "refusal"}
_WORD: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class _Block(msgspec.Struct):
    type: str
    text: str = ""


class _OutputDetails(msgspec.Struct):
    thinking_tokens: int | None = None


class _Usage(msgspec.Struct):
    input_tokens: int
    output_tokens: int
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    output_tokens_details: _OutputDetails | None = None


class _Reply(msgspec.Struct):
    """What we need of a reply; everything else may change without us."""

    content: list[_Block]
    stop_reason: str | None
    usage: _Usage


class AnthropicJudge:
    """A `JudgeModel` over the Messages API with structured output and a cached system prefix.

    `effort` is the model's own knob; there are no sampling parameters (the API refuses them). `wall` gives Unix
    seconds, for `retry-after` dates. The client is closed by `aclose`.
    """

    provider = "anthropic"

    def __init__(
        self,
        model: str,
        *,
        api_key: str,
        base_url: str = BASE_URL,
        effort: Effort = "low",
        cache_ttl: CacheTtl = "1h",
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.model = model
        self.name = f"anthropic:{model}"
        self._effort = effort
        self._cache_ttl = cache_ttl
        self._wall = wall
        self._reply = msgspec.json.Decoder(_Reply)
        # Spans are off: a tracer set up elsewhere in the process must not get at the transcript.
        self._client = anthropic.AsyncAnthropic(
            api_key=api_key, base_url=base_url, max_retries=0, open_telemetry=False
        )

    async def complete(self, request: JudgeRequest, *, timeout: float) -> Completion:  # noqa: ASYNC109 - the seam's
        """Answer within `timeout` seconds, in one try.

        Raises `JudgeUnavailable` for what may pass (`UnavailableType`) and `JudgeFatal` for what won't
        (`FatalType`). A refusal and an answer cut at `max_tokens` are completions.
        """
        started = time.monotonic()
        sent = await self._send(request, timeout)
        if isinstance(sent, JudgeError):
            raise sent
        raw, request_id = sent
        return self._completion(raw, request_id, round((time.monotonic() - started) * 1000))

    async def aclose(self) -> None:
        """Release connections."""
        await self._client.close()

    async def _send(self, request: JudgeRequest, seconds: float) -> tuple[bytes, str | None] | JudgeError:
        # The error is returned, not raised: raised in here, its __context__ would keep the SDK's exception alive.
        try:
            # httpx times out each read; a server that trickles bytes is stopped by the outer timeout alone.
            async with asyncio.timeout(seconds):
                response = await self._client.messages.with_raw_response.create(
                    **self._parameters(request),
                    timeout=anthropic.Timeout(seconds, connect=min(seconds, MAX_CONNECT_S)),
                )
        except anthropic.APIStatusError as error:
            return _classified(error, self.model, self._wall())
        except (TimeoutError, anthropic.APITimeoutError):
            return JudgeUnavailable("timeout", f"no answer within {seconds:.3g} s")
        except anthropic.APIConnectionError as error:
            return JudgeUnavailable("connection", f"connection failed: {type(error.__cause__).__name__}")
        http = response.http_response
        return http.content, _word(http.headers.get("request-id"))

    def _parameters(self, request: JudgeRequest) -> dict[str, Any]:
        system: TextBlockParam = {
            "type": "text",
            "text": _sendable(request.system),
            "cache_control": {"type": "ephemeral", "ttl": self._cache_ttl},
        }
        messages: list[MessageParam] = [
            _message(message.role, _sendable(message.text)) for message in request.messages
        ]
        # The grammar takes no bounds; transform_schema turns them into prose, and the rubric's parser checks them.
        schema = anthropic.transform_schema(request.schema)
        return {
            "model": self.model,
            "max_tokens": request.max_tokens,
            "system": [system],
            "messages": messages,
            "output_config": {"effort": self._effort, "format": {"type": "json_schema", "schema": schema}},
        }

    def _completion(self, raw: bytes, request_id: str | None, duration_ms: int) -> Completion:
        reply = self._decode(raw)
        if reply is None:
            raise JudgeUnavailable(
                "bad_response", f"status 200 with {len(raw)} bytes that are no message", request_id=request_id
            )
        usage = _usage(reply.usage)
        stop = _STOPS.get(reply.stop_reason or "")
        if stop is None:
            _stopped(reply.stop_reason, request_id, usage)
        text = "".join(block.text for block in reply.content if block.type == "text")
        return Completion(text=text, stop=stop, usage=usage, request_id=request_id, duration_ms=duration_ms)

    def _decode(self, raw: bytes) -> _Reply | None:
        try:
            return self._reply.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None


def _message(role: Literal["user", "assistant"], text: str) -> MessageParam:
    # Two literals, because the SDK's type is a union of one TypedDict a role.
    return {"role": "user", "content": text} if role == "user" else {"role": "assistant", "content": text}


def _stopped(reason: str | None, request_id: str | None, usage: Usage) -> NoReturn:
    """Raise for an answer that ended in a way that no rubric can read. It was paid for all the same."""
    if reason == "model_context_window_exceeded":
        raise JudgeFatal(
            "too_large", "the session doesn't fit into the model's context", request_id=request_id, usage=usage
        )
    # pause_turn, tool_use and stop_sequence answer to things that we never ask for.
    raise JudgeUnavailable("bad_response", f"stopped by {_word(reason)}", request_id=request_id, usage=usage)


def _usage(usage: _Usage) -> Usage:
    details = usage.output_tokens_details
    return Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_input_tokens or 0,
        cache_write_tokens=usage.cache_creation_input_tokens or 0,
        thinking_tokens=(details.thinking_tokens or 0) if details else 0,
    )


def _classified(error: anthropic.APIStatusError, model: str, now: float) -> JudgeError:
    """Put an error status into the closed set. Only words of known shape go into the message, no prose."""
    status, code, kind = error.status_code, _word(error.error_code), _word(error.type)
    request_id = _word(error.request_id)
    parts = (f"status {status}", kind, code, request_id and f"request {request_id}")
    said = ", ".join(part for part in parts if part)
    fatal = _fatal_type(status, code, kind, error.response.headers)
    if fatal:
        remedy = f"; is {model!r} the right model?" if fatal == "not_found" else ""
        return JudgeFatal(fatal, f"{fatal}: {said}{remedy}", request_id=request_id)
    unavailable = _unavailable_type(status, kind)
    wait = retry_after(error.response.headers, now)
    return JudgeUnavailable(unavailable, f"{unavailable}: {said}", retry_after=wait, request_id=request_id)


def _unavailable_type(status: int, kind: str | None) -> UnavailableType:
    if kind == "overloaded_error":
        return "overloaded"
    return "bad_response" if status == _BAD_REQUEST else _UNAVAILABLE_STATUS.get(status, "server_error")


def _fatal_type(status: int, code: str | None, kind: str | None, headers: Mapping[str, str]) -> FatalType | None:
    if code in _SPEND_CODES or kind == "billing_error":
        return "spend_limit"
    if code in _HELD_CODES:
        return "permission"
    if status in _UNAVAILABLE_STATUS or status >= _SERVER_ERRORS:
        return None
    # The provider may say of any status that it is worth another try. A 400 without the provider's own error
    # object comes from something in between, or means that our bytes were cut on their way.
    if headers.get("x-should-retry") == "true" or (status == _BAD_REQUEST and kind is None):
        return None
    return _FATAL_STATUS.get(status, "invalid_request")


def _word(value: object) -> str | None:
    """Let through a short identifier and nothing else: what a server sends may quote the prompt."""
    return value if isinstance(value, str) and _WORD.fullmatch(value) else None


def _sendable(text: str) -> str:
    """Make a text that the API takes: no lone surrogates, and never blank (a blank answer may be quoted back)."""
    clean = text.encode("utf-8", "replace").decode("utf-8")
    return clean if clean.strip() else "(nothing)"
