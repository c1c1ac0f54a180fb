"""Questions and answers as the files of an OpenAI-style Batch API hold them: `/v1/chat/completions` by line."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from monitor.judgement import Usage
from monitor.judging.flow import Failure, Reply
from monitor.judging.model import Completion, JudgeRequest, Stop

URL: Final = "/v1/chat/completions"
SEED: Final = 0
_OK: Final = 200
_STOPS: Final[dict[str, Stop]] = {"stop": "end", "length": "max_tokens", "content_filter": "refusal"}
_ITSELF_WRONG: Final = frozenset({400, 413, 422})


class _Said(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None


class _Choice(msgspec.Struct):
    message: _Said
    finish_reason: str | None = None


class _Cached(msgspec.Struct):
    cached_tokens: int = 0


class _Thought(msgspec.Struct):
    reasoning_tokens: int = 0


class _Tokens(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: _Cached | None = None
    completion_tokens_details: _Thought | None = None


class _Body(msgspec.Struct):
    choices: list[_Choice]
    usage: _Tokens | None = None


class _Response(msgspec.Struct):
    status_code: int
    body: msgspec.Raw = msgspec.Raw(b"null")
    request_id: str | None = None


class _Error(msgspec.Struct):
    code: str | None = None


class _Line(msgspec.Struct):
    custom_id: str
    response: _Response | None = None
    error: _Error | None = None


def batch_line(question_id: str, request: JudgeRequest, model: str) -> dict[str, Any]:
    """Give the line that asks a question."""
    schema = {"name": request.rubric, "strict": True, "schema": request.schema}
    messages = [{"role": message.role, "content": message.text} for message in request.messages]
    return {
        "custom_id": question_id,
        "method": "POST",
        "url": URL,
        "body": {
            "model": model,
            "messages": [{"role": "system", "content": request.system}, *messages],
            "max_completion_tokens": request.max_tokens,
            "temperature": 0,
            "seed": SEED,
            "response_format": {"type": "json_schema", "json_schema": schema},
        },
    }


def batch_reply(raw: bytes) -> tuple[str, Reply]:
    """Read a line of a batch's output: the id of its question, and the reply.

    Raises `msgspec.DecodeError` when it is none.
    """
    line = msgspec.json.decode(raw, type=_Line)
    if line.response is None:
        code = line.error.code if line.error else None
        kind = "timeout" if code in {"batch_expired", "batch_cancelled"} else "server_error"
        return line.custom_id, Failure(error_type=kind, message=f"not answered: {kind}")
    response = line.response
    if response.status_code != _OK:
        return line.custom_id, _failed(response)
    try:
        body = msgspec.json.decode(response.body, type=_Body)
        choice = body.choices[0]
    except (msgspec.DecodeError, IndexError):
        return line.custom_id, Failure(error_type="bad_response", message="status 200 without a message")
    return line.custom_id, _completion(choice, body.usage or _Tokens(), response.request_id)


def _failed(response: _Response) -> Failure:
    status = response.status_code
    if status in _ITSELF_WRONG:
        return Failure(error_type="invalid_request", message=f"status {status}", final="error")
    return Failure(error_type="server_error", message=f"status {status}", request_id=response.request_id)


def _completion(choice: _Choice, tokens: _Tokens, request_id: str | None) -> Completion:
    cached = tokens.prompt_tokens_details.cached_tokens if tokens.prompt_tokens_details else 0
    thought = tokens.completion_tokens_details.reasoning_tokens if tokens.completion_tokens_details else 0
    stop = "refusal" if choice.message.refusal else _STOPS.get(choice.finish_reason or "", "end")
    return Completion(
        text=choice.message.content or "",
        stop=stop,
        usage=Usage(
            input_tokens=max(0, tokens.prompt_tokens - cached),
            cache_read_tokens=cached,
            output_tokens=tokens.completion_tokens,
            thinking_tokens=thought,
        ),
        request_id=request_id,
    )
