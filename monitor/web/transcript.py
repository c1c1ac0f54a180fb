"""A session as its page shows it: turns with what the findings say of them, long stretches folded. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from monitor.session import Session, SessionTurn
from monitor.web.quotes import Haystack, Piece, Span, cut
from monitor.web.report import Part, Place, Quote, Report, Tone
from monitor.web.report.base import worst

UNFOLDED: Final = 40
"""A session of so many turns is shown whole."""
_NEAR: Final = 2
_SHORTEST_FOLD: Final = 6
_NOTABLE: Final = frozenset({"bad", "warn", "info"})


class Mark(msgspec.Struct, kw_only=True, frozen=True):
    """Marked words: `anchor` is their own, `finding` the one that they belong to, `shows` what they show."""

    anchor: str
    finding: str
    label: str
    shows: str
    tone: Tone


class MarkedText(msgspec.Struct, kw_only=True, frozen=True):
    """A text in pieces; a piece names its marks by their place in `marks`."""

    pieces: tuple[Piece, ...]
    marks: tuple[Mark, ...]

    def of(self, places: Iterable[int]) -> tuple[Mark, ...]:
        """Give some of the marks."""
        return tuple(self.marks[place] for place in places)

    def tone(self, piece: Piece) -> Tone:
        """Give the worst tone of a piece's marks."""
        return worst(mark.tone for mark in self.of(piece.marks))


class TurnView(msgspec.Struct, kw_only=True, frozen=True):
    """A turn with its parts in findings, its marked words, and findings that are shown beside it."""

    turn: SessionTurn
    parts: tuple[Part, ...]
    text: MarkedText
    passages: tuple[MarkedText, ...]
    beside: tuple[Any, ...]

    @property
    def tone(self) -> Tone:
        """Give the tone that colors the turn's edge."""
        return worst(part.tone for part in self.parts)

    @property
    def notable(self) -> bool:
        """Whether the turn has to be seen: something is said of it that isn't merely fine."""
        tones = {part.tone for part in self.parts}
        return bool(_NOTABLE & (tones | {mark.tone for mark in (*self.text.marks, *self.marked_passages)}))

    @property
    def marked_passages(self) -> tuple[Mark, ...]:
        """Give the marks in the turn's evidence."""
        return tuple(mark for passage in self.passages for mark in passage.marks)


class Fold(msgspec.Struct, kw_only=True, frozen=True):
    """Turns that are folded away."""

    turns: tuple[TurnView, ...]


class Located(msgspec.Struct, kw_only=True, frozen=True):
    """A quote and where it was found; without a place it is nowhere in the text that is stored."""

    quote: Quote
    place: Place | None = None
    mark: str | None = None


Marking: TypeAlias = dict[Place, list[tuple[Span, Mark]]]


class Transcript(msgspec.Struct, kw_only=True, frozen=True):
    """The turns, and every quote under the anchor of its finding."""

    items: tuple[TurnView | Fold, ...]
    quotes: Mapping[str, tuple[Located, ...]]


def transcript(session: Session, reports: Sequence[Report]) -> Transcript:
    """Give the turns of a session, marked with what reports say of them."""
    marking, quotes = _located(session, [quote for report in reports for quote in report.quotes])
    parts: dict[int, list[Part]] = defaultdict(list)
    beside: dict[int, list[Any]] = defaultdict(list)
    for report in reports:
        for part in report.parts:
            parts[part.turn].append(part)
        for turn, finding in report.beside:
            beside[turn].append(finding)
    turns = [
        TurnView(
            turn=turn,
            parts=tuple(parts[turn.index]),
            text=_marked(turn.text, marking.get(Place(turn=turn.index), ())),
            passages=tuple(
                _marked(passage.text, marking.get(Place(turn=turn.index, passage=place), ()))
                for place, passage in enumerate(turn.evidence or ())
            ),
            beside=tuple(beside[turn.index]),
        )
        for turn in session.turns
    ]
    return Transcript(items=folded(turns), quotes=quotes)


def folded(turns: Sequence[TurnView]) -> tuple[TurnView | Fold, ...]:
    """Fold long stretches of which nothing is said, in a long session; its ends and what is near stay."""
    if len(turns) <= UNFOLDED:
        return tuple(turns)
    notable = {place for place, turn in enumerate(turns) if turn.notable} | {0, len(turns) - 1}
    near = {place + step for place in notable for step in range(-_NEAR, _NEAR + 1)}
    items: list[TurnView | Fold] = []
    run: list[TurnView] = []
    for place, turn in enumerate(turns):
        if place not in near:
            run.append(turn)
            continue
        items += [*_fold(run), turn]
        run = []
    return (*items, *_fold(run))


def _fold(run: Sequence[TurnView]) -> Sequence[TurnView | Fold]:
    return (Fold(turns=tuple(run)),) if len(run) >= _SHORTEST_FOLD else run


def _located(session: Session, quotes: Sequence[Quote]) -> tuple[Marking, dict[str, tuple[Located, ...]]]:
    read: dict[Place, Haystack | None] = {}
    marking: Marking = defaultdict(list)
    found: dict[str, list[Located]] = defaultdict(list)
    for number, quote in enumerate(quotes):
        located = Located(quote=quote)
        for place in quote.places:
            if place not in read:
                text = _text(session, place)
                read[place] = None if text is None else Haystack(text)
            haystack = read[place]
            if haystack is not None and (where := haystack.find(quote.words)) is not None:
                mark = _marked_as(quote, f"q{number}", where, marking[place])
                located = Located(quote=quote, place=place, mark=mark)
                break
        if located.mark or not quote.told:
            found[quote.anchor].append(located)
    return marking, {anchor: tuple(items) for anchor, items in found.items()}


def _marked_as(quote: Quote, anchor: str, where: tuple[int, int], found: list[tuple[Span, Mark]]) -> str:
    """Mark words and give the anchor of their mark: one mark where a finding quotes the same words twice."""
    for number, (span, mark) in enumerate(found):
        if (span.start, span.end) == where and mark.finding == quote.anchor:
            both = mark.shows if quote.shows in mark.shows else f"{mark.shows}, {quote.shows}"
            tone = worst((mark.tone, quote.tone))
            found[number] = (span, msgspec.structs.replace(mark, shows=both, tone=tone))
            return mark.anchor
    mark = Mark(anchor=anchor, finding=quote.anchor, label=quote.label, shows=quote.shows, tone=quote.tone)
    found.append((Span(start=where[0], end=where[1], mark=len(found)), mark))
    return anchor


def _text(session: Session, place: Place) -> str | None:
    if not 0 <= place.turn < len(session.turns):
        return None
    turn = session.turns[place.turn]
    if place.passage is None:
        return turn.text
    passages = turn.evidence or ()
    return passages[place.passage].text if 0 <= place.passage < len(passages) else None


def _marked(text: str, found: Sequence[tuple[Span, Mark]]) -> MarkedText:
    return MarkedText(pieces=cut(text, [span for span, _ in found]), marks=tuple(mark for _, mark in found))
