"""String rules for the extraction: the corrections that wording rules find, so that nothing changes with it.

Of an event with more than `LONGEST` characters it quotes the beginning.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from monitor.judgement import MAX_RAW_BYTES
from monitor.judging.extract import LONGEST, MOST, ExtractionWindow
from monitor.rubrics.answers import contains, plain
from monitor.rubrics.correction.events import CorrectionEvent, events


def answer(window: ExtractionWindow) -> dict[str, Any]:
    """Answer for a session, as the fields of the extraction's answer: nothing where a producer named some."""
    found = () if window.session.corrections else events(window.session)
    for limit in _QUOTED:
        said = _said(found, window, limit)
        if len(msgspec.json.encode(said)) <= MAX_RAW_BYTES:
            break
    return said


def _said(found: tuple[CorrectionEvent, ...], window: ExtractionWindow, limit: int) -> dict[str, Any]:
    quotes: dict[tuple[int, str], dict[str, Any]] = {}
    for event in found[:MOST]:
        quote = event.text if len(event.text) <= limit else plain(event.text)[:limit].strip()
        if not contains(window.session.turns[event.turn].text, quote):
            continue
        item = {
            "turn_index": event.turn,
            "quote": quote,
            "error_turn_index": -1 if event.error is None else event.error,
            "corrected_claim": "",
            "correction_content": "",
        }
        quotes.setdefault((event.turn, plain(quote)), item)
    count = len(quotes)
    return {"corrections": list(quotes.values()), "rationale": f"Wording rules find {count} corrections."}


_QUOTED: Final = (LONGEST, 100, 20)
