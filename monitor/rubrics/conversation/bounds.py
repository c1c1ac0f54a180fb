"""Which dimensions apply to a reply, and which scores go with what the judge observed of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from monitor.rubrics.answers import refuse
from monitor.rubrics.conversation.answer import ConversationAnswer
from monitor.rubrics.conversation.grade import ABSTENTION, BEST, DIMENSIONS, NOT_APPLICABLE, POOR, SOUND, Dimension
from monitor.rubrics.conversation.window import ConversationWindow

_Bound: TypeAlias = tuple[int, int, str]


def fits(place: int, given: ConversationAnswer, window: ConversationWindow) -> None:
    """Hold the score of a dimension to what was observed, and to whether it applies. Raises `InvalidVerdict`."""
    name, score, field = DIMENSIONS[place], given.dimensions[place].score, f"dimensions[{place}].score"
    if score != NOT_APPLICABLE and not 1 <= score <= BEST:
        refuse(field, score, "it must be 1 to 5, or -1 where the dimension doesn't apply")
    if name == ABSTENTION:
        if score != NOT_APPLICABLE:
            refuse(field, score, f"it must be -1, since {name} follows from evidence and stance")
        return
    applies, when = _applies(name, given, window)
    if applies and score == NOT_APPLICABLE:
        refuse(field, score, f"{name} must be 1 to 5, since {when}")
    if not applies and score != NOT_APPLICABLE:
        refuse(field, score, f"{name} must be -1, since it applies only where {when}")
    low, high, why = _BOUNDS[name](given, window)
    if applies and not low <= score <= high:
        rule = f"{name} must be {low}" if low == high else f"{name} must be {low} to {high}"
        refuse(field, score, f"{rule}, since {why}")


def _applies(name: Dimension, given: ConversationAnswer, window: ConversationWindow) -> tuple[bool, str]:
    if name == "turn_consistency":
        return window.settled, "something was said before the question"
    if name == "citation_accuracy":
        cites = bool(given.citations) or bool(given.invented_source_quote)
        needs = window.citation_required and bool(given.statements)
        return cites or needs, "the reply cites something, or has statements that need a citation"
    if name == "clarification_appropriateness":
        return given.question != "none", "the user asked something"
    return bool(given.statements), "the reply states something"


def _consistency(given: ConversationAnswer, _window: ConversationWindow) -> _Bound:
    if given.settled_turn_index == NOT_APPLICABLE:
        return SOUND, BEST, "no settled point is contradicted"
    return 1, SOUND - 1, f"a point of turn {given.settled_turn_index} is contradicted"


def _citing(given: ConversationAnswer, window: ConversationWindow) -> _Bound:
    verdicts = {cited.verdict for cited in given.citations}
    if given.invented_source_quote or "fabricated" in verdicts:
        return 1, POOR, "a source is made up"
    if any(statement.support in {"unsupported", "contradicted"} for statement in given.statements):
        return 1, SOUND - 1, "a claim isn't supported"
    if "wrong" in verdicts:
        return 1, SOUND - 1, "a citation is wrong"
    if window.citation_required and given.uncited():
        return 1, SOUND - 1, "a statement has no citation"
    return SOUND, BEST, "every citation is right"


def _clarifying(given: ConversationAnswer, _window: ConversationWindow) -> _Bound:
    if given.question == "ambiguous":
        if given.asks_back_quote:
            return 3, BEST, "the reply asks back about an ambiguous question"
        return 1, 3, "the reply doesn't ask back about an ambiguous question"
    if given.asks_back_quote:
        return 1, 3, "the reply asks back though the question was clear"
    return BEST, BEST, "the question was clear, and the reply doesn't ask back"


def _faithful(given: ConversationAnswer, _window: ConversationWindow) -> _Bound:
    supports = {statement.support for statement in given.statements}
    if "contradicted" in supports or supports == {"unsupported"}:
        return 1, POOR, "a statement is contradicted, or none is supported"
    if "unsupported" in supports:
        return 1, SOUND - 1, "a statement is unsupported"
    if "partly" in supports:
        return 1, SOUND, "a statement is supported only in part"
    return BEST, BEST, "every statement is supported"


_BOUNDS: Final[Mapping[Dimension, Callable[[ConversationAnswer, ConversationWindow], _Bound]]] = {
    "turn_consistency": _consistency,
    "citation_accuracy": _citing,
    "clarification_appropriateness": _clarifying,
    "evidence_faithfulness": _faithful,
}
