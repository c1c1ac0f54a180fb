"""The report of either mode of the correction rubric: what became of each correction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from monitor.rubrics.correction.answer import CRITERIA
from monitor.session import Session
from monitor.web.report.base import (
    Part,
    PassedOver,
    Place,
    Quote,
    Report,
    Review,
    Tone,
    counted,
    listed,
    sampled,
    words,
    worst,
)

_MODES: Final[dict[str, tuple[str, Tone]]] = {
    "none": ("taken and kept", "good"),
    "reverted": ("taken, then the error came back", "bad"),
    "ignored": ("ignored", "bad"),
    "contradicted": ("contradicted", "bad"),
    "partial": ("taken in part", "warn"),
}
_NEVER_TAKEN: Final = frozenset({"ignored", "contradicted"})
# The field that names a turn, what the turn is to the correction, and how it looks.
_TURNS: Final[tuple[tuple[str, str, Tone], ...]] = (
    ("reversion_turn_index", "reversion", "bad"),
    ("over_correction_turn_index", "over-correction", "bad"),
    ("error_turn_index", "error", "warn"),
    ("correction_turn_index", "correction", "info"),
    ("first_right_use_turn_index", "first right use", "good"),
    ("superseded_by_turn_index", "superseded here", "plain"),
)


class Words(msgspec.Struct, kw_only=True, frozen=True):
    """Words of a turn, in the data."""

    turn_index: int
    quote: str


class Event(msgspec.Struct, kw_only=True, frozen=True):
    """One judged correction, in the data. `noticed` and `correction_quote` are of whole mode only."""

    correction_id: str = ""
    correction_turn_index: int | None = None
    error_turn_index: int | None = None
    first_right_use_turn_index: int | None = None
    reversion_turn_index: int | None = None
    over_correction_turn_index: int | None = None
    superseded_by_turn_index: int | None = None
    corrected_claim: str = ""
    correction_content: str = ""
    correction_type: str = ""
    scores: dict[str, float] = {}
    acknowledgment_quote: str | None = None
    incorporation_evidence: tuple[Words, ...] = ()
    over_correction_detail: str | None = None
    failure_mode: str = ""
    rationale: str = ""
    correction_response_score: float | None = None
    persistence_unobserved: bool = False
    noticed: bool | None = None
    correction_quote: str | None = None


class Skip(msgspec.Struct, kw_only=True, frozen=True):
    """A correction that wasn't judged, in the data."""

    correction_id: str = ""
    reason: str = ""
    note: str | None = None


class Sampling(msgspec.Struct, kw_only=True, frozen=True):
    """How many corrections there were, and how many were put to the judge."""

    events: int = 0
    sampled_events: int = 0


class Whole(msgspec.Struct, kw_only=True, frozen=True):
    """The session's aggregates, in the data."""

    correction_count: int = 0
    average_composite: float | None = None
    fully_incorporated: int = 0
    with_reversion: int = 0
    persistence_unobserved: int = 0
    worst_criterion: str | None = None
    overall_assessment: str = ""


class Data(msgspec.Struct, kw_only=True, frozen=True):
    """The verdict's data."""

    events: tuple[Event, ...] = ()
    skipped: tuple[Skip, ...] = ()
    sampling: Sampling = Sampling()
    session: Whole = Whole()
    review: Review = Review()


class Finding(msgspec.Struct, kw_only=True, frozen=True):
    """A correction for its card."""

    anchor: str
    label: str
    event: Event
    verdict: str
    tone: Tone
    criteria: tuple[tuple[str, float], ...]
    parts: tuple[Part, ...]


def report(raw: dict[str, Any], anchor: str, session: Session | None) -> Report:
    """Make the report. Raises `msgspec.ValidationError` on data of another form."""
    data = msgspec.convert(raw, Data)
    found = tuple(_finding(event, f"{anchor}-{place}") for place, event in enumerate(data.events))
    parts = tuple(part for finding in found for part in finding.parts)
    return Report(
        anchor=anchor,
        headline=_headline(data, found),
        tone=worst(finding.tone for finding in found) if found else "plain",
        template="correction.html",
        detail={"findings": found, "whole": data.session},
        assessment=data.session.overall_assessment if found else "",
        where=tuple(part for part in parts if part.tone == "bad")
        or tuple(part for part in parts if part.says == "correction"),
        parts=parts,
        quotes=tuple(quote for finding in found for quote in _quotes(finding, session)),
        doubts=tuple(_doubts(data)),
        passed_over=tuple(
            PassedOver(label=skip.correction_id, reason=skip.reason, note=skip.note) for skip in data.skipped
        ),
        review=data.review.reasons,
        awaiting_review=data.review.awaiting_review,
    )


