"""How well passages support a sentence, by its words: shares of content words, numbers, negation. Pure.

Words are compared by stems (their first letters), so that `refund` and `refunding` are one. Numbers are compared
exactly: a sentence that has every word of a passage and another number contradicts it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from monitor.rubrics.answers import plain


class Sentence(msgspec.Struct, kw_only=True, frozen=True):
    """A sentence as it stands in its text, its content words as stems, its numbers, and whether it denies."""

    text: str
    stems: frozenset[str]
    numbers: frozenset[str]
    denies: bool

    @property
    def size(self) -> int:
        """How many distinct content words and numbers it has."""
        return len(self.stems) + len(self.numbers)


class Source(msgspec.Struct, kw_only=True, frozen=True):
    """A passage under its label, read into sentences, and all that it says."""

    label: str
    sentences: tuple[Sentence, ...]
    stems: frozenset[str]
    numbers: frozenset[str]


class Support(msgspec.Struct, kw_only=True, frozen=True):
    """What sources say to a sentence.

    `share`: part of its words and numbers that the sources hold, 0 to 1. `label` and `quote` name the sentence
    of a source that holds most of them, which has the share `closest`; empty without sources. `foreign`: numbers
    that no source has. `contradicts`: that closest sentence says the same with another number, or denies it.
    """

    share: float
    closest: float
    label: str
    quote: str
    foreign: frozenset[str]
    contradicts: bool


def sentences(text: str) -> list[Sentence]:
    """Cut a text into sentences. The number of a list's next item ends none: it is left out."""
    found = [match[0] for match in _SENTENCE.finditer(text) if match[0].strip()]
    return [sentence(_NEXT_ITEM.sub("", part)) for part in found[:-1]] + [sentence(part) for part in found[-1:]]


def sentence(text: str) -> Sentence:
    """Read one sentence."""
    words = [word.lower() for word in _WORD.findall(text)]
    numbers = frozenset(_number(match[0]) for match in _NUMBER.finditer(_ENUMERATOR.sub(" ", text)))
    return Sentence(
        text=text.strip(),
        stems=frozenset(stem(word) for word in words if len(word) > _LETTERS and word not in _COMMON),
        numbers=numbers,
        denies=bool(_DENIES.search(text)),
    )


def source(label: str, text: str) -> Source:
    """Read one passage."""
    found = tuple(sentences(text))
    return Source(
        label=label,
        sentences=found,
        stems=frozenset(stem_ for item in found for stem_ in item.stems),
        numbers=frozenset(number for item in found for number in item.numbers),
    )


def support(said: Sentence, sources: Sequence[Source], also: Iterable[str] = ()) -> Support:
    """Compare a sentence with sources; what stands in `also` (what the user said) needs no support."""
    known = frozenset(also).union(*(each.stems | each.numbers for each in sources))
    foreign = said.numbers - known
    held = len(said.stems & known) + len(said.numbers & known)
    best = max(
        ((_shared(said, item), each.label, item) for each in sources for item in each.sentences),
        key=lambda found: found[0],
        default=None,
    )
    closest = best[0] / said.size if best and said.size else 0.0
    return Support(
        share=held / said.size if said.size else 1.0,
        closest=closest,
        label=best[1] if best else "",
        quote=plain(best[2].text)[:_QUOTED].strip() if best else "",
        foreign=foreign,
        contradicts=best is not None and _contradicts(said, best[2], foreign),
    )


def alike(one: Sentence, other: Sentence) -> float:
    """Give the part of the shorter sentence's words that the other has too, numbers left out.

    Of the shorter, since what is said again often gets a lead-in: "As mentioned earlier, ...".
    """
    size = min(len(one.stems), len(other.stems))
    return len(one.stems & other.stems) / size if size >= _FEW else 0.0


def stem(word: str) -> str:
    """Cut a word to what its forms share: long ones to six letters, short ones of their plural."""
    if len(word) > _STEM:
        return word[:_STEM]
    return word[:-1] if len(word) > _LETTERS + 1 and word.endswith("s") else word


def is_content(word: str) -> bool:
    """Say whether a word (in lower case) says something by itself: it is no short or common one."""
    return len(word) > _LETTERS and word not in _COMMON


def _shared(one: Sentence, other: Sentence) -> int:
    return len(one.stems & other.stems) + len(one.numbers & other.numbers)


def _contradicts(said: Sentence, found: Sentence, foreign: frozenset[str]) -> bool:
    if not said.stems:
        return False
    same = len(said.stems & found.stems) / len(said.stems)
    if foreign and found.numbers - said.numbers and same >= _SAME:
        return True
    back = len(said.stems & found.stems) / len(found.stems) if found.stems else 0.0
    return said.denies != found.denies and min(same, back) >= _VERY_SAME and len(said.stems) >= _ENOUGH


def _number(text: str) -> str:
    """Write a number in one way: `1,000.50` is `1000.5`."""
    bare = text.replace(",", "")
    return bare.rstrip("0").rstrip(".") if "." in bare else bare.lstrip("0") or "0"


_STEM: Final = 6
_LETTERS: Final = 2
_SAME: Final = 0.6
_VERY_SAME: Final = 0.9
_ENOUGH: Final = 4
_FEW: Final = 3
_QUOTED: Final = 300
# A full stop inside of a number, an abbreviation of one letter or an address ends no sentence.
_SENTENCE: Final = re.compile(r"(?:[^.!?\n]|\.(?=\w)|(?<=\b[A-Z])\.)+[.!?]*")
_WORD: Final = re.compile(r"[^\W\d_]+")
_NUMBER: Final = re.compile(r"\d+(?:[.,]\d+)*")
_ENUMERATOR: Final = re.compile(r"^\s*\(?\d{1,2}[.)](?=\s)|\[\d+\]")
_NEXT_ITEM: Final = re.compile(r"(?<=\s)\d{1,2}\.\s*$")
_DENIES: Final = re.compile(r"\b(?:not|no|never|none|cannot|without|nor|neither)\b|n['\u2019]t\b", re.IGNORECASE)
_COMMON: Final = frozenset(
    word
    for line in (
        "the and for are was were been being its this that these those with from you your our they their she his",
        "her him them not can will may might would could should have has had did does when which who whom what",
        "where how why there than then such also more most some any all each other into about over under out just",
        "only very one two please let know help need here sure yes but however while both many much like well",
    )
    for word in line.split()
)
