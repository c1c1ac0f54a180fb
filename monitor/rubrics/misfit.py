"""Where a value doesn't fit a type, in one sentence that names field, value and rule. Pure.

msgspec says where and what was expected, but not which value stood there or which ones are allowed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec import inspect

_ROOT: Final = "The answer"


def misfit(value: Any, kind: type[Any]) -> tuple[str, Any, str] | None:
    """Find the first place that doesn't fit: its field, what stands there (`MISSING` for nothing), and the rule.

    The field is a path such as `claims[2].status`. None when everything fits.
    """
    return next(_misfits(value, inspect.type_info(kind), ""), None)


MISSING: Final = msgspec.UNSET


def _misfits(value: Any, kind: inspect.Type, field: str) -> Iterator[tuple[str, Any, str]]:
    wanted = _wanted(value, kind)
    if wanted is not None:
        yield field or _ROOT, value, wanted
    elif isinstance(kind, inspect.StructType):
        yield from _members(value, kind, field)
    elif isinstance(kind, inspect.ListType):
        for place, item in enumerate(value):
            yield from _misfits(item, kind.item_type, f"{field}[{place}]")


def _members(value: dict[str, Any], kind: inspect.StructType, field: str) -> Iterator[tuple[str, Any, str]]:
    prefix = f"{field}." if field else ""
    names = [member.encode_name for member in kind.fields]
    for name, item in value.items():
        if name not in names:
            yield f"{prefix}{name[:40]}", item, "the schema has no such field"
    for member in kind.fields:
        name = member.encode_name
        if name not in value:
            yield f"{prefix}{name}", MISSING, "every field is required"
        else:
            yield from _misfits(value[name], member.type, prefix + name)


def _wanted(value: Any, kind: inspect.Type) -> str | None:
    """Say what a value should be, or None when it is, not looking into it."""
    match kind:
        case inspect.LiteralType():
            fits = isinstance(value, str) and value in kind.values
            return None if fits else f"it must be one of {msgspec.json.encode(kind.values).decode()}"
        case inspect.BoolType():
            return None if isinstance(value, bool) else "it must be true or false"
        case inspect.IntType():
            fits = isinstance(value, int) and not isinstance(value, bool) and _within(value, kind)
            return None if fits else f"it must be a whole number{_range(kind)}"
        case inspect.StrType():
            long = kind.max_length is not None and isinstance(value, str) and len(value) > kind.max_length
            rule = f"it must be a text of at most {kind.max_length} characters" if long else "it must be a text"
            return None if isinstance(value, str) and not long else rule
        case inspect.ListType():
            return None if isinstance(value, list) else "it must be a list"
        case _:
            return None if isinstance(value, dict) else "it must be an object"


def _within(value: int, kind: inspect.IntType) -> bool:
    return (kind.ge is None or value >= kind.ge) and (kind.le is None or value <= kind.le)


def _range(kind: inspect.IntType) -> str:
    if kind.ge is None:
        return ""
    return f" of {kind.ge} or more" if kind.le is None else f" from {kind.ge} to {kind.le}"
