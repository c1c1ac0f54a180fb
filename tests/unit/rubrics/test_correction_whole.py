"""The correction rubric over whole transcripts: what is found, how far it is followed, and what comes of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings

from monitor.errors import InvalidVerdict
from monitor.judgement import Outcomes, Skipped, Tally, Unscored, Verdict
from monitor.judging.lexical.correction_whole import answer as lexical
from monitor.rubrics import RUBRICS
from monitor.rubrics.base import WindowResult
from monitor.rubrics.correction_whole import CorrectionWholeRubric
from monitor.session import Session
from tests.unit.rubrics.build import RUBRIC as EVENTS
from tests.unit.rubrics.build import SEATS, chat, kept, reverted, sessions
from tests.unit.rubrics.whole_build import RUBRIC, found, judged, parsed, refused, told

NO_REPLY: dict[str, Any] = {"incorporation_evidence": []}
UNSAID = NO_REPLY | {"correction_content": "", "first_right_use_turn_index": -1, "acknowledgment_quote": ""}
TWICE = (*SEATS[:4], ("u", "Sorry, not 6 seats but 8."), ("a", "8 seats, then."))


def test_it_finds_what_event_mode_is_given_and_computes_the_same_numbers() -> None:
    (event,) = judged(found(reverted())).data["events"]
    (window,) = EVENTS.windows(chat(*SEATS))
    other = EVENTS.parse(json.dumps(reverted()), window)
    assert isinstance(other, Verdict)
    assert event == other.data | {"noticed": True, "correction_quote": "make it 6 seats"}


def test_a_correction_that_no_rule_notices_is_counted() -> None:
    quiet = found(kept(), correction_turn_index=8, correction_quote="Lovely", targets_turn=5, acknowledgment=3) | {
        "acknowledgment_quote": "",
        "incorporation_evidence": [{"turn_index": 9, "quote": "See you then"}],
        "first_right_use_turn_index": 9,
        "correction_id": "C2",
    }
    verdict = judged(found(reverted()), quiet)
    assert [event["noticed"] for event in verdict.data["events"]] == [True, False]
    assert RUBRIC.outcomes(verdict).measures["unnoticed"] == Tally(trials=2, failures=1)
    assert RUBRIC.outcomes(verdict).measures["reverted"] == Tally(trials=2, failures=1)


def test_no_correction_is_a_valid_empty_verdict() -> None:
    verdict = judged()
    assert verdict.note == "no correction in this session"
    assert {tally.trials for tally in RUBRIC.outcomes(verdict).measures.values()} == {0}
    assert RUBRIC.outcomes(verdict).scores == {}


def test_a_later_correction_of_the_same_ends_what_is_followed() -> None:
    first = found(
        kept(), superseded_by_turn_index=4, incorporation_evidence=[{"turn_index": 3, "quote": "6 seats"}]
    )
    second = found(
        kept(), correction_id="C2", correction_turn_index=4, correction_quote="not 6 seats but 8", targets_turn=2,
        acknowledgment_quote="8 seats, then", incorporation_evidence=[{"turn_index": 5, "quote": "8 seats"}],
        first_right_use_turn_index=5,
    )  # fmt: skip
    events = judged(first, second, session=chat(*TWICE)).data["events"]
    assert [event["incorporation_check_turns"] for event in events] == [[3], [5]]
    assert [event["superseded_by_turn_index"] for event in events] == [4, None]
    late = first | {"incorporation_evidence": [{"turn_index": 5, "quote": "8 seats"}]}
    assert refused(late, second, session=chat(*TWICE)).startswith("evidence[0].turn_index is 5, ")


@pytest.mark.parametrize(
    ("session", "changes", "reason"),
    [
        (chat(*SEATS[:3]), NO_REPLY, "no_response"),
        (chat(*SEATS, cut={3: "length"}), {}, "cut_off"),
        (chat(*SEATS, close_reason="max_turns"), {}, "cut_off"),
        (chat(*SEATS), UNSAID, "not_applicable"),
        (chat(*SEATS[:3], ("u", "Or 8."), ("a", "8.")), NO_REPLY | {"superseded_by_turn_index": 3}, "superseded"),
    ],
)
def test_what_cannot_be_judged_is_skipped_and_counted(
    session: Session, changes: dict[str, Any], reason: str
) -> None:
    verdict = judged(found(kept(), **changes), session=session)
    assert RUBRIC.outcomes(verdict).skipped_events == {reason: 1}
    assert verdict.data["events"] == []


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"correction_id": "C2"}, "corrections[0].correction_id"),
        ({"correction_turn_index": 3}, "corrections[0].correction_turn_index"),
        ({"correction_turn_index": 40}, "corrections[0].correction_turn_index"),
        ({"correction_quote": "make it 9 seats"}, "corrections[0].correction_quote"),
        ({"correction_quote": ""}, "corrections[0].correction_quote"),
        ({"superseded_by_turn_index": 5}, "corrections[0].superseded_by_turn_index"),
        ({"superseded_by_turn_index": 0}, "corrections[0].superseded_by_turn_index"),
        ({"targets_turn": 4}, "corrections[0].targets_turn"),
        ({"targets_turn": 2}, "corrections[0].targets_turn"),
        ({"incorporation_evidence": []}, "evidence[C1]"),
        ({"incorporation_evidence": [{"turn_index": 1, "quote": "4 seats"}]}, "evidence[0].turn_index"),
        ({"incorporation_evidence": [{"turn_index": 3, "quote": "9 seats"}]}, "evidence[0].quote"),
        ({"incorporation_evidence": [{"turn_index": 3, "quote": "6 seats"}]}, "grades[0].reversion_turn_index"),
        ({"reversion_turn_index": -1}, "grades[0].reversion_turn_index"),
        ({"acknowledgment_quote": "Good catch"}, "grades[0].acknowledgment_quote"),
        ({"rationale": " "}, "grades[0].rationale"),
    ],
)
def test_every_violation_names_the_row_and_the_field(changes: dict[str, Any], field: str) -> None:
    assert refused(found(reverted(), **changes)).startswith(f"{field} is ")


@pytest.mark.parametrize("rows", ["evidence", "grades"])
def test_the_three_lists_belong_together(rows: str) -> None:
    answer = told(found(reverted()))
    stray = answer | {rows: [*answer[rows], answer[rows][0] | {"correction_id": "C2"}]}
    place = len(answer[rows])
    with pytest.raises(
        InvalidVerdict, match=rf'^{rows}\[{place}\].correction_id is "C2", but corrections has only C1'
    ):
        parsed(stray)


def test_each_correction_with_replies_has_one_grade() -> None:
    answer = told(found(reverted()))
    with pytest.raises(InvalidVerdict, match=r"^grades is \[\], but C1 has replies"):
        parsed(answer | {"grades": []})
    with pytest.raises(InvalidVerdict, match=r"^grades\[1\]\.correction_id is .* has a grade already"):
        parsed(answer | {"grades": answer["grades"] * 2})


def test_a_correction_without_a_reply_needs_no_grade() -> None:
    answer = told(found(kept(), incorporation_evidence=[])) | {"grades": []}
    assert parsed(answer, chat(*SEATS[:3])).data["skipped"][0]["reason"] == "no_response"
    with pytest.raises(InvalidVerdict, match=r"^grades is \[\]"):
        parsed(answer, chat(*SEATS[:4]))


def test_corrections_stand_in_order_and_each_has_words_of_its_own() -> None:
    again = found(reverted(), correction_id="C2")
    assert refused(found(reverted()), again).startswith("corrections[1].correction_quote is ")
    early = found(reverted(), correction_id="C2", correction_turn_index=0, correction_quote="Please hold")
    assert refused(found(reverted()), early).startswith("corrections[1].correction_turn_index is ")


def test_sessions_of_one_turn_or_of_too_many_are_not_applicable() -> None:
    assert RUBRIC.applies(chat(("u", "No."))) is not None
    assert RUBRIC.applies(chat(*SEATS)) is None
    assert CorrectionWholeRubric(max_turns=9).applies(chat(*SEATS)) is not None


def test_it_is_the_whole_mode_with_a_name_of_its_own() -> None:
    assert (RUBRICS["correction_whole"].mode, RUBRICS["correction"].mode) == ("whole", "event")
    assert RUBRIC.outcomes(Skipped(reason="not_applicable")) == Outcomes()
    assert RUBRIC.merge(
        chat(*SEATS), [WindowResult(window_id="W", result=Unscored(reason="invalid"))]
    ) == Unscored(reason="invalid")


def test_the_schema_is_three_flat_lists_whose_fields_are_all_required() -> None:
    (window,) = RUBRIC.windows(chat(*SEATS))
    schema, answer = RUBRIC.schema(window), told(found(reverted()))
    assert schema["required"] == list(schema["properties"]) == ["corrections", "evidence", "grades"]
    for name, rows in schema["properties"].items():
        item = rows["items"]
        assert item["required"] == list(item["properties"]) == list(answer[name][0])
        assert item["additionalProperties"] is False
        assert {field["type"] for field in item["properties"].values()} <= {"string", "integer"}


@given(sessions())
@settings(max_examples=60)
def test_lexical_answers_are_accepted_for_any_session(session: Session) -> None:
    (window,) = RUBRIC.windows(session)
    if RUBRIC.applies(session) is None:
        verdict = RUBRIC.parse(json.dumps(lexical(window)), window)
        assert all(event["noticed"] for event in verdict.data["events"])
