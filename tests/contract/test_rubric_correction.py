"""The requirements of the correction rubric, line by line: each test names the line that it holds to."""

from __future__ import annotations

import json
from typing import Any

import pytest

from monitor.judgement import Skipped, Verdict
from monitor.judging.flow import judge_flow
from monitor.judging.model import Completion
from monitor.judging.prompt import load
from monitor.metrics import CATALOGUE
from monitor.rubrics import configured
from monitor.rubrics.base import WindowResult
from monitor.rubrics.correction import CorrectionRubric
from monitor.rubrics.correction.answer import CORRECTION_TYPES, CRITERIA, FAILURE_MODES, CorrectionAnswer
from monitor.rubrics.correction.window import CorrectionWindow
from monitor.session import Session
from monitor.settings import CorrectionSettings, RubricSettings
from tests.unit.rubrics.build import RUBRIC, SEATS, chat, corrected, kept, no_correction, reverted, seats, unjudged

THERE_IS_MORE = (("u", "Is there parking?"), ("a", "There is."))


def windows(*said: tuple[str, str], **more: Any) -> tuple[CorrectionWindow, ...]:
    return tuple(RUBRIC.windows(chat(*said, **more)))


def event(answer: dict[str, Any]) -> dict[str, Any]:
    verdict = RUBRIC.parse(json.dumps(answer), seats())
    assert isinstance(verdict, Verdict)
    return verdict.data


def judged(*answers: dict[str, Any], session: Session | None = None, risk: str = "normal") -> Verdict:
    results = [
        WindowResult(window_id=f"C{place}", result=RUBRIC.parse(json.dumps(answer), seats()))
        for place, answer in enumerate(answers, 1)
    ]
    verdict = RUBRIC.merge(session or chat(*SEATS, risk=risk), results)
    assert isinstance(verdict, Verdict)
    return verdict


def skip(*said: tuple[str, str], **more: Any) -> str:
    (window,) = windows(*said, **more)
    skipped = RUBRIC.preflight(window)
    assert skipped is not None
    return skipped.reason


# -- events ----------------------------------------------------------------------------------------------------


def test_an_event_corrects_the_assistant_or_the_user_or_nothing_said_before() -> None:
    assert seats().event.error == 1
    (own,) = windows(("u", "I'm Bo Tarn."), ("a", "Thanks."), ("u", "Sorry, I meant Bo Farn."), ("a", "Noted."))
    assert own.event.error == 0
    (wish,) = windows(("u", "Hi"), ("a", "Hello!"), ("u", "I'd prefer short answers"), ("a", "Sure."))
    assert wish.event.error is None


def test_a_self_correction_may_be_answered_for_with_a_users_turn() -> None:
    assert event(kept(targets_turn=0))["error_turn_index"] == 0
    assert event(kept(targets_turn=-1))["error_turn_index"] is None


def test_clarifications_elaborations_and_changes_of_topic_are_no_corrections() -> None:
    system = load("correction").system
    assert "Clarifying questions, elaborations and changes of topic don't count." in system
    result = RUBRIC.parse(json.dumps(no_correction()), seats())
    assert isinstance(result, Skipped)
    assert result.reason == "misaligned"


def test_what_does_not_say_what_is_right_is_not_applicable_except_a_retraction() -> None:
    result = RUBRIC.parse(json.dumps(unjudged()), seats())
    assert isinstance(result, Skipped)
    assert result.reason == "not_applicable"
    assert event(kept(correction_content="", correction_type="retraction"))["failure_mode"] == "none"


def test_a_retraction_that_a_producer_names_needs_no_new_value() -> None:
    said = (("u", "A van."), ("a", "A van with insurance."), ("u", "Never mind the insurance."), ("a", "Removed."))
    (window,) = windows(*said, corrections=(corrected(2),))
    assert window.skip is None


def test_several_corrections_in_one_turn_are_separate_events() -> None:
    said = (*SEATS[:2], ("u", "No, make it 6 seats. And it's not the garden room, it's the Library."), SEATS[3])
    assert [(window.window_id, window.event.turn) for window in windows(*said)] == [("C1", 2), ("C2", 2)]


def test_single_turn_sessions_are_not_applicable() -> None:
    skipped = RUBRIC.applies(chat(("u", "No, that's wrong.")))
    assert skipped is not None
    assert skipped.reason == "not_applicable"


def test_a_session_without_a_correction_is_a_valid_empty_verdict_with_a_note() -> None:
    verdict = judged(session=chat(("u", "Hello"), ("a", "Hello!")))
    assert verdict.note == "no correction in this session"
    assert {tally.trials for tally in RUBRIC.outcomes(verdict).measures.values()} == {0}


def test_candidates_come_from_the_producer_or_from_wording() -> None:
    assert [window.event.turn for window in windows(*SEATS)] == [2]
    named = windows(*SEATS, corrections=(corrected(2, text="make it 6 seats"),))
    assert [(window.event.turn, window.event.text) for window in named] == [(2, "make it 6 seats")]


# -- window and pre-flight ---------------------------------------------------------------------------------------


