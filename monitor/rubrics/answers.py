"""Checks that answers of every rubric need: strict JSON, quotes that are really there.

Each violation is an `InvalidVerdict` with one sentence that names the field, its value and the rule. `Faults` puts
several into one, so that a judge can repair them all at once.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from typing import Any, Final, NoReturn, ParamSpec, TypeVar

import msgspec

from monitor.errors import InvalidVerdict
from monitor.ignorable import IGNORABLE
from monitor.rubrics.misfit import MISSING, misfit

T = TypeVar("T")
P = ParamSpec("P")


def decode(raw: str, kind: type[T], *, enums: Collection[str] = ()) -> T:
    """Decode an answer: one JSON object with exactly the fields of `kind`. Raises `InvalidVerdict`.

    `enums` names fields, at any depth, whose values are compared without regard to case: providers don't promise
    it. A code fence around the whole object is taken off, nothing else is.
    """
    fenced = _CODE_FENCE.fullmatch(raw)
    try:
        value: Any = msgspec.json.decode((fenced[1] if fenced else raw).encode("utf-8", "replace"))
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidVerdict(
            f"The answer must be one JSON object and nothing else, but it can't be read: {error}."
        ) from None
    if not isinstance(value, dict):
        refuse("The answer", value, "it must be one JSON object")
    value = _lowered(value, enums)
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        _misfit(value, kind, str(error))


def _misfit(value: Any, kind: type[Any], error: str) -> NoReturn:
    found = misfit(value, kind)
    if found is None:
        raise InvalidVerdict(f"The answer doesn't fit the schema: {error}.")
    field, wrong, rule = found
    if wrong is MISSING:
        raise InvalidVerdict(f"{field} is missing, but {rule}.")
    refuse(field, wrong, rule)


def _lowered(value: Any, names: Collection[str]) -> Any:
    if isinstance(value, list):
        return [_lowered(item, names) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: item.strip().lower() if name in names and isinstance(item, str) else _lowered(item, names)
        for name, item in value.items()
    }


def object_schema(properties: dict[str, Any]) -> dict[str, Any]:
    """Give the schema of an object that has all of these properties and no other."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def one_of(values: Sequence[str]) -> dict[str, Any]:
    """Give the schema of a text that is one of some values."""
    return {"type": "string", "enum": list(values)}


def contains(text: str, quote: str) -> bool:
    """Say whether a text has a quote, whatever its white space, typographic quotes and invisible characters."""
    wanted = plain(quote)
    return bool(wanted) and wanted in _searched(text)


def verbatim(field: str, quote: str, text: str, turn: int) -> None:
    """Hold a quote to the text of its turn. Raises `InvalidVerdict`."""
    if blank(quote):
        refuse(field, quote, f"it must quote words of turn {turn}")
    if not contains(text, quote):
        refuse(field, quote, f"turn {turn} doesn't have these words")


def blank(text: str) -> bool:
    """Say whether a text says nothing: white space and invisible characters."""
    return not plain(text)


def plain(text: str) -> str:
    """Normalize a text for comparison: no control or format characters, plain quotes, single spaces."""
    spaced = " ".join(text.split())
    if spaced.isascii() and spaced.isprintable():
        return spaced
    kept = "".join(char for char in spaced.translate(_QUOTES) if unicodedata.category(char) not in {"Cc", "Cf"})
    return " ".join(IGNORABLE.sub("", kept).split())


@lru_cache(maxsize=16)
def _searched(text: str) -> str:
    """Normalize a text that many quotes are looked for in, one after the other, once: it may have 200 kB."""
    return plain(text)


def shown(value: object, limit: int = 80) -> str:
    """Show a value in an error sentence: on one line, shortened."""
    text = " ".join(value.splitlines()) if isinstance(value, str) else msgspec.json.encode(value).decode()
    text = f'"{text}"' if isinstance(value, str) else text
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def refuse(field: str, value: object, rule: str) -> NoReturn:
    """Refuse an answer: `field` is `value`, but `rule`. Raises `InvalidVerdict`."""
    raise InvalidVerdict(f"{field} is {shown(value)}, but {rule}.")


class Faults:
    """Collects what is wrong with an answer, rule by rule."""

    def __init__(self) -> None:
        self._found: list[str] = []

    def keeps(self, rule: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> bool:
        """Hold an answer to a rule, which refuses it at its first fault; say whether it keeps the rule."""
        try:
            rule(*args, **kwargs)
        except InvalidVerdict as error:
            self._found += error.faults
            return False
        return True

    def refuse(self) -> None:
        """Refuse the answer if it has faults. Raises `InvalidVerdict`."""
        if self._found:
            raise InvalidVerdict(*self._found)


_QUOTES: Final = str.maketrans({"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"'})
_CODE_FENCE: Final = re.compile(r"\s*```(?:json)?\s*\n(.*)\n\s*```\s*", re.DOTALL)
