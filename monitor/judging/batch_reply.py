"""What a Message Batch gives back, a line an answer: read like the answer to a call."""

from __future__ import annotations

from typing import Final

import msgspec

from monitor.errors import JudgeError
from monitor.judging.anthropic_reply import completion_from, error_from
from monitor.judging.flow import Failure, Reply, failed_attempt

_ITSELF_WRONG: Final = frozenset({"invalid_request", "too_large"})


class _Result(msgspec.Struct):
    type: str
    message: msgspec.Raw = msgspec.Raw(b"{}")
    error: msgspec.Raw = msgspec.Raw(b"{}")


class _Line(msgspec.Struct):
    custom_id: str
    result: _Result


_LINE: Final = msgspec.json.Decoder(_Line)


def batch_reply(raw: bytes, model: str) -> tuple[str, Reply]:
    """Read a line of results: the id of its question, and the reply. Raises `msgspec.DecodeError` if it is none.

    Where the provider failed the reply is a `Failure`: final if the request itself is to blame, else it is worth
    another try.
    """
    line = _LINE.decode(raw)
    match line.result.type:
        case "succeeded":
            return line.custom_id, _message(bytes(line.result.message))
        case "errored":
            return line.custom_id, failed(error_from(bytes(line.result.error), model=model))
        case "expired" | "canceled" as kind:
            return line.custom_id, Failure(error_type="timeout", message=f"the batch has {kind} before its turn")
        case _:
            return line.custom_id, Failure(error_type="bad_response", message="a result of an unknown type")


def failed(error: JudgeError) -> Failure:
    """Note an error; what the provider rejects for the request's own sake isn't asked again."""
    own_fault = error.error_type in _ITSELF_WRONG
    return failed_attempt(error, final="error" if own_fault else None)


def _message(raw: bytes) -> Reply:
    try:
        return completion_from(raw)
    except JudgeError as error:
        return failed(error)
