"""Every change of a single place in an answer that a careless, broken or bent judge could make of it.

A corruption names its kind and its place (`claims[].status`, places in a list left open), so that what a rubric
allows can be listed by place and kind.
"""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

import msgspec

Place: TypeAlias = tuple[str | int, ...]

WRONG_TYPES: Final[dict[type, tuple[Any, ...]]] = {
    str: (7, True, ["x"], {"x": "y"}),
    bool: ("true", 1, []),
    int: ("3", 2.5, True, [3], {}),
    list: ("x", 3, {"0": "x"}),
    dict: ("x", 3, ["x"]),
}
# Of the changes of one kind at like places of one answer, so many are made, spread over them.
MOST: Final = 8
_WORD: Final = re.compile(r"\w+")


class Corruption(msgspec.Struct, kw_only=True, frozen=True):
    """A changed answer. `where` is the place of the change, its indices left open; `path` the place itself."""

    kind: str
    where: str
    path: str
    answer: Any


def corruptions(
    answer: dict[str, Any], schema: dict[str, Any], foreign: Sequence[str], computed: Sequence[str]
) -> Iterator[Corruption]:
    """Give changed answers. `foreign` are texts of other turns, `computed` names of numbers that code computes."""
    made: dict[tuple[str, str], list[tuple[Place, Any]]] = {}
    for place, value, shape in _places(answer, schema, ()):
        for kind, changed in _changed(value, shape, foreign, computed):
            made.setdefault((_where(place), kind), []).append((place, changed))
        for other in _others(answer, place, value, shape):
            made.setdefault((_where(place), "other"), []).append((place, other))
        if place and isinstance(place[-1], str):
            made.setdefault((_where(place), "drop"), []).append((place, msgspec.UNSET))
    for (where, kind), changes in made.items():
        for place, changed in random.Random(kind).sample(changes, min(len(changes), MOST)):
            yield Corruption(kind=kind, where=where, path=_path(place), answer=_put(answer, place, changed))


def at(answer: Any, path: str) -> Any:
    """Give what stands at a path such as `claims[2].status`, or `claims[].status` for all; UNSET for nothing."""
    head, many, rest = path.partition("[]")
    if many:
        found = at(answer, head)
        return [at(item, rest.lstrip(".")) for item in found] if isinstance(found, list) else msgspec.UNSET
    for name, index in re.findall(r"([^.\[\]]+)|\[(\d+)\]", path):
        try:
            answer = answer[int(index)] if index else answer[name]
        except (KeyError, IndexError, TypeError):
            return msgspec.UNSET
    return answer


def _places(value: Any, shape: dict[str, Any], place: Place) -> Iterator[tuple[Place, Any, dict[str, Any]]]:
    yield place, value, shape
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _places(item, shape["properties"][name], (*place, name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _places(item, shape["items"], (*place, index))


def _others(answer: Any, place: Place, value: Any, shape: dict[str, Any]) -> Iterator[str]:
    """Give the texts that other rows have in the same field: another id, label or quote."""
    if isinstance(value, str) and "enum" not in shape and len(place) > 1 and isinstance(place[-1], str):
        known = {row[place[-1]] for row in at(answer, _path(place[:-2]))}
        yield from sorted(known - {value, ""})


def _changed(
    value: Any, shape: dict[str, Any], foreign: Sequence[str], computed: Sequence[str]
) -> Iterator[tuple[str, Any]]:
    yield "null", None
    for other in WRONG_TYPES[type(value)]:
        yield "type", other
    if isinstance(value, dict):
        yield "extra", value | {"remark": "x"}
        for name in computed:
            if name not in value:
                yield "extra", value | {name: 5}
    elif isinstance(value, list):
        yield from _list_changes(value)
    elif "enum" in shape:
        yield "off_enum", "excellent" if isinstance(value, str) else 6
        yield from (("enum", other) for other in shape["enum"] if other != value)
    elif isinstance(value, str):
        yield from _text_changes(value, foreign)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield from (("out_of_range", other) for other in (-2, 10**6, 10**30))
        yield from (("number", other) for other in range(-1, 8) if other != value)
    else:
        yield "flip", not value


def _list_changes(value: list[Any]) -> Iterator[tuple[str, Any]]:
    if value:
        yield "empty", []
    for index, item in enumerate(value):
        yield "duplicate", [*value[: index + 1], copy.deepcopy(item), *value[index + 1 :]]
        if len(value) > 1:
            yield "remove", value[:index] + value[index + 1 :]
        for other in range(index + 1, len(value)):
            swapped = list(value)
            swapped[index], swapped[other] = value[other], item
            if swapped != value:
                yield "swap", swapped
    yield "append", [*value, "x" if value and isinstance(value[0], dict) else None]


def _text_changes(value: str, foreign: Sequence[str]) -> Iterator[tuple[str, Any]]:
    if value:
        yield "empty", ""
        yield "blank", " \u200b"
    yield "foreign", next((text for text in foreign if text.strip() and text not in value), "quite other words")
    words = list(_WORD.finditer(value))
    for word in (words[0], words[len(words) // 2], words[-1]) if words else ():
        yield "word", f"{value[: word.start()]}zyzzyva{value[word.end() :]}"


def _path(place: Place) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).lstrip(".")


def _where(place: Place) -> str:
    return "".join("[]" if isinstance(part, int) else f".{part}" for part in place).lstrip(".")


def _put(value: Any, place: Place, changed: Any) -> Any:
    if not place:
        return changed
    copied = copy.copy(value)
    if changed is msgspec.UNSET and len(place) == 1:
        del copied[place[0]]
    else:
        copied[place[0]] = _put(value[place[0]], place[1:], changed)
    return copied
