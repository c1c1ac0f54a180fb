"""String rules over a whole transcript: those of event mode, for each correction that wording rules find.

They find what event mode finds, so `unnoticed` is always zero with this judge: only a model tells what is missed.
"""

from __future__ import annotations

from typing import Any

from monitor.judging.lexical import correction
from monitor.rubrics.answers import plain
from monitor.rubrics.correction.events import CorrectionEvent, Reading, events
from monitor.rubrics.correction.window import CorrectionWindow
from monitor.rubrics.correction.window import window as event_window
from monitor.rubrics.correction_whole.answer import FoundCorrection, Grade
from monitor.rubrics.correction_whole.window import CorrectionWholeWindow


def answer(window: CorrectionWholeWindow) -> dict[str, Any]:
    """Answer for a session, as the fields of the whole-mode answer."""
    chat, found = Reading(window.session), events(window.session)
    last = max((event.turn for event in found), default=-1)
    said: dict[str, list[dict[str, Any]]] = {"corrections": [], "evidence": [], "grades": []}
    seen: set[tuple[int, str]] = set()
    for event in found:
        key = (event.turn, plain(event.text))
        near = event_window(chat, found, event, len(window.session.turns))
        part = window.followed(event, near.superseded_by, last=event.turn == last)
        if event.problem is None and part.skip is None and key not in seen and key[1]:
            seen.add(key)
            _say(said, event, part)
    return said


def _say(said: dict[str, list[dict[str, Any]]], event: CorrectionEvent, part: CorrectionWindow) -> None:
    own = {
        "correction_id": f"C{len(said['corrections']) + 1}",
        "correction_quote": event.text,
        "superseded_by_turn_index": -1 if part.superseded_by is None else part.superseded_by,
    }
    told = correction.answer(part) | own
    said["corrections"].append({field: told[field] for field in FoundCorrection.__struct_fields__})
    said["evidence"] += [{"correction_id": own["correction_id"]} | item for item in told["incorporation_evidence"]]
    said["grades"].append({field: told[field] for field in Grade.__struct_fields__})
