"""What a verdict says of each turn."""

from typing import Any

import msgspec
import pytest

from monitor.judgement import Verdict
from monitor.session import session_view
from monitor.store import Store
from monitor.web import transcript
from tests.unit.store.builders import content, decision, judgement

TEXTS = ("Two seats", "Two seats at 19:00", "No, at 20:00", "Right, 20:00", "Thanks", "Confirmed for 19:00")
EVENT: dict[str, Any] = {
    "correction_id": "C1",
    "correction_turn_index": 2,
    "error_turn_index": 1,
    "first_right_use_turn_index": 3,
    "reversion_turn_index": 5,
    "over_correction_turn_index": None,
    "corrected_claim": "19:00",
    "correction_content": "20:00",
    "correction_type": "factual_correction",
    "scores": {"acknowledgment": 5, "persistence": 2},
    "acknowledgment_quote": "Right, 20:00",
    "incorporation_evidence": [{"turn_index": 5, "quote": "for 19:00"}],
    "over_correction_detail": None,
    "failure_mode": "reverted",
    "rationale": "It came back.",
    "correction_response_score": 0.625,
    "persistence_unobserved": False,
}


def stored(store: Store, data: dict[str, Any]) -> Any:
    text = content("s1", *TEXTS)
    first = decision("s1", text=text)
    store.record([first, judgement("s1", result=Verdict(data=data), hash_=first.content_hash)])
    found = store.session("t", "s1", "e0")
    assert found is not None
    return found


def test_turns_carry_what_they_are_to_a_finding(store: Store) -> None:
    found = stored(store, {"events": [EVENT]})
    findings = transcript.findings(found.judgements[0])
    turns = transcript.turns(found.view, findings)

    assert [turn.tone for turn in turns] == ["", "error", "correction", "first right use", "", "reversion"]
    assert [[piece.text for piece in turn.pieces if piece.source] for turn in turns] == [
        [], [], [], ["Right, 20:00"], [], ["for 19:00"],
    ]  # fmt: skip
    assert findings[0].failed
    assert [(score.name, score.value) for score in findings[0].scores] == [
        ("acknowledgment", 5),
        ("persistence", 2),
    ]


def test_the_worst_mark_gives_a_turn_its_tone() -> None:
    finding = msgspec.structs.replace(
        transcript._finding(EVENT), turns={"first right use": 3, "reversion": 3, "correction": 3}
    )
    turns = transcript.turns(session_view(content("s1", *TEXTS)), [finding])
    assert turns[3].tone == "reversion"


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"events": "none"},
        {"events": [1, None]},
        {"events": [{}]},
        {
            "events": [
                {"scores": [1], "incorporation_evidence": 3, "correction_turn_index": "2", "failure_mode": 7}
            ]
        },
        {"events": [{"incorporation_evidence": [{"turn_index": 99, "quote": "x"}, {"quote": "y"}]}]},
        {"events": [{**EVENT, "reversion_turn_index": 1000}]},
    ],
)
def test_data_of_any_shape_can_be_shown(store: Store, data: dict[str, Any]) -> None:
    found = stored(store, data)
    turns = transcript.turns(found.view, transcript.findings(found.judgements[0]))
    assert [turn.turn.text for turn in turns] == list(TEXTS)


def test_the_judgements_that_count_mark_the_transcript(store: Store) -> None:
    stored(store, {"events": [EVENT]})
    late = judgement("s1", result=Verdict(data={"events": []}), started_at=5)
    store.record([late])
    found = store.session("t", "s1", "e0")
    assert found is not None
    assert [item.standing for item in transcript.shown_judgements(found)] == ["counted"]
