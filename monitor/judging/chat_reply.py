"""Reading what OpenAI-compatible servers send: chat completions into `Completion`, errors into `JudgeError`.

Their shapes differ (OpenAI, vLLM, llama.cpp, Azure, gateways that send an error with status 200), so each field is
looked for where any of them has it; what can't be an answer is `bad_response`, never an empty one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from monitor.errors import JudgeError, JudgeFatal, JudgeUnavailable
from monitor.judgement import Usage
from monitor.judging.model import Completion, FatalType, JudgeRequest, Stop, UnavailableType
from monitor.judging.quota import openai_limits
from monitor.judging.retry import retry_after
from monitor.judging.words import word

CHARS_A_TOKEN: Final = 3
_BAD_REQUEST: Final = 400
_SERVER_ERRORS: Final = 500
_REDIRECTS: Final = range(300, 400)
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
    425: "overloaded",
    429: "rate_limit",
    499: "connection",
    504: "timeout",
    529: "overloaded",
}
# Codes and types go before the status: what they say is the same whatever status a server puts on it.
_FATAL_CODES: Final[Mapping[str, FatalType]] = {
    "insufficient_quota": "spend_limit",
    "billing_hard_limit_reached": "spend_limit",
    "billing_not_active": "spend_limit",
    "invalid_api_key": "authentication",
    "model_not_found": "not_found",
    "DeploymentNotFound": "not_found",
    "context_length_exceeded": "too_large",
    "exceed_context_size_error": "too_large",
    "string_above_max_length": "too_large",
}
_FILTERED: Final = frozenset({"content_filter", "content_policy_violation", "ResponsibleAIPolicyViolation"})
_TOO_LONG: Final = re.compile(
    r"maximum context length|context (?:length|size|window)|max_model_len|prompt is too long", re.IGNORECASE
)
# How servers word a request whose bytes were cut on their way: ours were fine, so it is worth another try.
_CUT_ON_ITS_WAY: Final = re.compile(
    r"not valid json|could not parse the json|unexpected end of (?:data|json|input|file)|json decode error",
    re.IGNORECASE,
)
_STOPS: Final[Mapping[str | None, Stop]] = {
    None: "end",
    "stop": "end",
    "eos": "end",
    "length": "max_tokens",
    "content_filter": "refusal",
}
_FENCE: Final = "```"
_THINK: Final = "<think>"
_THOUGHT: Final = "</think>"


class _Part(msgspec.Struct):
    type: str = "text"
    text: str = ""


class _Message(msgspec.Struct):
    content: str | list[_Part] | None = None
    refusal: str | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None


class _PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class _CompletionDetails(msgspec.Struct):
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int = 0
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _CompletionDetails | None = None


class _Reply(msgspec.Struct):
    choices: list[_Choice]
    usage: _Usage | None = None
    id: str | None = None


_REPLY: Final = msgspec.json.Decoder(_Reply)


class ServerError(msgspec.Struct, kw_only=True, frozen=True):
    """What an error's body says, from whichever place. `message` is prose: read it, never pass it on."""

    codes: tuple[str, ...] = ()
    parameter: str | None = None
    message: str = ""
    readable: bool = False


def completion_from(
    raw: bytes,
    request: JudgeRequest | None,
    *,
    headers: Mapping[str, str],
    now: float,
    duration_ms: int = 0,
) -> Completion:
    """Read a chat completion that came with status 200. A refusal and an answer cut off are completions.

    A fence around the whole answer and a leading `<think>` part are taken off. Usage that isn't told is estimated
    from the lengths of the texts, and marked (without a `request` that of the answer alone). Raises `JudgeError`;
    what was paid for all the same is in its usage.
    """
    request_id = _request_id(headers)
    reply = _decoded(raw)
    if reply is None or not reply.choices:
        raise error_from(raw, model="", status=200, headers=headers, now=now)
    choice = reply.choices[0]
    text = choice.message.refusal or _text(choice.message)
    usage = _usage(reply.usage) if reply.usage else _estimated(request, text)
    limits = openai_limits(headers, now)
    stop = "refusal" if choice.message.refusal else _STOPS.get(choice.finish_reason)
    if stop is None:
        said = f"stopped by {word(choice.finish_reason)}"
        raise JudgeUnavailable("bad_response", said, request_id=request_id, usage=usage, limits=limits)
    return Completion(
        text=bare(text),
        stop=stop,
        usage=usage,
        request_id=request_id or word(reply.id),
        duration_ms=duration_ms,
        refusal=word(choice.finish_reason) if stop == "refusal" and not choice.message.refusal else None,
        limits=limits,
    )


