"""Which runs of words in a statement no passage has. Pure.

A content word or a number is held when a passage has its stem. A function word is held when a passage has it
beside the same neighbor: words as "of" and "the" stand in any passage, so alone they say nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final

import msgspec

from monitor.judging.lexical.support import is_content, stem


class Wording(msgspec.Struct, kw_only=True, frozen=True):
    """The stems of texts, and which two stand side by side in one of them."""

    stems: frozenset[str]
    pairs: frozenset[tuple[str, str]]


def wording(texts: Iterable[str]) -> Wording:
    """Read texts."""
    stems: set[str] = set()
    pairs: set[tuple[str, str]] = set()
    for text in texts:
        found = [stem(word) for word in _WORD.findall(text.lower())]
        stems.update(found)
        pairs.update(pairwise(found))
    return Wording(stems=frozenset(stems), pairs=frozenset(pairs))


def words(text: str) -> int:
    """Count the words of a text, numbers included."""
    return len(_WORD.findall(text))


def foreign(text: str, known: Wording) -> list[str]:
    """Give the runs of words of a text that `known` doesn't hold, as they stand in it."""
    found = list(_WORD.finditer(text))
    runs: list[list[re.Match[str]]] = []
    for place, held in enumerate(_held([match[0].lower() for match in found], known)):
        if held:
            continue
        if runs and runs[-1][-1] is found[place - 1]:
            runs[-1].append(found[place])
        else:
            runs.append([found[place]])
    return [text[run[0].start() : run[-1].end()] for run in runs]


def _held(said: list[str], known: Wording) -> Iterator[bool]:
    stems = [stem(word) for word in said]
    for place, (word, own) in enumerate(zip(said, stems, strict=True)):
        if is_content(word):
            yield own in known.stems
            continue
        before = place > 0 and (stems[place - 1], own) in known.pairs
        yield before or (place + 1 < len(stems) and (own, stems[place + 1]) in known.pairs)


_WORD: Final = re.compile(r"\w+")
