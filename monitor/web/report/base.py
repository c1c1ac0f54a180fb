"""What every rubric's verdict becomes on the page of its session: a report. Pure.

A report says what happened, where, and how sure that is; the rest is the rubric's own. Anchors are made of places
in lists and never of what a judge or a producer wrote.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec

from monitor.session import Session

Tone: TypeAlias = Literal["bad", "warn", "good", "info", "plain"]
TONES: Final[tuple[Tone, ...]] = ("bad", "warn", "good", "info", "plain")
"""From the worst to the mildest: what stands for several takes the first of theirs."""
SYMBOLS: Final[dict[Tone, str]] = {"bad": "✗", "warn": "!", "good": "✓", "info": "→", "plain": "·"}
"""A tone is never shown by its color alone."""


class Place(msgspec.Struct, kw_only=True, frozen=True):
    """Where words may stand: in a turn, or in one of the passages of its evidence (counted from 0)."""

    turn: int
    passage: int | None = None


class Quote(msgspec.Struct, kw_only=True, frozen=True):
    """Words that a finding rests on. They are marked in the first of `places` that has them.

    `anchor` is the finding's, `label` names it in a few characters, `shows` says what the words show. `told`: the
    judge's own words, which may happen to stand there; where they don't, nothing is amiss.
    """

    anchor: str
    label: str
    words: str
    shows: str
    tone: Tone
    places: tuple[Place, ...]
    told: bool = False


class Part(msgspec.Struct, kw_only=True, frozen=True):
    """What a turn is to a finding, such as its error or its reversion."""

    anchor: str
    label: str
    turn: int
    says: str
    tone: Tone


class PassedOver(msgspec.Struct, kw_only=True, frozen=True):
    """A unit that wasn't judged, and why."""

    label: str
    reason: str
    note: str | None = None
    turn: int | None = None


class Report(msgspec.Struct, kw_only=True, frozen=True):
    """A judgement for people.

    `template` shows `detail`, which is the rubric's own; without a template the verdict is shown as data.
    `where` are the turns to look at first, `parts` all that matter, `beside` findings that belong next to a turn.
    `doubts` are what the verdict can't say.
    """

    anchor: str
    headline: str
    tone: Tone
    template: str | None = None
    detail: Any = None
    assessment: str = ""
    where: tuple[Part, ...] = ()
    parts: tuple[Part, ...] = ()
    beside: tuple[tuple[int, Any], ...] = ()
    quotes: tuple[Quote, ...] = ()
    doubts: tuple[str, ...] = ()
    passed_over: tuple[PassedOver, ...] = ()
    review: tuple[str, ...] = ()
    awaiting_review: bool = False


class Review(msgspec.Struct, kw_only=True, frozen=True):
    """The `review` of every rubric's data."""

    reasons: tuple[str, ...] = ()
    awaiting_review: bool = False


def worst(tones: Iterable[Tone]) -> Tone:
    """Give the worst of some tones; without any, plain."""
    return min(tones, key=TONES.index, default="plain")


def words(name: str) -> str:
    """Show a name from a closed set, such as `not_applicable`."""
    return name.replace("_", " ")


def counted(number: int, one: str, many: str | None = None) -> str:
    """Say how many there are, as in `1 claim` and `3 claims`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def sampled(judged: int, found: int, what: str) -> tuple[str, ...]:
    """Say that a second stage judged a sample only; nothing when it judged all."""
    if judged >= found:
        return ()
    return (f"{judged:,} of {found:,} {what} judged, drawn at random; those judged stand for the others",)


def listed(items: Sequence[str]) -> str:
    """Join words as a sentence does: `a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(items[:-1]), items[-1]]) if len(items) > 1 else "".join(items)


def passages(session: Session | None, turn: int | None, passage_id: str | None) -> tuple[Place, ...]:
    """Give the places of the passages of a turn that have an id: a producer's ids need not be unique."""
    if session is None or turn is None or not 0 <= turn < len(session.turns):
        return ()
    found = enumerate(session.turns[turn].evidence or ())
    return tuple(Place(turn=turn, passage=place) for place, passage in found if passage.id == passage_id)
