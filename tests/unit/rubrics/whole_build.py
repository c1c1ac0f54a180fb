"""Answers of the correction rubric's whole mode for the tests, built from those of event mode."""

from __future__ import annotations

import json
from typing import Any

import pytest

from monitor.errors import InvalidVerdict
from monitor.judgement import Verdict
from monitor.rubrics.correction_whole import CorrectionWholeRubric
from monitor.rubrics.correction_whole.answer import FoundCorrection, Grade
from monitor.session import Session
from tests.unit.rubrics.build import SEATS, chat

RUBRIC = CorrectionWholeRubric()


def found(answer: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Make of an event-mode answer for the seats session what whole mode says of one correction."""
    return answer | {"correction_quote": "make it 6 seats", "superseded_by_turn_index": -1} | changes


def told(*items: dict[str, Any]) -> dict[str, Any]:
    """Lay out what is said of each correction as the three lists of the answer."""
    return {
        "corrections": [{name: item[name] for name in FoundCorrection.__struct_fields__} for item in items],
        "evidence": [
            {"correction_id": item["correction_id"]} | quote
            for item in items
            for quote in item["incorporation_evidence"]
        ],
        "grades": [{name: item[name] for name in Grade.__struct_fields__} for item in items],
    }


def parsed(answer: dict[str, Any], session: Session | None = None) -> Verdict:
    (window,) = RUBRIC.windows(session or chat(*SEATS))
    return RUBRIC.parse(json.dumps(answer), window)


def judged(*items: dict[str, Any], session: Session | None = None) -> Verdict:
    return parsed(told(*items), session)


def refused(*items: dict[str, Any], session: Session | None = None) -> str:
    with pytest.raises(InvalidVerdict) as error:
        judged(*items, session=session)
    return str(error.value)