def test_event_mode_shows_error_correction_four_replies_and_later_ones_that_name_a_value() -> None:
    (window,) = windows(*SEATS, *THERE_IS_MORE, ("u", "Remind me?"), ("a", "You have 4 seats."))
    assert [turn.index for turn in window.turns] == [*range(10), 12, 13]
    assert window.replies == (3, 5, 7, 9, 13)


def test_preflight_wants_a_signal_and_the_turn_that_the_event_describes() -> None:
    assert skip(*SEATS, corrections=(corrected(8),)) == "misaligned"
    assert skip(*SEATS, corrections=(corrected(2, text="make it 9 seats"),)) == "misaligned"


def test_a_target_other_than_the_producers_is_misaligned_and_counted() -> None:
    said = (*SEATS[:2], ("u", "And a cloakroom?"), ("a", "It has one."), *SEATS[2:4])
    (window,) = windows(*said, corrections=(corrected(4, error_turn_id="t1"),))
    result = RUBRIC.parse(json.dumps(unjudged(correction_turn_index=4, targets_turn=3)), window)
    assert isinstance(result, Skipped)
    assert result.reason == "misaligned"
    verdict = RUBRIC.merge(chat(*SEATS), [WindowResult(window_id="C1", result=result)])
    assert RUBRIC.outcomes(verdict).measures["misaligned"].failures == 1


def test_a_later_correction_of_the_same_ends_the_window() -> None:
    first, _ = windows(*SEATS[:4], ("u", "Sorry, not 6 seats but 8."), ("a", "8 seats, then."))
    assert (first.superseded_by, first.replies) == (4, (3,))
    said = (*SEATS[:3], ("u", "Sorry, not 6 but 8 seats."), ("a", "8 seats, then."))
    assert [window.skip and window.skip.reason for window in windows(*said)] == ["superseded", None]


def test_persistence_beyond_the_window_is_unobserved_and_counted() -> None:
    (window,) = windows(*SEATS[:4])
    assert window.unobserved
    answer = kept(incorporation_check_turns=[3]) | {"incorporation_evidence": [{"turn_index": 3, "quote": "6"}]}
    result = WindowResult(window_id="C1", result=RUBRIC.parse(json.dumps(answer), window))
    verdict = RUBRIC.merge(chat(*SEATS[:4]), [result])
    assert isinstance(verdict, Verdict)
    assert verdict.data["session"]["persistence_unobserved"] == 1


def test_a_reply_cut_off_and_the_last_event_of_a_session_that_we_closed_are_unevaluable() -> None:
    assert skip(*SEATS, cut={3: "length"}) == "cut_off"
    for reason in ("max_turns", "max_bytes", "max_age"):
        assert skip(*SEATS, close_reason=reason) == "cut_off"
    assert windows(*SEATS, close_reason="inactivity")[0].skip is None


def test_no_reply_is_no_response() -> None:
    assert skip(*SEATS[:3]) == "no_response"


# -- answer and numbers ------------------------------------------------------------------------------------------


def test_the_answer_has_the_fields_that_the_rubric_names() -> None:
    named = {
        "correction_id", "correction_turn_index", "corrected_claim", "correction_content", "correction_type",
        "acknowledgment_quote", "incorporation_check_turns", "incorporation_evidence", "reversion_turn_index",
        "over_correction_detail", "failure_mode", "rationale", "is_correction", "targets_turn", *CRITERIA,
    }  # fmt: skip
    assert named <= set(CorrectionAnswer.__struct_fields__)
    assert set(RUBRIC.schema(seats())["required"]) == set(CorrectionAnswer.__struct_fields__)


def test_the_types_and_the_failure_modes_in_their_order() -> None:
    assert set(CORRECTION_TYPES) == {
        "factual_correction", "preference_change", "constraint_update", "retraction", "instruction_override",
    }  # fmt: skip
    assert FAILURE_MODES == ("contradicted", "ignored", "reverted", "partial", "none")
    system = load("correction").system
    places = [system.index(f"{place}. {mode}:") for place, mode in enumerate(FAILURE_MODES, 1)]
    assert places == sorted(places)


@pytest.mark.parametrize("anchor", [
    "| acknowledgment | says so and names what was corrected (quote it) | only behaves differently | carries on",
    "| incorporation_accuracy | every later reply right | part of it, small slips | old value again, or",
    "| persistence | kept to the end of what is shown | right in the next reply, drifts later; used in part |",
    "| no_over_correction | applied only where it belongs | slight spill | changes unrelated things",
])  # fmt: skip
def test_every_scale_has_its_anchors_in_the_prompt(anchor: str) -> None:
    assert anchor in load("correction").system


def test_code_computes_composite_score_flag_and_regression() -> None:
    data = event(reverted())
    assert data["composite"] == 3.25
    assert data["correction_response_score"] == (3.25 - 1) / 4
    assert data["acknowledgment_flag"] is True
    assert event(kept(acknowledgment=2))["acknowledgment_flag"] is False
    assert data["regression_detected"] is True
    assert event(kept())["regression_detected"] is False


