"""What came back, a line each, in any of the forms and in any order; each line says itself which form it has.

    {"id": "...", "text": "..."}            plain; instead of `text`, `answer` may hold the JSON object itself
    {"custom_id": "...", "result": {"type": "succeeded", "message": {...}}}                     Message Batches
    {"custom_id": "...", "response": {"status_code": 200, "body": {...}}, "error": null}            a Batch API

What a provider could not answer is a failed attempt, and the question is asked again. The same checks wait for all
of them: here nothing is known of rubrics.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from monitor.errors import InputError, JudgeError
from monitor.exchange import openai
from monitor.judgement import Usage
from monitor.judging.batch_reply import batch_reply, failed
from monitor.judging.flow import Reply
from monitor.judging.model import Completion, Stop

_FORMS: Final = "`id` with `text` or `answer`, or `custom_id` with `result` or with `response`"


class Answer(msgspec.Struct, kw_only=True, frozen=True):
    """A reply under the id of its question; `place` is its file and line."""

    id: str
    reply: Reply
    place: str


class _Plain(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    id: str
    text: str | None = None
    answer: dict[str, Any] | None = None
    stop: Stop = "end"
    usage: Usage = Usage()


def read_answers(path: Path, model: str) -> Iterator[Answer]:
    """Read a file of answers of `model`. Raises `InputError` that names file, line and what is wrong."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise InputError(f"{path}: can't be read: {error.strerror}") from None
    with file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            place = f"{path}: line {number}"
            try:
                question_id, reply = _read(line, model)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise InputError(f"{place}: no answer: {error}") from None
            yield Answer(id=question_id, reply=reply, place=place)


def _read(line: bytes, model: str) -> tuple[str, Reply]:
    value = msgspec.json.decode(line)
    keys = value.keys() if isinstance(value, dict) else set()
    if {"custom_id", "result"} <= keys:
        return batch_reply(line, model)
    if {"custom_id", "response"} <= keys:
        question_id, found = openai.batch_reply(line, model)
        return question_id, failed(found) if isinstance(found, JudgeError) else found
    if "id" in keys and not {"custom_id"} & keys:
        return _plain(line)
    raise msgspec.ValidationError(f"must hold {_FORMS}")


def _plain(line: bytes) -> tuple[str, Reply]:
    answer = msgspec.json.decode(line, type=_Plain)
    if (answer.text is None) == (answer.answer is None):
        raise msgspec.ValidationError("must hold either `text` or `answer`")
    text = msgspec.json.encode(answer.answer).decode() if answer.text is None else answer.text
    return answer.id, Completion(text=text, stop=answer.stop, usage=answer.usage)
