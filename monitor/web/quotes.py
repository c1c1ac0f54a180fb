"""Quotes found in a text and cut out of it, so that each can be marked. Pure.

A quote is found as it was checked (J2, `monitor.rubrics.answers.contains`): whatever the white space, typographic
quotes and invisible characters. What can't be found is not marked anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import msgspec

from monitor.rubrics.answers import plain


class Span(msgspec.Struct, kw_only=True, frozen=True):
    """The characters `start` to `end` (exclusive) of a text, and which mark they carry."""

    start: int
    end: int
    mark: int


class Piece(msgspec.Struct, kw_only=True, frozen=True):
    """A stretch of text under the same marks; those that begin and those that end with it are named again."""

    text: str
    marks: tuple[int, ...] = ()
    begins: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()


class Haystack:
    """A text in which quotes are looked for; read once, however many they are."""

    def __init__(self, text: str) -> None:
        self._plain, self._places = _normalized(text)

    def find(self, quote: str) -> tuple[int, int] | None:
        """Give start and end of a quote; of several places the first that begins and ends with a word."""
        wanted = plain(quote)
        if not wanted:
            return None
        first = start = self._plain.find(wanted)
        while start >= 0 and not self._whole(start, start + len(wanted)):
            start = self._plain.find(wanted, start + 1)
        start = first if start < 0 else start
        if start < 0:
            return None
        return self._places[start], self._places[start + len(wanted) - 1] + 1

    def _whole(self, start: int, end: int) -> bool:
        text = self._plain
        begins = start == 0 or not (text[start - 1].isalnum() and text[start].isalnum())
        return begins and (end == len(text) or not (text[end].isalnum() and text[end - 1].isalnum()))


def cut(text: str, spans: Sequence[Span]) -> tuple[Piece, ...]:
    """Cut a text wherever a span begins or ends. Together the pieces are the text; empty spans are left out."""
    marked = [span for span in spans if 0 <= span.start < span.end <= len(text)]
    bounds = sorted({0, len(text)} | {place for span in marked for place in (span.start, span.end)})
    if len(bounds) == 1:
        return (Piece(text=text),)
    return tuple(
        Piece(
            text=text[start:end],
            marks=tuple(span.mark for span in marked if span.start < end and span.end > start),
            begins=tuple(span.mark for span in marked if span.start == start),
            ends=tuple(span.mark for span in marked if span.end == end),
        )
        for start, end in pairwise(bounds)
    )


def _normalized(text: str) -> tuple[str, list[int]]:
    """Normalize a text as `plain` does, with the place in the text of each character that is left."""
    kept: list[str] = []
    places: list[int] = []
    gap = False
    for place, char in enumerate(text):
        if char.isspace():
            gap = bool(kept)
            continue
        # Every rule of `plain` but that of white space is about single characters.
        same = char if " " < char < "\x7f" else plain(char)
        if same:
            kept += [" ", same] if gap else [same]
            places += [place, place] if gap else [place]
            gap = False
    return "".join(kept), places
