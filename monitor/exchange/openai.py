"""Questions and answers as the files of an OpenAI-style Batch API hold them: `/v1/chat/completions` by line."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from monitor.errors import JudgeError
from monitor.judging.chat_dialect import Dialect, body_for
from monitor.judging.chat_reply import completion_from, error_from
from monitor.judging.flow import Failure, Reply
from monitor.judging.model import JudgeRequest
from monitor.settings import JudgeSettings

URL: Final = "/v1/chat/completions"
_OK: Final = 200
_LATE: Final = frozenset({"batch_expired", "batch_cancelled"})
# The service itself takes no `max_tokens` for newer models, and older ones know the new name.
_DIALECT: Final = Dialect(fixed=True, without=frozenset({"max_tokens"}))


class _Response(msgspec.Struct):
    status_code: int
    body: msgspec.Raw = msgspec.Raw(b"null")


class _Error(msgspec.Struct):
    code: str | None = None


class _Line(msgspec.Struct):
    custom_id: str
    response: _Response | None = None
    error: _Error | None = None


def batch_line(question_id: str, request: JudgeRequest, model: str, settings: JudgeSettings) -> dict[str, Any]:
    """Give the line that asks a question."""
    body = body_for(request, model=model, effort=settings.effort, dialect=_DIALECT)
    return {"custom_id": question_id, "method": "POST", "url": URL, "body": body}


def batch_reply(raw: bytes, model: str) -> tuple[str, Reply | JudgeError]:
    """Read a line of a batch's output: the id of its question, and the reply or what the service failed with.

    Raises `msgspec.DecodeError` when it is none.
    """
    line = msgspec.json.decode(raw, type=_Line)
    if line.response is None:
        late = line.error is not None and line.error.code in _LATE
        kind, said = ("timeout", "the batch ended before its turn") if late else ("server_error", "not answered")
        return line.custom_id, Failure(error_type=kind, message=said)
    body = bytes(line.response.body)
    if line.response.status_code != _OK:
        return line.custom_id, error_from(body, model=model, status=line.response.status_code, headers={}, now=0.0)
    try:
        return line.custom_id, completion_from(body, None, headers={}, now=0.0)
    except JudgeError as error:
        return line.custom_id, error