def test_session_aggregates_are_stored() -> None:
    session = judged(reverted(), kept()).data["session"]
    assert session["total_turns"] == len(SEATS)
    assert session["correction_count"] == 2
    assert session["average_composite"] == (3.25 + 5) / 2
    assert (session["fully_incorporated"], session["with_reversion"]) == (1, 1)
    assert session["worst_criterion"] == "persistence"
    assert session["overall_assessment"].startswith("1 of 2 corrections was taken and kept (1 reverted)")


def test_session_aggregates_are_exported() -> None:
    scores = RUBRIC.outcomes(judged(reverted(), kept())).scores
    assert scores["correction_session_turns"] == [len(SEATS)]
    assert scores["correction_session_events"] == [2]
    assert scores["correction_session_composite"] == [(3.25 + 5) / 2]
    assert scores["correction_session_incorporated"] == scores["correction_session_reverted"] == [0.5]
    assert scores["correction_session_worst:persistence"] == [3.0]
    assert all(name.partition(":")[0] in CATALOGUE for name in scores)


# -- review ------------------------------------------------------------------------------------------------------


def test_an_event_under_070_is_a_candidate_a_session_is_flagged_from_two_events_on() -> None:
    assert judged(reverted()).data["review"]["event_candidates"] == ["C1"]
    assert judged(reverted()).data["review"]["flagged"] is False
    assert judged(reverted(), reverted()).data["review"]["reasons"] == ["low_average"]
    assert judged(reverted(), kept(), kept()).data["review"]["flagged"] is False


def test_common_in_high_risk_sessions_every_regression_low_composite_and_failure_goes_to_a_person() -> None:
    review = judged(reverted(), risk="high").data["review"]
    assert review["flagged"]
    assert review["awaiting_review"]
    assert review["reasons"] == ["high_risk_regression", "high_risk_failing"]
    low = reverted(acknowledgment=1, incorporation_accuracy=1, persistence=1)
    assert "high_risk_low_composite" in judged(low, risk="high").data["review"]["reasons"]


# -- sampling, outcomes, common ----------------------------------------------------------------------------------


def test_at_most_eight_events_by_the_coin_with_the_probability_recorded() -> None:
    said = [("u", "Count."), ("a", "1")]
    for index in range(10):
        said += [("u", f"No, I meant {index + 10}."), ("a", f"Sorry, {index + 10}.")]
    picked = windows(*said)
    assert len(picked) == 8
    results = [WindowResult(window_id=w.window_id, result=Skipped(reason="no_response")) for w in picked]
    verdict = RUBRIC.merge(chat(*said), results)
    assert isinstance(verdict, Verdict)
    assert verdict.data["sampling"] == {"events": 10, "sampled_events": 8, "probability": 0.8}
    stage = RUBRIC.outcomes(verdict).stage
    assert (stage.found, stage.judged) == (10, 8)


def test_outcomes_are_counted_by_event_and_the_scores_have_histograms() -> None:
    assert set(RUBRIC.measures) == {
        "reverted", "ignored", "partial", "contradicted", "over_corrected", "misaligned",
    }  # fmt: skip
    outcomes = RUBRIC.outcomes(judged(reverted(), kept()))
    assert (outcomes.measures["reverted"].trials, outcomes.measures["reverted"].failures) == (2, 1)
    assert set(outcomes.scores) <= set(RUBRIC.scores)
    assert {"correction_response_score", *(f"criterion_score:{name}" for name in CRITERIA)} <= set(outcomes.scores)
    assert {CATALOGUE[score.partition(":")[0]].kind for score in RUBRIC.scores} == {"histogram"}


def test_common_constraints_go_into_the_prompt_and_change_its_hash() -> None:
    own = load("correction", constraints="Prices are settled by the catalog alone.")
    assert "Prices are settled by the catalog alone." in own.system
    assert own.prompt_hash != load("correction").prompt_hash


def test_common_the_judge_may_not_use_its_own_knowledge() -> None:
    assert "Never use knowledge of your own" in load("correction").system


def test_common_one_repair_quotes_the_error_and_a_second_failure_is_unscored() -> None:
    flow = judge_flow(RUBRIC, seats(), load("correction"))
    next(flow)
    again = flow.send(Completion(text=json.dumps(kept() | {"persistence": 9})))
    assert "persistence" in again.messages[-1].text
    with pytest.raises(StopIteration) as stop:
        flow.send(Completion(text="{}"))
    assert stop.value.value.result.reason == "invalid"


def test_common_every_threshold_is_a_setting_with_this_default() -> None:
    default = CorrectionSettings()
    assert (default.replies, default.max_events) == (4, 8)
    assert (default.review_score, default.high_risk_composite) == (0.7, 3.0)
    own = configured(RubricSettings(correction=CorrectionSettings(replies=1)))["correction"]
    assert isinstance(own, CorrectionRubric)
    assert own.windows(chat(*SEATS[:6]))[0].unobserved is False
    assert RUBRIC.windows(chat(*SEATS[:6]))[0].unobserved is True
