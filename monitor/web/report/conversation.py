"""The report of the conversation rubric: each judged answer by dimension, and what it rests on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from monitor.rubrics.conversation.grade import ABSTENTION, DIMENSIONS
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
    passages,
    sampled,
    words,
    worst,
)

_OUTCOMES: Final[dict[str, tuple[str, Tone]]] = {
    "fabricated_citation": ("fabricated citation", "bad"),
    "unfounded_answer": ("answered without sufficient evidence", "bad"),
    "needless_abstention": ("abstained though the answer was there", "bad"),
    "stale_evidence": ("rests on an older turn's evidence", "warn"),
}
_SUPPORTS: Final[dict[str, Tone]] = {
    "supported": "good",
    "partly": "warn",
    "unsupported": "bad",
    "contradicted": "bad",
}
_RESULTS: Final[dict[str, Tone]] = {"pass": "good", "fail": "bad"}


class Statement(msgspec.Struct, kw_only=True, frozen=True):
    """A statement of an answer, in the data."""

    statement_id: str = ""
    quote: str = ""
    support: str = ""
    passage_turn_index: int | None = None
    passage_id: str | None = None
    source_quote: str | None = None
    unsupported_parts: tuple[str, ...] = ()
    stale: bool = False


class Cited(msgspec.Struct, kw_only=True, frozen=True):
    """A citation of an answer, in the data."""

    text: str = ""
    statement_id: str | None = None
    verdict: str = ""


class Dimension(msgspec.Struct, kw_only=True, frozen=True):
    """A dimension of an answer, in the data."""

    score: int | None = None
    result: str = "not_applicable"
    quote: str | None = None
    rationale: str = ""


class Answer(msgspec.Struct, kw_only=True, frozen=True):
    """A judged answer, in the data."""

    turn_index: int
    question: str = ""
    asks_back_quote: str | None = None
    statements: tuple[Statement, ...] = ()
    citations: tuple[Cited, ...] = ()
    invented_source_quote: str | None = None
    settled_turn_index: int | None = None
    settled_quote: str | None = None
    evidence: str = ""
    stance: str = ""
    stance_quote: str | None = None
    dimensions: dict[str, Dimension] = {}
    overall_pass: bool = True
    overall_score: float | None = None
    fabricated_citation: bool = False
    stale_evidence: bool = False
    unfounded_answer: bool = False
    needless_abstention: bool = False
    rationale: str = ""


class Skip(msgspec.Struct, kw_only=True, frozen=True):
    """An answer that wasn't judged, in the data."""

    turn_index: int | None = None
    reason: str = ""
    note: str | None = None


class Sampling(msgspec.Struct, kw_only=True, frozen=True):
    """How many answers there were, and how many were put to the judge."""

    answers: int = 0
    sampled_answers: int = 0


class Whole(msgspec.Struct, kw_only=True, frozen=True):
    """The session's aggregates, in the data."""

    judged_answers: int = 0
    failed_answers: int = 0
    average_overall_score: float | None = None
    worst_dimension: str | None = None
    turns_without_evidence: int = 0
    length_band: str = ""


class Data(msgspec.Struct, kw_only=True, frozen=True):
    """The verdict's data."""

    answers: tuple[Answer, ...] = ()
    skipped: tuple[Skip, ...] = ()
    sampling: Sampling = Sampling()
    session: Whole = Whole()
    review: Review = Review()


class Graded(msgspec.Struct, kw_only=True, frozen=True):
    """One cell of the table: how an answer does in a dimension; `score` is None for pass or fail only."""

    name: str
    score: int | None
    result: str
    tone: Tone
    quote: str | None
    rationale: str


class Finding(msgspec.Struct, kw_only=True, frozen=True):
    """An answer for its card: `outcomes` are those with a name of their own."""

    anchor: str
    label: str
    answer: Answer
    tone: Tone
    dimensions: tuple[Graded, ...]
    outcomes: tuple[tuple[str, Tone], ...]
    statements: tuple[tuple[str, Statement, Tone], ...]