def filtered(status: int, error: ServerError) -> bool:
    """Tell whether an error is a refusal: a content filter that looked at the question (Azure: status 400)."""
    return status < _SERVER_ERRORS and not _FILTERED.isdisjoint(error.codes)


def filtered_completion(headers: Mapping[str, str], now: float, duration_ms: int) -> Completion:
    """Give the refusal that a content filter's error stands for."""
    return Completion(
        text="",
        stop="refusal",
        refusal="content_filter",
        request_id=_request_id(headers),
        duration_ms=duration_ms,
        limits=openai_limits(headers, now),
    )


def error_from(raw: bytes, *, model: str, status: int, headers: Mapping[str, str], now: float) -> JudgeError:
    """Put an error reply, or a reply with status 200 that is no answer, into the closed set.

    Only words of known shape go into the message, no prose: servers quote what they were sent. `headers` must be
    case-insensitive or lower-case; `now` is Unix time, for dates in them.
    """
    error = server_error(raw)
    status = _status_in(error, status)
    request_id = _request_id(headers)
    words = [code for code in error.codes if word(code) and code != str(status)]
    said = ", ".join([f"status {status}", *words, *([f"request {request_id}"] if request_id else [])])
    limits = openai_limits(headers, now)
    fatal = _fatal_type(status, error, headers)
    if fatal is not None:
        return JudgeFatal(
            fatal, f"{fatal}: {said}{_remedy(fatal, status, model)}", request_id=request_id, limits=limits
        )
    unavailable = _unavailable_type(status)
    return JudgeUnavailable(
        unavailable,
        f"{unavailable}: {said}",
        retry_after=retry_after(headers, now),
        request_id=request_id,
        limits=limits,
    )


def server_error(raw: bytes) -> ServerError:
    """Read an error's body: `{"error": {...}}`, vLLM's flat form, FastAPI's `detail`, or nothing that is known."""
    try:
        body = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ServerError()
    if not isinstance(body, dict):
        return ServerError()
    inner = body.get("error", body if body.get("object") == "error" else None)
    if isinstance(inner, str):
        return ServerError(message=inner, readable=True)
    if isinstance(inner, dict):
        return _named(inner)
    detail = body.get("detail")
    return ServerError() if detail is None else _detailed(detail)


def bare(text: str) -> str:
    """Take off what some models put around JSON: a leading `<think>` part, and one fence around all of it."""
    # Plain searches: a pattern for this looks again at every blank of a long answer.
    inner = text.strip()
    if inner.startswith(_THINK) and _THOUGHT in inner:
        text = inner = inner.partition(_THOUGHT)[2].strip()
    first, _, rest = inner.partition("\n")
    tag = first.removeprefix(_FENCE).strip()
    fenced = first.startswith(_FENCE) and (not tag or tag.isalpha())
    return rest[: -len(_FENCE)].strip() if fenced and rest.endswith(_FENCE) and rest.count(_FENCE) == 1 else text


def _named(inner: Mapping[str, Any]) -> ServerError:
    deeper = inner.get("innererror")
    named = (inner.get("code"), inner.get("type"), deeper.get("code") if isinstance(deeper, dict) else None)
    parameter = inner.get("param")
    return ServerError(
        codes=tuple(str(name) for name in named if isinstance(name, str | int)),
        parameter=parameter if isinstance(parameter, str) and parameter else None,
        message=str(inner.get("message") or ""),
        readable=True,
    )


