"""Citations: which marks in a reply refer to a source, and to which passage. Pure.

    number   [2] or 【2】: the second passage of the reply's own evidence; [1, 3] are two citations
    id       [kb-17]: a passage by its id
    url      https://...: a passage that has this address as its id or in its text

What refers to nothing that was retrieved leads to no passage: that source was made up.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from monitor.rubrics.answers import plain
from monitor.rubrics.passages import LabelledPassage

CitationForm: TypeAlias = Literal["number", "id", "url"]


class Citation(msgspec.Struct, kw_only=True, frozen=True):
    """A citation: its text, where it begins in the plain reply, and the label of its passage, "" for none."""

    citation_id: str
    text: str
    start: int
    passage_id: str


def citations(
    text: str, turn: int, passages: Sequence[LabelledPassage], forms: Sequence[CitationForm]
) -> tuple[Citation, ...]:
    """Find the citations of the reply in a turn, in their order; `passages` are its own and older ones."""
    marks = [
        (match.start(), place, mark, label)
        for form in forms
        for match in _MARKS[form].finditer(plain(text))
        for place, (mark, label) in enumerate(_resolved(form, match, turn, passages))
    ]
    return tuple(
        Citation(citation_id=f"K{number}", text=mark, start=start, passage_id=label)
        for number, (start, _, mark, label) in enumerate(sorted(marks), 1)
    )


def _resolved(
    form: CitationForm, match: re.Match[str], turn: int, passages: Sequence[LabelledPassage]
) -> Iterator[tuple[str, str]]:
    if form == "number":
        own = [passage.label for passage in passages if passage.turn == turn]
        for number in re.findall(r"\d+", match[1]):
            place = int(number)
            yield match[0], own[place - 1] if 1 <= place <= len(own) else ""
    elif form == "id":
        yield match[0], _label(passages, turn, lambda passage: passage.passage_id == match[1])
    else:
        url = match[0].rstrip(".,;:!?'\"*")
        yield url, _label(passages, turn, lambda passage: url == passage.passage_id or url in passage.text)


def _label(passages: Sequence[LabelledPassage], turn: int, fits: Callable[[LabelledPassage], bool]) -> str:
    """Give the label of a passage that fits, the turn's own first."""
    own_first = sorted(passages, key=lambda passage: passage.turn != turn)
    return next((passage.label for passage in own_first if fits(passage)), "")


# An id holds a digit and a hyphen, a dot, an underscore or a letter: "[2]" is a number, "[sic]" and a link no id.
_MARKS: Final[dict[CitationForm, re.Pattern[str]]] = {
    "number": re.compile(r"[\[\u3010](\d{1,2}(?:\s*[,;]\s*\d{1,2})*)[\]\u3011](?!\()"),
    "id": re.compile(r"\[((?=[^\]\s]*\d)(?=[^\]\s]*[A-Za-z_-])[\w.:#/-]{2,80})\](?!\()"),
    "url": re.compile(r"https?://[^\s<>()\[\]\"`]+"),
}
