"""The answers of a judge that sees just what a golden set expects."""

from __future__ import annotations

import json
from typing import Any

from monitor.golden.correction import Event, ExpectedCorrections
from monitor.golden.refusal import ExpectedRefusal
from monitor.golden.rows import GoldenRow
from monitor.rubrics.correction.answer import CRITERIA
from monitor.rubrics.correction.events import CorrectionEvent
from monitor.rubrics.correction.window import CorrectionWindow
from monitor.rubrics.correction_whole import CorrectionWholeRubric
from monitor.rubrics.correction_whole.answer import FoundCorrection, Grade
from monitor.rubrics.refusal import RefusalRubric
from tests.unit.rubrics.build import RUBRIC, kept, no_correction


def refusal(row: GoldenRow, *, lenient: bool = False) -> str:
    """Answer for a conversation of the refusal set; a lenient judge takes hedged help for a refusal."""
    assert isinstance(row.expected, ExpectedRefusal)
    turns, units = row.session.turns, row.expected.units
    held = all(unit.outcome == "held" for unit in units)
    requests = [
        {
            "request_id": f"R{number}",
            "turn_index": unit.turn,
            "quote": turns[unit.turn].text,
            "request": "it",
            "basis": unit.basis,
        }
        for number, unit in enumerate(units, 1)
    ]
    states = []
    (window,) = RefusalRubric().windows(row.session)
    for turn in window.replies:
        state = row.expected.states[turn]
        # Help in a session whose refusal held is help with something else.
        about = bool(units) and not (state == "none" and held)
        states.append(
            {
                "turn_index": turn,
                "request_id": "R1" if about else "",
                "quote": turns[turn].text if about else "",
                "state": "full" if lenient and state == "partial" else state,
            }
        )
    return json.dumps(
        {"requests": requests, "turns": states, "pushes": [], "changes": [], "rationale": "So it is."}
    )


def correction(window: CorrectionWindow, unit: Event) -> dict[str, Any]:
    """Answer for one correction, in event mode."""
    used = unit.failure_mode in {"none", "partial", "reverted"}
    spilled = unit.no_over_correction is not None and unit.no_over_correction < 4
    scores = {name: getattr(unit, name) or 5 for name in CRITERIA}
    first = window.turn(window.replies[0])
    assert first is not None
    # What is skipped is looked at no further.
    shown = [turn for turn in window.turns if turn.index in window.replies and unit.skipped is None]
    if unit.skipped == "misaligned":
        return no_correction(correction_id=window.window_id, correction_turn_index=unit.turn)
    return kept() | scores | {
        "targets_turn": -1 if window.event.error is None else window.event.error,
        "correction_id": window.window_id,
        "correction_turn_index": unit.turn,
        "correction_content": "" if unit.skipped == "not_applicable" else "what is right",
        "acknowledgment_quote": first.text if shown and scores["acknowledgment"] > 3 else "",
        "incorporation_check_turns": [turn.index for turn in shown],
        "incorporation_evidence": [{"turn_index": turn.index, "quote": turn.text} for turn in shown],
        "first_right_use_turn_index": window.replies[0] if used and shown else -1,
        "reversion_turn_index": -1 if unit.reversion_turn is None else unit.reversion_turn,
        "over_correction_detail": "something else changed" if spilled else "",
        "over_correction_turn_index": window.replies[0] if spilled else -1,
        "failure_mode": unit.failure_mode or "none",
    }  # fmt: skip


def correction_events(row: GoldenRow) -> dict[str, str]:
    """Give the answer to each window of a conversation that is sent to a judge."""
    assert isinstance(row.expected, ExpectedCorrections)
    pairs = zip(RUBRIC.windows(row.session), row.expected.units, strict=True)
    return {
        window.window_id: json.dumps(correction(window, unit))
        for window, unit in pairs
        if RUBRIC.preflight(window) is None
    }


def corrections_whole(row: GoldenRow) -> str:
    """Answer for a whole transcript."""
    assert isinstance(row.expected, ExpectedCorrections)
    (whole,) = CorrectionWholeRubric().windows(row.session)
    answer: dict[str, list[Any]] = {"corrections": [], "evidence": [], "grades": []}
    last = max((unit.turn for unit in row.expected.units), default=-1)
    for number, unit in enumerate(row.expected.units, 1):
        quote = unit.quote or row.session.turns[unit.turn].text
        event = CorrectionEvent(event_id=f"C{number}", turn=unit.turn, text=quote, error=None)
        window = whole.followed(event, unit.superseded_by, last=unit.turn == last)
        end = -1 if unit.superseded_by is None else unit.superseded_by
        own = {"correction_quote": quote, "superseded_by_turn_index": end}
        told = (correction(window, unit) if window.replies else kept()) | own
        told |= {"correction_id": event.event_id, "correction_turn_index": unit.turn, "targets_turn": -1}
        answer["corrections"].append({name: told[name] for name in FoundCorrection.__struct_fields__})
        if window.replies:
            quotes = told["incorporation_evidence"]
            answer["evidence"] += [{"correction_id": event.event_id} | item for item in quotes]
            answer["grades"].append({name: told[name] for name in Grade.__struct_fields__})
    return json.dumps(answer)
