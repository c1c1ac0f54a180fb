"""Reading what the Models API says of a model. Works on bytes, without the SDK; what isn't told stays unknown."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, TypeVar

import msgspec

from monitor.judging.check import Lifecycle, ModelFacts
from monitor.judging.words import word

_T = TypeVar("_T")


class _Support(msgspec.Struct):
    supported: bool


class _Capabilities(msgspec.Struct):
    structured_outputs: _Support | None = None
    effort: dict[str, Any] | None = None


class _Model(msgspec.Struct):
    id: str
    capabilities: _Capabilities | None = None
    lifecycle: str | None = None
    retires_at: datetime | None = None
    max_tokens: int | None = None


class _Listed(msgspec.Struct):
    id: str


class _List(msgspec.Struct):
    data: list[_Listed]


_MODEL: Final = msgspec.json.Decoder(_Model)
_LIST: Final = msgspec.json.Decoder(_List)
_LIFECYCLES: Final[dict[str | None, Lifecycle]] = {
    "active": "active",
    "deprecated": "deprecated",
    "retired": "retired",
}


def facts_from(raw: bytes) -> ModelFacts | None:
    """Read a model's description; None for anything else, such as the page of a proxy."""
    model = _decoded(_MODEL, raw)
    if model is None:
        return None
    can = model.capabilities or _Capabilities()
    return ModelFacts(
        known=True,
        lifecycle=_LIFECYCLES.get(model.lifecycle),
        retires_at=model.retires_at.timestamp() if model.retires_at else None,
        structured_outputs=can.structured_outputs.supported if can.structured_outputs else None,
        efforts=None if can.effort is None else _efforts(can.effort),
        max_tokens=model.max_tokens,
    )


def models_from(raw: bytes) -> tuple[str, ...] | None:
    """Read the names in a list of models; None for anything else."""
    listed = _decoded(_LIST, raw)
    return None if listed is None else tuple(name for item in listed.data if (name := word(item.id)))


def _efforts(effort: dict[str, Any]) -> frozenset[str]:
    # Levels are keys beside `supported`; a level that we don't know yet is read like any other.
    levels = {name: value for name, value in effort.items() if isinstance(value, dict)}
    taken = {name for name, value in levels.items() if value.get("supported") is True}
    return frozenset(taken if effort.get("supported") is not False else ())


def _decoded(decoder: msgspec.json.Decoder[_T], raw: bytes) -> _T | None:
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
