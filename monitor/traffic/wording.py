"""How a written line becomes something said: pick among variants, type carelessly, fill in the values (pure)."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

Manner: TypeAlias = Literal["tidy", "lower", "typos"]

SLOT: Final = re.compile(r"\{([A-Za-z_]+)\}")
_VARIANTS = re.compile(r"\[([^\[\]]*)\]")
_SLIPS = 0.5
_LEFT_SPACE = re.compile(r" +(?=[ .,?!])")
_LONG_WORD = re.compile(r"[a-z]{5,}")


def slots_in(line: str) -> frozenset[str]:
    """Give the names of the slots of a line, in lower case."""
    return frozenset(name.lower() for name in SLOT.findall(line))


def vary(line: str, rng: random.Random) -> str:
    """Replace each `[a|b|]` by one of its alternatives, without the spaces that an empty one leaves."""
    chosen = _VARIANTS.sub(lambda match: rng.choice(match[1].split("|")), line)
    return _LEFT_SPACE.sub("", chosen).strip()


def fill(line: str, values: Mapping[str, str]) -> str:
    """Fill `{slot}` with its value, `{Slot}` with the value's first letter in upper case.

    Raises `KeyError` with the name of a slot that has no value.
    """

    def value(match: re.Match[str]) -> str:
        name = match[1]
        return values[name] if name in values else capitalized(values[name.lower()])

    return SLOT.sub(value, line)


def capitalized(text: str) -> str:
    """Give the text with its first letter in upper case and the rest as it is."""
    return text[:1].upper() + text[1:]


def mentions(text: str, value: str) -> bool:
    """Say whether a text names a value as a whole, whatever the case: `12 May` doesn't name `2 May`."""
    if value.lower() not in text.lower():  # the usual case, and far cheaper than a pattern
        return False
    return re.search(rf"(?<!\w){re.escape(value)}(?!\w)", text, re.IGNORECASE) is not None


def mistyped(line: str, rng: random.Random) -> str:
    """Swap two neighboring letters in one longer word. Slots stay whole, so that values stay right."""
    words = [match for match in _LONG_WORD.finditer(line) if not _inside_slot(line, match)]
    if not words:
        return line
    word = rng.choice(words)
    at = rng.randrange(word.start() + 1, word.end() - 1)
    return line[:at] + line[at + 1] + line[at] + line[at + 2 :]


def typed(line: str, values: Mapping[str, str], manner: Manner, rng: random.Random) -> str:
    """Give a line as a user with this manner of typing sends it."""
    line = vary(line, rng)
    if manner == "typos" and rng.random() < _SLIPS:
        line = mistyped(line, rng)
    text = fill(line, values)
    if manner == "lower":
        return text.lower() if text.endswith("..") else text.lower().removesuffix(".")
    return capitalized(text) if manner == "tidy" else text


def spoken(line: str, values: Mapping[str, str], rng: random.Random) -> str:
    """Give a line as an assistant says it: every sentence starts with a capital letter."""
    return re.sub(r"(?<=[.!?] )[a-z]", lambda match: match[0].upper(), capitalized(fill(vary(line, rng), values)))


def _inside_slot(line: str, word: re.Match[str]) -> bool:
    return any(slot.start() < word.start() < slot.end() for slot in SLOT.finditer(line))
