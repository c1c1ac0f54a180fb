"""What an OpenAI-compatible server takes, learned from what it refuses. Pure.

The same request means different things to vLLM, llama.cpp, Azure and the rest: some know no `json_schema`, some no
`seed`, reasoning models no `temperature`. A judge starts with all of it. A server that names what it doesn't take
loses just that, and a server that ignores the schema gets it in words as well.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, Literal, TypeAlias

import msgspec

from monitor.judging.model import JudgeRequest
from monitor.judging.words import sendable
from monitor.settings import AnswerFormat, Effort

Format: TypeAlias = Literal["json_schema", "json_object", "text"]

SEED: Final = 0
_NEXT_FORMAT: Final[dict[Format, Format]] = {"json_schema": "json_object", "json_object": "text"}
_FORMAT: Final = "response_format"
# What servers may not take, by how they name it.
_PATTERNS: Final = {
    name: re.compile(pattern, re.IGNORECASE)
    for name, pattern in {
        "temperature": r"\btemperature\b",
        "seed": r"\bseed\b",
        "reasoning_effort": r"\breasoning[_. ]?effort\b",
        "max_tokens": r"\bmax_completion_tokens\b",
        "system": r"system (?:role|message|prompt)s? (?:is |are )?(?:not|un)",
        _FORMAT: r"response_format|json.?schema|json.?object|\bschema\b|guided|grammar|structured.?output",
    }.items()
}
_IN_PROSE: Final = frozenset({"max_tokens", "system"})
_SAID: Final = {
    "max_tokens": "it wants max_completion_tokens",
    "system": "it takes no system message: its text goes in front of the first message",
}
_BOUNDS: Final = frozenset(
    {
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "minLength",
        "maxLength",
        "pattern",
        "format",
        "minItems",
        "maxItems",
        "uniqueItems",
        "default",
        "title",
    }
)
_OF_NAMES: Final = frozenset({"properties", "$defs", "definitions"})
_OF_SCHEMAS: Final = frozenset({"items", "anyOf", "allOf", "oneOf"})
# Servers quote requests in their errors, and what a transcript says must not switch anything off.
_READ: Final = 200


class Dialect(msgspec.Struct, kw_only=True, frozen=True):
    """How to word a request for one server and model.

    `format` is the strictest form of answer that it can be asked for, and a `fixed` one stays; `loose` leaves the
    bounds out of the schema, `instructed` adds the schema to the system text. `without` holds what it refuses:
    `temperature`, `seed`, `reasoning_effort`, `max_tokens` (it wants `max_completion_tokens`), `system` (the text
    goes in front of the first message).
    """

    format: Format = "json_schema"
    loose: bool = False
    instructed: bool = False
    fixed: bool = False
    without: frozenset[str] = frozenset()


class Lesson(msgspec.Struct, kw_only=True, frozen=True):
    """A dialect with what was learned, in words fit for the log."""

    dialect: Dialect
    said: str


def dialect_for(answer_format: AnswerFormat) -> Dialect:
    """Give the dialect to start with; any format but `auto` stays as it is."""
    if answer_format == "auto":
        return Dialect()
    return Dialect(format=answer_format, instructed=answer_format != "json_schema", fixed=True)


def refused(dialect: Dialect, parameter: str | None, message: str) -> Lesson | None:
    """Learn from a refused request: what `parameter`, else the start of `message`, blames. None: no such thing."""
    name = _blamed(parameter, message[:_READ])
    if name == _FORMAT:
        return _simpler(dialect)
    if name is None or name in dialect.without:
        return None
    changed = msgspec.structs.replace(dialect, without=dialect.without | {name})
    return Lesson(dialect=changed, said=_SAID.get(name, f"it refuses {name}: left out from now on"))


def _blamed(parameter: str | None, start: str) -> str | None:
    """Give what is named first: servers name the culprit, and then may quote the request with all the others."""
    found: dict[str, int] = {}
    for name, pattern in _PATTERNS.items():
        # Two are named in prose alone: their parameter is `max_tokens`, or a place in `messages`.
        text = start if parameter is None or name in _IN_PROSE else parameter
        match = pattern.search(text)
        if match:
            found[name] = match.start()
    return min(found, key=lambda name: found[name], default=None)


def _simpler(dialect: Dialect) -> Lesson | None:
    if dialect.format == "json_schema" and not dialect.loose:
        changed = msgspec.structs.replace(dialect, loose=True)
        return Lesson(dialect=changed, said="it refuses the schema: sending it without bounds")
    following = None if dialect.fixed else _NEXT_FORMAT.get(dialect.format)
    if following is None:
        return None
    changed = msgspec.structs.replace(dialect, format=following, instructed=True)
    said = f"it refuses {dialect.format}: asking for {following}, with the schema in words"
    return Lesson(dialect=changed, said=said)


def ignored(dialect: Dialect, text: str, schema: dict[str, Any]) -> Lesson | None:
    """Learn from an answer that was complete and yet isn't the object asked for. None: it is, or all was tried."""
    if dialect.instructed or dialect.fixed or _fits(text, schema):
        return None
    changed = msgspec.structs.replace(dialect, instructed=True)
    return Lesson(dialect=changed, said="it ignores the schema; giving it in words as well")


def body_for(request: JudgeRequest, *, model: str, effort: Effort, dialect: Dialect) -> dict[str, Any]:
    """Give the JSON body of a chat completion. The transcript comes last, so that prefixes can be cached."""
    without = dialect.without
    limit = "max_completion_tokens" if "max_tokens" in without else "max_tokens"
    body: dict[str, Any] = {"model": model, "messages": _messages(request, dialect), limit: request.max_tokens}
    if "temperature" not in without:
        body["temperature"] = 0
    if "seed" not in without:
        body["seed"] = SEED
    if effort != "default" and "reasoning_effort" not in without:
        body["reasoning_effort"] = effort
    if dialect.format == "json_schema":
        schema = _loose(request.schema) if dialect.loose else request.schema
        shape = {"name": "answer", "strict": True, "schema": schema}
        body["response_format"] = {"type": "json_schema", "json_schema": shape}
    elif dialect.format == "json_object":
        body["response_format"] = {"type": "json_object"}
    return body


def _messages(request: JudgeRequest, dialect: Dialect) -> list[dict[str, str]]:
    system = sendable(request.system)
    if dialect.instructed:
        # Sorted keys would lose the order of the properties, which is the order of the answer (evidence first).
        schema = json.dumps(request.schema, ensure_ascii=False)
        system += f"\n\nAnswer with one JSON object and nothing else. It must fit this JSON Schema:\n{schema}"
    messages = [{"role": item.role, "content": sendable(item.text)} for item in request.messages]
    if "system" not in dialect.without:
        return [{"role": "system", "content": system}, *messages]
    first, *others = messages
    return [{"role": "user", "content": f"{system}\n\n{first['content']}"}, *others]


def _loose(schema: Any) -> Any:
    """Leave out bounds, which not every grammar has; the rubric's parser checks them all the same."""
    if isinstance(schema, list):
        return [_loose(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: value for key, value in schema.items() if key not in _BOUNDS}
    for key in _OF_NAMES & kept.keys():
        kept[key] = {name: _loose(value) for name, value in kept[key].items()}
    for key in _OF_SCHEMAS & kept.keys():
        kept[key] = _loose(kept[key])
    return kept


def _fits(text: str, schema: dict[str, Any]) -> bool:
    try:
        answer = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return isinstance(answer, dict) and set(schema.get("required", ())) <= answer.keys()
