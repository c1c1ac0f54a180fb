"""The judge's answer on one reply in a conversation: its shape.

Flat lists, every field required, what is quoted before what is concluded. Sentinels stand for none: "" for a text
or a label, -1 for a turn or for the score of a dimension that doesn't apply. `checks` holds it to the transcript.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from monitor.rubrics.answers import object_schema, one_of
from monitor.rubrics.conversation.grade import (
    CITATION_VERDICTS,
    DIMENSIONS,
    QUESTIONS,
    STANCES,
    SUFFICIENCIES,
    SUPPORTS,
    TASKS,
    CitationVerdict,
    Dimension,
    Question,
    Stance,
    Sufficiency,
    Support,
    Task,
)


class Statement(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A factual statement of the reply, and how far the passages carry it."""

    statement_id: str
    quote: str
    passage_id: str
    source_quote: str
    unsupported_parts: list[str]
    support: Support


class Cited(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A citation of the reply: which statement it stands for, and whether rightly."""

    citation_id: str
    statement_id: str
    verdict: CitationVerdict


class Graded(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A dimension: words of the reply that show it, why, and a score of 1 to 5."""

    dimension: Dimension
    quote: str
    rationale: str
    score: int


class ConversationAnswer(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """What the judge writes, in this order."""

    turn_index: int
    task: Task
    question_quote: str
    question: Question
    asks_back_quote: str
    statements: list[Statement]
    citations: list[Cited]
    invented_source_quote: str
    settled_turn_index: int
    settled_quote: str
    evidence: Sufficiency
    stance_quote: str
    stance: Stance
    dimensions: list[Graded]
    rationale: Annotated[str, msgspec.Meta(max_length=600)]

    def score(self, dimension: str) -> int:
        """Give the score of a dimension."""
        return next(graded.score for graded in self.dimensions if graded.dimension == dimension)

    def uncited(self) -> list[str]:
        """Give the statements that no citation stands for."""
        cited = {item.statement_id for item in self.citations}
        return [item.statement_id for item in self.statements if item.statement_id not in cited]


def schema() -> dict[str, Any]:
    """Give the JSON Schema of the answer: no references, no unions, no bounds that a grammar can't keep."""
    special: dict[str, dict[str, Any]] = {
        "turn_index": {"type": "integer"},
        "settled_turn_index": {"type": "integer"},
        "score": {"type": "integer"},
        "unsupported_parts": {"type": "array", "items": {"type": "string"}},
        "task": one_of(TASKS),
        "question": one_of(QUESTIONS),
        "support": one_of(SUPPORTS),
        "verdict": one_of(CITATION_VERDICTS),
        "evidence": one_of(SUFFICIENCIES),
        "stance": one_of(STANCES),
        "dimension": one_of(DIMENSIONS),
    }
    for name, item in (("statements", Statement), ("citations", Cited), ("dimensions", Graded)):
        special[name] = {"type": "array", "items": _object(item, special)}
    return _object(ConversationAnswer, special)


def _object(kind: type[msgspec.Struct], special: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return object_schema({name: special.get(name, {"type": "string"}) for name in kind.__struct_fields__})