def _finding(event: Event, anchor: str) -> Finding:
    verdict, tone = _MODES.get(event.failure_mode, (words(event.failure_mode) or "judged", "plain"))
    if event.over_correction_detail:
        verdict, tone = f"{verdict}; over-corrected", "bad"
    # Both modes number from C1, and both may mark one transcript.
    label = f"{event.correction_id} whole" if event.noticed is not None else event.correction_id
    return Finding(
        anchor=anchor,
        label=label,
        event=event,
        verdict=verdict,
        tone=tone,
        criteria=tuple((words(name), event.scores[name]) for name in CRITERIA if name in event.scores),
        parts=tuple(
            Part(anchor=anchor, label=label, turn=turn, says=says, tone=looks)
            for field, says, looks in _TURNS
            if (turn := getattr(event, field)) is not None
        ),
    )


def _quotes(finding: Finding, session: Session | None) -> Iterator[Quote]:
    event = finding.event
    told: dict[str, Any] = {"anchor": finding.anchor, "label": finding.label}
    yield from _values(finding)
    if event.correction_quote and event.correction_turn_index is not None:
        there = (Place(turn=event.correction_turn_index),)
        yield Quote(**told, words=event.correction_quote, shows="the correction", tone="info", places=there)
    if event.acknowledgment_quote:
        after = -1 if event.correction_turn_index is None else event.correction_turn_index
        turns = session.turns if session else ()
        places = tuple(Place(turn=turn.index) for turn in turns if turn.role == "assistant" and turn.index > after)
        yield Quote(**told, words=event.acknowledgment_quote, shows="acknowledgment", tone="info", places=places)
    known: dict[int | None, tuple[str, Tone]] = {
        event.first_right_use_turn_index: ("first right use", "good"),
        event.over_correction_turn_index: ("over-correction", "bad"),
        event.reversion_turn_index: ("reversion", "bad"),
    }
    other: tuple[str, Tone] = ("what became of it", "bad" if event.failure_mode in _NEVER_TAKEN else "info")
    for item in event.incorporation_evidence:
        shows, tone = known.get(item.turn_index, other)
        yield Quote(**told, words=item.quote, shows=shows, tone=tone, places=(Place(turn=item.turn_index),))


def _values(finding: Finding) -> Iterator[Quote]:
    """Give the old and the new value, as the judge puts them, where they may be seen: error and correction."""
    event = finding.event
    values: tuple[tuple[str, str, Tone, int | None], ...] = (
        (event.corrected_claim, "the old value", "warn", event.error_turn_index),
        (event.correction_content, "the new value", "info", event.correction_turn_index),
    )
    for value, shows, tone, turn in values:
        if value and turn is not None:
            places = (Place(turn=turn),)
            yield Quote(
                anchor=finding.anchor,
                label=finding.label,
                words=value,
                shows=shows,
                tone=tone,
                places=places,
                told=True,
            )


def _headline(data: Data, found: tuple[Finding, ...]) -> str:
    if not found:
        if not data.skipped:
            return "No correction in this session."
        return f"None of {counted(len(data.skipped), 'correction')} could be judged."
    verdicts = Counter(finding.verdict for finding in found)
    told = [f"{count} {verdict}" for verdict, count in sorted(verdicts.items())]
    if len(found) == 1:
        return f"The one correction judged was {found[0].verdict}."
    return f"Of {len(found)} corrections judged, {listed(told)}."


def _doubts(data: Data) -> Iterator[str]:
    yield from sampled(data.sampling.sampled_events, data.sampling.events, "corrections")
    if unseen := sum(event.persistence_unobserved for event in data.events):
        whose = "" if len(data.events) == 1 else f" of {counted(unseen, 'correction')}"
        yield f"persistence{whose} not seen to the end: too few replies followed"
    if data.skipped:
        yield f"{counted(len(data.skipped), 'correction')} not judged"
    missed = [event.correction_id for event in data.events if event.noticed is False]
    if missed:
        yield f"{listed(missed)} would have been missed by the wording rules of event mode"