def report(raw: dict[str, Any], anchor: str, session: Session | None) -> Report:
    """Make the report. Raises `msgspec.ValidationError` on data of another form."""
    data = msgspec.convert(raw, Data)
    found = tuple(_finding(answer, f"{anchor}-{place}") for place, answer in enumerate(data.answers))
    failed = tuple(finding for finding in found if not finding.answer.overall_pass)
    return Report(
        anchor=anchor,
        headline=_headline(found, failed),
        tone=worst(finding.tone for finding in found) if found else "plain",
        template="conversation.html",
        detail={"findings": found, "whole": data.session, "names": DIMENSIONS},
        where=tuple(_answer_part(finding) for finding in failed),
        parts=tuple(part for finding in found for part in _parts(finding)),
        quotes=tuple(quote for finding in found for quote in _quotes(finding, session)),
        doubts=tuple(_doubts(data)),
        passed_over=tuple(
            PassedOver(label="answer", turn=skip.turn_index, reason=skip.reason, note=skip.note)
            for skip in data.skipped
        ),
        review=data.review.reasons,
        awaiting_review=data.review.awaiting_review,
    )


def _finding(answer: Answer, anchor: str) -> Finding:
    graded = tuple(_graded(name, answer.dimensions.get(name, Dimension())) for name in DIMENSIONS)
    outcomes = tuple(shown for name, shown in _OUTCOMES.items() if getattr(answer, name))
    return Finding(
        anchor=anchor,
        label=f"A{answer.turn_index}",
        answer=answer,
        tone=worst(["good" if answer.overall_pass else "bad", *(tone for _, tone in outcomes)]),
        dimensions=graded,
        outcomes=outcomes,
        statements=tuple(
            (f"{anchor}-s{place}", statement, _SUPPORTS.get(statement.support, "plain"))
            for place, statement in enumerate(answer.statements)
        ),
    )


def _graded(name: str, dimension: Dimension) -> Graded:
    return Graded(
        name=words(name),
        score=None if name == ABSTENTION else dimension.score,
        result=dimension.result,
        tone=_RESULTS.get(dimension.result, "plain"),
        quote=dimension.quote,
        rationale=dimension.rationale,
    )


def _answer_part(finding: Finding) -> Part:
    named = listed([name for name, _ in finding.outcomes])
    plain = "fails" if not finding.answer.overall_pass else "passes"
    return Part(
        anchor=finding.anchor,
        label=finding.label,
        turn=finding.answer.turn_index,
        says=named or plain,
        tone=finding.tone,
    )


def _parts(finding: Finding) -> Iterator[Part]:
    yield _answer_part(finding)
    if (turn := finding.answer.settled_turn_index) is not None:
        yield Part(
            anchor=finding.anchor, label=finding.label, turn=turn, says="contradicted later by", tone="warn"
        )


def _quotes(finding: Finding, session: Session | None) -> Iterator[Quote]:
    answer, here = finding.answer, (Place(turn=finding.answer.turn_index),)
    for anchor, statement, tone in finding.statements:
        told: dict[str, Any] = {"anchor": anchor, "label": statement.statement_id, "tone": tone}
        yield Quote(**told, words=statement.quote, shows=statement.support, places=here)
        if statement.source_quote:
            places = passages(session, statement.passage_turn_index, statement.passage_id)
            shows = "what contradicts it" if statement.support == "contradicted" else "what it rests on"
            yield Quote(**told, words=statement.source_quote, shows=shows, places=places)
    own: dict[str, Any] = {"anchor": finding.anchor, "label": finding.label}
    for cited in answer.citations:
        if cited.verdict != "right":
            yield Quote(**own, words=cited.text, shows=f"{cited.verdict} citation", tone="bad", places=here)
    if answer.invented_source_quote:
        words_ = answer.invented_source_quote
        yield Quote(**own, words=words_, shows="made-up source", tone="bad", places=here)
    if answer.settled_quote and answer.settled_turn_index is not None:
        there = (Place(turn=answer.settled_turn_index),)
        yield Quote(**own, words=answer.settled_quote, shows="settled point", tone="warn", places=there)
    for graded in finding.dimensions:
        if graded.quote and graded.result == "fail":
            yield Quote(**own, words=graded.quote, shows=f"{graded.name} fails", tone="bad", places=here)


def _headline(found: tuple[Finding, ...], failed: tuple[Finding, ...]) -> str:
    if not failed:
        subject = "The one answer judged passes" if len(found) == 1 else f"All {len(found)} answers judged pass"
        return f"{subject} in every dimension that applies."
    subject = (
        "The one answer judged fails" if len(found) == 1 else f"{len(failed)} of {len(found)} answers judged fail"
    )
    names = [
        words(name)
        for place, name in enumerate(DIMENSIONS)
        if any(finding.dimensions[place].result == "fail" for finding in failed)
    ]
    return f"{subject} in {listed(names)}."


def _doubts(data: Data) -> Iterator[str]:
    yield from sampled(data.sampling.sampled_answers, data.sampling.answers, "answers")
    if data.skipped:
        yield f"{counted(len(data.skipped), 'reply', 'replies')} not judged"
