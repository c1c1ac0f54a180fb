"""A session with answers from passages, and what a judge may say of them."""

from __future__ import annotations

import json
from typing import Any

from monitor.events import Passage
from monitor.judgement import Skipped, Verdict
from monitor.rubrics.base import WindowResult
from monitor.rubrics.conversation import ConversationRubric, ConversationWindow
from monitor.rubrics.conversation.grade import DIMENSIONS
from monitor.session import Session
from tests.unit.rubrics.build import Said, chat

RUBRIC = ConversationRubric()

# Turn 1 answers from one passage; turn 3 from its own, with a number that only turn 1's passage has.
PIER: tuple[Said, ...] = (
    ("u", "What does the pier ticket cost?"),
    ("a", "The pier ticket costs 6 euros [1]."),
    ("u", "When does the last boat leave?"),
    ("a", "The last boat leaves at 21:40 [1]. The pier ticket costs 6 euros."),
)
BOAT = "The last boat leaves at 21:40"
TICKET = Passage(id="fares-1", text="Pier ticket: 6 euros, children travel free.")
BOATS = Passage(id="boats-7", text="The last boat leaves at 21:40 from April to October.")
EVIDENCE = {1: (TICKET,), 3: (BOATS,)}


def pier(**more: Any) -> Session:
    """Give the session about the pier; `evidence` and what `chat` takes replace its own."""
    return chat(*PIER, **({"evidence": EVIDENCE} | more))


def window_of(session: Session, turn: int, rubric: ConversationRubric = RUBRIC) -> ConversationWindow:
    """Give the window of the answer in a turn."""
    return next(window for window in rubric.windows(session) if window.answer == turn)


def passage(text: str, passage_id: str = "p1") -> tuple[Passage, ...]:
    """Give the passages of a turn: one."""
    return (Passage(id=passage_id, text=text),)


def statement(number: int = 1, **changes: Any) -> dict[str, Any]:
    """Give a statement: that of turn 3 about the boat, unless changed."""
    return {
        "statement_id": f"S{number}",
        "quote": BOAT,
        "passage_id": "E3.1",
        "source_quote": BOAT,
        "unsupported_parts": [],
        "support": "supported",
    } | changes


def unsupported(quote: str, number: int = 1) -> dict[str, Any]:
    """Give a statement that no passage carries."""
    return statement(
        number, quote=quote, passage_id="", source_quote="", unsupported_parts=[quote], support="unsupported"
    )


STALE = statement(2, quote="The pier ticket costs 6 euros", passage_id="E1.1", source_quote="Pier ticket: 6 euros")
SCORES = {
    "turn_consistency": 5,
    "citation_accuracy": 5,
    "clarification_appropriateness": 5,
    "evidence_faithfulness": 5,
    "abstention_correctness": -1,
}


def graded(quote: str = BOAT, **scores: int) -> list[dict[str, Any]]:
    """Give the five dimensions, each with a reason and the same quote."""
    values = SCORES | scores
    return [
        {"dimension": name, "quote": quote, "rationale": "A reason.", "score": values[name]} for name in DIMENSIONS
    ]


def told(**changes: Any) -> dict[str, Any]:
    """Give a valid answer about turn 3, with changes; `scores` changes those of dimensions."""
    scores: dict[str, int] = changes.pop("scores", {})
    return {
        "turn_index": 3,
        "task": "from_evidence",
        "question_quote": "When does the last boat leave?",
        "question": "clear",
        "asks_back_quote": "",
        "statements": [statement(), STALE],
        "citations": [{"citation_id": "K1", "statement_id": "S1", "verdict": "right"}],
        "invented_source_quote": "",
        "settled_turn_index": -1,
        "settled_quote": "",
        "evidence": "sufficient",
        "stance_quote": BOAT,
        "stance": "answers",
        "dimensions": graded(BOAT, **scores),
        "rationale": "Both statements are carried.",
    } | changes


def about(reply: str, passages: tuple[Passage, ...], **changes: Any) -> tuple[ConversationWindow, dict[str, Any]]:
    """Give the window of a first reply to a question, and an answer that says nothing about it but `changes`."""
    window = window_of(chat(("u", "Which is it?"), ("a", reply), evidence={1: passages}), 1)
    nothing: dict[str, int] = {"turn_consistency": -1, "citation_accuracy": -1, "evidence_faithfulness": -1}
    scores = nothing | changes.pop("scores", {})
    bare = {"statements": [], "citations": [], "stance_quote": reply, "dimensions": graded(reply, **scores)}
    answer = told(turn_index=1, question_quote="Which is it?", **(bare | changes))
    return window, answer


def judged(answer: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Parse an answer about turn 3 of the pier session, and give what the verdict says."""
    rubric = ConversationRubric(**more)
    window = window_of(pier(), 3, rubric)
    return data_of(rubric.parse(json.dumps(answer), window))


def parsed(window: ConversationWindow, answer: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Parse an answer about a window."""
    return data_of(ConversationRubric(**more).parse(json.dumps(answer), window))


def data_of(result: Verdict | Skipped) -> dict[str, Any]:
    """Give what a verdict says."""
    assert isinstance(result, Verdict)
    return result.data


def merged(session: Session, *answers: dict[str, Any], **more: Any) -> Verdict:
    """Parse answers about a session, and merge them."""
    rubric = ConversationRubric(**more)
    results = [
        WindowResult(
            window_id=f"A{answer['turn_index']}",
            result=rubric.parse(json.dumps(answer), window_of(session, answer["turn_index"], rubric)),
        )
        for answer in answers
    ]
    result = rubric.merge(session, results)
    assert isinstance(result, Verdict)
    return result
