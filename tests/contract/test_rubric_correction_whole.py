"""The requirements of whole mode of the correction rubric, line by line: each test names its line."""

from __future__ import annotations

import json
from typing import Any

import pytest

from monitor.exporter import mode_of
from monitor.judgement import Outcomes, Skipped, Stage, Tally
from monitor.judging.flow import judge_flow
from monitor.judging.lexical.correction_whole import answer as lexical
from monitor.judging.model import Completion
from monitor.judging.prompt import load
from monitor.metrics import CATALOGUE, QUALITY
from monitor.rubrics import configured
from monitor.rubrics.correction.answer import CORRECTION_TYPES, CRITERIA, FAILURE_MODES, CorrectionAnswer
from monitor.rubrics.correction_whole import CorrectionWholeRubric
from monitor.settings import CorrectionWholeSettings, RubricSettings
from tests.unit.rubrics.build import SEATS, chat, kept, reverted, unjudged
from tests.unit.rubrics.whole_build import RUBRIC, found, judged, parsed, refused, told

SECOND: dict[str, Any] = {
    "correction_id": "C2", "correction_turn_index": 4, "correction_quote": "not 6 seats but 8",
    "acknowledgment_quote": "8 seats, then", "first_right_use_turn_index": 5,
    "incorporation_evidence": [{"turn_index": 5, "quote": "8 seats"}],
}  # fmt: skip
FIRST: dict[str, Any] = {"incorporation_evidence": [{"turn_index": 3, "quote": "6 seats"}]}
TWICE = (*SEATS[:4], ("u", "Sorry, not 6 seats but 8."), ("a", "8 seats, then."))


# -- two modes ---------------------------------------------------------------------------------------------------


def test_the_two_modes_are_never_mixed_in_one_series() -> None:
    assert mode_of("correction") == ("correction", "event")
    assert mode_of("correction_whole") == ("correction", "whole")
    quality = [metric for metric in QUALITY if "rubric" in metric.labels]
    assert quality
    assert all("mode" in metric.labels for metric in quality)


def test_whole_mode_shows_the_entire_transcript_and_takes_all_corrections_at_once() -> None:
    session = chat(*SEATS[:4], ("t", "lookup"), ("u", "Sorry, not 6 seats but 8."), ("a", "8 seats, then."))
    (window,) = RUBRIC.windows(session)
    assert [turn["turn"] for turn in RUBRIC.fields(window)["transcript"]] == [0, 1, 2, 3, 5, 6]
    verdict = RUBRIC.parse(json.dumps(lexical(window)), window)
    assert [event["correction_turn_index"] for event in verdict.data["events"]] == [2, 5]


def test_whole_transcript_mode_audits_what_the_rules_of_event_mode_miss() -> None:
    quiet = found(kept(), correction_id="C2", correction_turn_index=8, correction_quote="Lovely") | {
        "acknowledgment": 3, "acknowledgment_quote": "", "first_right_use_turn_index": 9,
        "incorporation_evidence": [{"turn_index": 9, "quote": "See you then"}],
    }  # fmt: skip
    outcomes = RUBRIC.outcomes(judged(found(reverted()), quiet))
    assert outcomes.measures["unnoticed"] == Tally(trials=2, failures=1)
    assert "unnoticed" in RUBRIC.measures


def test_all_corrections_of_a_session_are_judged_none_is_sampled() -> None:
    said = [pair for number in range(9) for pair in (("u", f"No, make it {number + 20} seats."), ("a", "Done."))]
    session = chat(*SEATS[:2], *said)
    (window,) = RUBRIC.windows(session)
    verdict = RUBRIC.parse(json.dumps(lexical(window)), window)
    assert verdict.data["session"]["correction_count"] == 9
    assert RUBRIC.outcomes(verdict).stage == Stage()


# -- events ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [1, 0, -1])
def test_an_event_corrects_the_assistant_or_the_user_or_nothing_said_before(target: int) -> None:
    (event,) = judged(found(kept(), targets_turn=target)).data["events"]
    assert event["error_turn_index"] == (None if target < 0 else target)


def test_clarifications_elaborations_and_changes_of_topic_are_not_corrections() -> None:
    system = load("correction_whole").system
    assert "Clarifying questions, elaborations, answers to a question and changes of topic don't\ncount." in system