def _detailed(detail: object) -> ServerError:
    """Read FastAPI's `detail`: a sentence, or a list of faults with the place of each (`["body", "seed"]`)."""
    first = detail[0] if isinstance(detail, list) and detail else None
    if not isinstance(first, dict):
        return ServerError(message=str(detail), readable=True)
    place = first.get("loc")
    parameter = place[1] if isinstance(place, list) and len(place) > 1 else None
    return ServerError(
        parameter=parameter if isinstance(parameter, str) else None,
        message=str(first.get("msg") or ""),
        readable=True,
    )


def _decoded(raw: bytes) -> _Reply | None:
    try:
        return _REPLY.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _text(message: _Message) -> str:
    if isinstance(message.content, list):
        return "".join(part.text for part in message.content if part.type in {"text", "output_text"})
    return message.content or ""


def _usage(usage: _Usage) -> Usage:
    cached = (usage.prompt_tokens_details.cached_tokens or 0) if usage.prompt_tokens_details else 0
    thought = (usage.completion_tokens_details.reasoning_tokens or 0) if usage.completion_tokens_details else 0
    return Usage(
        input_tokens=max(0, usage.prompt_tokens - cached),
        output_tokens=usage.completion_tokens,
        cache_read_tokens=cached,
        thinking_tokens=thought,
    )


def _estimated(request: JudgeRequest | None, text: str) -> Usage:
    texts = [] if request is None else [request.system, *(message.text for message in request.messages)]
    sent = sum(map(len, texts))
    return Usage(
        input_tokens=-(-sent // CHARS_A_TOKEN), output_tokens=-(-len(text) // CHARS_A_TOKEN), estimated=True
    )


def _request_id(headers: Mapping[str, str]) -> str | None:
    return word(headers.get("x-request-id") or headers.get("apim-request-id") or headers.get("request-id"))


def _status_in(error: ServerError, status: int) -> int:
    """Give the status that an error has in its body, where a gateway sends it with status 200."""
    if status != 200:  # noqa: PLR2004 - OK
        return status
    told = next((int(code) for code in error.codes if code.isdecimal() and len(code) == 3), None)  # noqa: PLR2004
    return status if told is None else told


def _fatal_type(status: int, error: ServerError, headers: Mapping[str, str]) -> FatalType | None:
    named = next((_FATAL_CODES[code] for code in error.codes if code in _FATAL_CODES), None)
    if named is not None:
        return named
    if status in _UNAVAILABLE_STATUS or status >= _SERVER_ERRORS or status < min(_REDIRECTS):
        return None
    if status in _REDIRECTS:
        return "not_found"
    # A 400 without an error object comes from something in between, or means that our bytes were cut.
    damaged = not error.readable or bool(_CUT_ON_ITS_WAY.search(error.message))
    if headers.get("x-should-retry") == "true" or (status == _BAD_REQUEST and damaged):
        return None
    if status < 404 and _TOO_LONG.search(error.message):  # noqa: PLR2004 - 400 in practice
        return "too_large"
    return _FATAL_STATUS.get(status, "invalid_request")


def _unavailable_type(status: int) -> UnavailableType:
    if status < _SERVER_ERRORS:
        return _UNAVAILABLE_STATUS.get(status, "bad_response")
    return _UNAVAILABLE_STATUS.get(status, "server_error")


def _remedy(fatal: FatalType, status: int, model: str) -> str:
    if status in _REDIRECTS:
        return "; the address leads elsewhere: is judge.base_url right?"
    if fatal == "too_large":
        return "; the session and judge.max_tokens together don't fit into the model's context"
    if fatal == "not_found":
        return f"; are judge.base_url and the model {model!r} right?"
    return ""
