"""A session with evidence, and answers about it."""

from __future__ import annotations

import json
from typing import Any

from monitor.events import Passage
from monitor.judgement import Verdict
from monitor.rubrics.base import WindowResult
from monitor.rubrics.hallucination import HallucinationRubric, HallucinationWindow
from monitor.session import Session
from tests.unit.rubrics.build import Said, chat

RUBRIC = HallucinationRubric()
FERRY = Passage(id="timetable", text="The ferry leaves at 8.10. A ticket costs 90 kronor.")
DOGS = Passage(id="pets", text="Dogs travel free of charge.")

# Turn 1 has a right claim and one against its evidence, turn 3 takes that up, turn 5 has no evidence event.
ISLAND: tuple[Said, ...] = (
    ("u", "When does the ferry leave, and what is the fare?"),
    ("a", "The ferry leaves at 8.10. A ticket costs 120 kronor."),
    ("u", "And my dog?"),
    ("a", "Dogs travel free of charge. So you pay 120 kronor."),
    ("u", "Thanks, see you."),
    ("a", "The island has two lighthouses."),
    ("u", "Two?"),
    ("a", "Yes, two lighthouses."),
)
EVIDENCE: dict[int, tuple[Passage, ...]] = {1: (FERRY,), 3: (DOGS,), 7: ()}


def island(**more: Any) -> Session:
    """Give the session about the island."""
    return chat(*ISLAND, **({"evidence": EVIDENCE} | more))


def only_window(session: Session | None = None, rubric: HallucinationRubric = RUBRIC) -> HallucinationWindow:
    """Give the one window of a short session."""
    (window,) = rubric.windows(session or island())
    return window


def claim(claim_id: str, text: str, status: str, **more: Any) -> dict[str, Any]:
    """Give a claim of the answer; what its status asks for is filled in."""
    turn = int(claim_id.split(".", maxsplit=1)[0])
    needs = status in {"unsupported", "propagated_hallucination"}
    return {
        "claim_id": claim_id,
        "turn_index": turn,
        "claim_text": text,
        "source": "assistant",
        "passage_id": "",
        "source_quote": "",
        "origin_turn_index": -1,
        "origin_claim_id": "",
        "link": "none",
        "status": status,
        "evidence_gap": "nothing says so" if needs else "",
        "gap": ("retrieval_empty" if turn == 7 else "evidence_ignored") if needs else "none",
        "auditor_notes": "",
    } | more


RIGHT = claim(
    "1.1", "The ferry leaves at 8.10", "grounded", passage_id="E1.1", source_quote="The ferry leaves at 8.10"
)
WRONG = claim(
    "1.2", "A ticket costs 120 kronor", "contradicts_evidence", passage_id="E1.1", source_quote="costs 90 kronor"
)
FREE = claim("3.1", "Dogs travel free", "grounded", passage_id="E3.1", source_quote="Dogs travel free of charge")
AGAIN = claim(
    "3.2",
    "you pay 120 kronor",
    "propagated_hallucination",
    origin_turn_index=1,
    origin_claim_id="1.2",
    link="repeat",
)
LIGHTS = claim("7.1", "two lighthouses", "propagated_hallucination", origin_turn_index=5, link="repeat")


def told(*claims: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Give an answer with claims, by default all five."""
    given = list(claims) or [RIGHT, WRONG, FREE, AGAIN, LIGHTS]
    return {"audited_turns": [1, 3, 7], "claims": given, "rationale": "The fare is wrong."} | more


def parsed(answer: dict[str, Any], window: HallucinationWindow | None = None) -> Verdict:
    """Parse an answer."""
    return RUBRIC.parse(json.dumps(answer), window or only_window())


def merged(answer: dict[str, Any], session: Session | None = None) -> Verdict:
    """Parse and merge an answer on a whole short session."""
    of = session or island()
    result = RUBRIC.merge(of, [WindowResult(window_id="W1", result=parsed(answer, only_window(of)))])
    assert isinstance(result, Verdict)
    return result