def test_what_does_not_say_what_is_right_is_not_applicable_except_a_retraction() -> None:
    verdict = judged(found(unjudged()))
    assert RUBRIC.outcomes(verdict).skipped_events == {"not_applicable": 1}
    taken_back = judged(found(kept(), correction_content="", correction_type="retraction"))
    assert [event["failure_mode"] for event in taken_back.data["events"]] == ["none"]


def test_several_corrections_in_one_turn_are_separate_events() -> None:
    session = chat(*SEATS[:2], ("u", "6 seats. And the hall, please."), ("a", "6 seats in the hall."))
    one = found(kept(), correction_quote="6 seats", acknowledgment_quote="6 seats", **FIRST)
    two = one | {"correction_id": "C2", "correction_quote": "And the hall"}
    assert len(judged(one, two, session=session).data["events"]) == 2
    assert refused(one, one | {"correction_id": "C2"}, session=session).startswith(
        "corrections[1].correction_quote"
    )


def test_single_turn_sessions_are_not_applicable() -> None:
    skipped = RUBRIC.applies(chat(("u", "No.")))
    assert skipped is not None
    assert skipped.reason == "not_applicable"


def test_no_correction_is_a_valid_empty_verdict_with_zero_trials_and_a_note() -> None:
    verdict = parsed({"corrections": [], "evidence": [], "grades": []})
    assert verdict.note == "no correction in this session"
    assert {tally.trials for tally in RUBRIC.outcomes(verdict).measures.values()} == {0}


# -- what is followed --------------------------------------------------------------------------------------------


def test_a_later_correction_that_supersedes_this_one_ends_its_window_not_a_reversion() -> None:
    first = found(kept(), superseded_by_turn_index=4, **FIRST)
    events = judged(first, found(kept(), **SECOND), session=chat(*TWICE)).data["events"]
    assert [event["incorporation_check_turns"] for event in events] == [[3], [5]]
    assert [event["failure_mode"] for event in events] == ["none", "none"]


def test_persistence_beyond_what_is_seen_is_unobserved_and_counted() -> None:
    few = judged(found(kept(), **FIRST), session=chat(*SEATS[:4]))
    assert few.data["events"][0]["persistence_unobserved"] is True
    assert few.data["session"]["persistence_unobserved"] == 1
    assert judged(found(kept())).data["session"]["persistence_unobserved"] == 0


def test_a_reply_cut_off_and_the_last_event_of_a_session_that_we_closed_are_unevaluable() -> None:
    unseen = found(kept(), incorporation_evidence=[], first_right_use_turn_index=-1)
    for session in (chat(*SEATS, cut={3: "length"}), chat(*SEATS, close_reason="max_turns")):
        assert RUBRIC.outcomes(judged(unseen, session=session)).skipped_events == {"cut_off": 1}


# -- what the judge says, and what code computes of it -----------------------------------------------------------


def test_the_answer_has_the_fields_that_the_rubric_names_in_flat_lists() -> None:
    (window,) = RUBRIC.windows(chat(*SEATS))
    lists = RUBRIC.schema(window)["properties"]
    fields = {name for rows in lists.values() for name in rows["items"]["required"]}
    # Which replies were checked follows from the transcript; the evidence has a list of its own.
    theirs = {*CorrectionAnswer.__struct_fields__} - {
        "is_correction", "incorporation_check_turns", "incorporation_evidence",
    }  # fmt: skip
    assert fields == theirs | {"correction_quote", "superseded_by_turn_index", "turn_index", "quote"}
    types = lists["corrections"]["items"]["properties"]["correction_type"]["enum"]
    modes = lists["grades"]["items"]["properties"]["failure_mode"]["enum"]
    assert (types, modes) == (list(CORRECTION_TYPES), list(FAILURE_MODES))
    assert [*lists] == ["corrections", "evidence", "grades"]


