"""Golden set of the conversation rubric: the dimensions of each answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

import msgspec

from monitor.golden.point import Point, paired
from monitor.golden.scale import Expected, Scale, turn_fault
from monitor.rubrics.conversation.grade import ABSTENTION, DIMENSIONS, SOUND
from monitor.rubrics.correction.answer import Score
from monitor.session import Session

_SCORED: Final = tuple(name for name in DIMENSIONS if name != ABSTENTION)


class Answer(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """An answer in the assistant turn `turn`; None where a dimension doesn't apply."""

    turn: int
    turn_consistency: Score | None
    citation_accuracy: Score | None
    clarification_appropriateness: Score | None
    evidence_faithfulness: Score | None
    abstention_correctness: Literal["pass", "fail", "not_applicable"]
    passes: bool = msgspec.field(name="pass")


class ExpectedAnswers(Expected, kw_only=True, frozen=True, forbid_unknown_fields=True, tag="verdict"):
    """The answers, in the order of their turns."""

    units: tuple[Answer, ...]


def _faults(expected: ExpectedAnswers, session: Session) -> Iterator[tuple[str, str]]:
    for place, unit in enumerate(expected.units):
        if fault := turn_fault(session, unit.turn, "assistant"):
            yield f"units[{place}].turn", fault
        if unit.passes != _sound(unit):
            yield f"units[{place}].pass", f"is {str(unit.passes).lower()}, but its dimensions say otherwise"


def _sound(unit: Answer) -> bool:
    scores = [getattr(unit, name) for name in _SCORED]
    return unit.abstention_correctness != "fail" and all(score is None or score >= SOUND for score in scores)


def _passes(expected: ExpectedAnswers) -> bool:
    return all(unit.passes for unit in expected.units)


def _said_passes(data: Mapping[str, Any]) -> bool:
    return all(answer["overall_pass"] for answer in data["answers"])


def _points(expected: ExpectedAnswers, data: Mapping[str, Any], _session: Session) -> Iterator[Point]:
    pairs = paired(expected.units, data["answers"], lambda unit: unit.turn, lambda said: said["turn_index"])
    for unit, said in pairs:
        place = f"turn {unit.turn if unit else said['turn_index']}"
        yield Point(field="answer", place=place, expected=unit is not None, said=said is not None)
        if unit is None or said is None:
            continue
        yield Point(field="answer_passes", place=place, expected=unit.passes, said=said["overall_pass"])
        dimensions = said["dimensions"]
        for name in _SCORED:
            score = dimensions[name]["score"]
            yield Point(field=name, place=place, expected=getattr(unit, name), said=score, graded=True)
        result = dimensions[ABSTENTION]["result"]
        yield Point(field=ABSTENTION, place=place, expected=unit.abstention_correctness, said=result)


CONVERSATION: Final = Scale(
    expected=ExpectedAnswers, faults=_faults, passes=_passes, said_passes=_said_passes, points=_points
)
