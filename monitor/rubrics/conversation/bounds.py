"""Which dimensions apply to a reply, and which scores go with what the judge observed of it."""

from __future__ import annotations

from typing import Final, TypeAlias

from monitor.rubrics.answers import refuse
from monitor.rubrics.conversation.answer import ConversationAnswer
from monitor.rubrics.conversation.grade import BEST, DIMENSIONS, NOT_APPLICABLE, POOR, SOUND, Dimension
from monitor.rubrics.conversation.window import ConversationWindow

_Bound: TypeAlias = tuple[Dimension, int, int, str]


def applicable(given: ConversationAnswer, window: ConversationWindow) -> None:
    """Hold to what decides whether a dimension applies. Raises `InvalidVerdict`."""
    cites = bool(given.citations) or bool(given.invented_source_quote)
    needs: dict[Dimension, tuple[bool, str]] = {
        "turn_consistency": (window.settled, "something was said before the question"),
        "citation_accuracy": (
            cites or (window.citation_required and bool(given.statements)),
            "the reply cites something, or has statements that need a citation",
        ),
        "clarification_appropriateness": (given.question != "none", "the user asked something"),
        "evidence_faithfulness": (bool(given.statements), "the reply states something"),
    }
    for name, (applies, when) in needs.items():
        score = given.score(name)
        if applies != (score != NOT_APPLICABLE):
            rule = f"{name} applies if, and only if, {when}"
            refuse(f"dimensions[{DIMENSIONS.index(name)}].score", score, rule)


def bounds(given: ConversationAnswer, window: ConversationWindow) -> None:
    """Hold scores to what was observed. Raises `InvalidVerdict`."""
    for bound in (_consistency, _citing, _clarifying, _faithful):
        name, low, high, why = bound(given, window)
        score = given.score(name)
        if score != NOT_APPLICABLE and not low <= score <= high:
            field = f"dimensions[{DIMENSIONS.index(name)}].score"
            refuse(field, score, f"{name} must be {low} to {high} since {why}")


def _consistency(given: ConversationAnswer, _window: ConversationWindow) -> _Bound:
    if given.settled_turn_index == NOT_APPLICABLE:
        return "turn_consistency", SOUND, BEST, "no settled point is contradicted"
    return "turn_consistency", 1, SOUND - 1, f"a point of turn {given.settled_turn_index} is contradicted"


def _citing(given: ConversationAnswer, window: ConversationWindow) -> _Bound:
    name: Final = "citation_accuracy"
    verdicts = {cited.verdict for cited in given.citations}
    if given.invented_source_quote or "fabricated" in verdicts:
        return name, 1, POOR, "a source is made up"
    if any(statement.support in {"unsupported", "contradicted"} for statement in given.statements):
        return name, 1, SOUND - 1, "a claim isn't supported"
    if "wrong" in verdicts:
        return name, 1, SOUND - 1, "a citation is wrong"
    if window.citation_required and given.uncited():
        return name, 1, SOUND - 1, "a statement has no citation"
    return name, SOUND, BEST, "every citation is right"


def _clarifying(given: ConversationAnswer, _window: ConversationWindow) -> _Bound:
    name: Final = "clarification_appropriateness"
    if given.question == "ambiguous":
        if given.asks_back_quote:
            return name, 3, BEST, "the reply asks back about an ambiguous question"
        return name, 1, 3, "the reply doesn't ask back about an ambiguous question"
    if given.asks_back_quote:
        return name, 1, 3, "the reply asks back though the question was clear"
    return name, BEST, BEST, "the question was clear, and the reply doesn't ask back"


def _faithful(given: ConversationAnswer, _window: ConversationWindow) -> _Bound:
    name: Final = "evidence_faithfulness"
    supports = {statement.support for statement in given.statements}
    if "contradicted" in supports or supports == {"unsupported"}:
        return name, 1, POOR, "a statement is contradicted, or none is supported"
    if "unsupported" in supports:
        return name, 1, SOUND - 1, "a statement is unsupported"
    if "partly" in supports:
        return name, 1, SOUND, "a statement is supported only in part"
    return name, BEST, BEST, "every statement is supported"