def test_failure_modes_stand_in_their_order_and_scales_with_their_anchors() -> None:
    system, events = load("correction_whole").system, load("correction").system
    places = [system.index(f"{place}. {mode}:") for place, mode in enumerate(FAILURE_MODES, 1)]
    assert places == sorted(places)
    anchors = [line for line in events.splitlines() if line.startswith(tuple(f"| {name} |" for name in CRITERIA))]
    assert len(anchors) == 4
    assert all(anchor in system for anchor in anchors)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        (
            {"failure_mode": "none", "reversion_turn_index": -1, "incorporation_accuracy": 3},
            "incorporation_accuracy",
        ),
        ({"failure_mode": "none", "reversion_turn_index": -1, "incorporation_accuracy": 4}, "persistence"),
        (
            {"failure_mode": "ignored", "reversion_turn_index": -1, "incorporation_accuracy": 3},
            "incorporation_accuracy",
        ),
        ({"reversion_turn_index": -1}, "reversion_turn_index"),
        ({"reversion_turn_index": 3}, "reversion_turn_index"),
    ],
)
def test_the_checks_between_failure_mode_scores_and_reversion(changes: dict[str, Any], field: str) -> None:
    assert refused(found(reverted(), **changes)).startswith(f"grades[0].{field} is ")


def test_code_computes_composite_score_flag_and_regression() -> None:
    (event,) = judged(found(reverted())).data["events"]
    assert (event["composite"], event["correction_response_score"]) == (3.25, (3.25 - 1) / 4)
    assert (event["acknowledgment_flag"], event["regression_detected"]) == (True, True)


def test_session_aggregates_are_stored_and_exported() -> None:
    first = found(kept(), superseded_by_turn_index=4, **FIRST)
    verdict = judged(first, found(kept(), **SECOND), session=chat(*TWICE))
    session = verdict.data["session"]
    assert (session["total_turns"], session["correction_count"], session["fully_incorporated"]) == (6, 2, 2)
    assert session["overall_assessment"].startswith("2 of 2 corrections were taken and kept")
    scores = RUBRIC.outcomes(verdict).scores
    assert scores["correction_session_events"] == [2]
    assert all(name.partition(":")[0] in CATALOGUE for name in scores)


def test_outcomes_are_counted_by_event_and_nothing_without_a_verdict() -> None:
    measures = RUBRIC.outcomes(judged(found(reverted()))).measures
    assert {*measures} == {*RUBRIC.measures}
    assert measures["reverted"] == Tally(trials=1, failures=1)
    assert RUBRIC.outcomes(Skipped(reason="not_applicable")) == Outcomes()


def test_common_review_of_high_risk_sessions() -> None:
    review = judged(found(reverted()), session=chat(*SEATS, risk="high")).data["review"]
    assert review["awaiting_review"]
    assert review["reasons"] == ["high_risk_regression", "high_risk_failing"]
    assert judged(found(reverted())).data["review"]["flagged"] is False


# -- common ------------------------------------------------------------------------------------------------------


def test_common_one_repair_quotes_the_error_and_a_second_failure_is_unscored() -> None:
    (window,) = RUBRIC.windows(chat(*SEATS))
    flow = judge_flow(RUBRIC, window, load("correction_whole"))
    next(flow)
    again = flow.send(Completion(text=json.dumps(told(found(kept())) | {"grades": []})))
    assert "C1 has replies, so it needs a grade" in again.messages[-1].text
    with pytest.raises(StopIteration) as stop:
        flow.send(Completion(text="{}"))
    assert stop.value.value.result.reason == "invalid"


def test_common_the_judge_may_not_use_its_own_knowledge() -> None:
    assert "Never use knowledge of your own" in load("correction_whole").system


def test_common_constraints_go_into_the_prompt_and_change_its_hash() -> None:
    own = load("correction_whole", constraints="Prices are settled by the catalog alone.")
    assert "Prices are settled by the catalog alone." in own.system
    assert own.prompt_hash != load("correction_whole").prompt_hash


def test_common_every_threshold_is_a_setting_with_this_default() -> None:
    default = CorrectionWholeSettings()
    assert (default.max_turns, default.replies) == (200, 4)
    assert (default.review_score, default.high_risk_composite) == (0.7, 3.0)
    own = configured(RubricSettings(correction_whole=CorrectionWholeSettings(max_turns=9)))["correction_whole"]
    assert isinstance(own, CorrectionWholeRubric)
    assert own.applies(chat(*SEATS)) is not None
