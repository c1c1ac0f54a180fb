"""The correction rubric, after the judge: checks of an answer (J2), computed numbers (J1), merge and outcomes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.errors import InvalidVerdict
from monitor.judgement import Outcomes, Skipped, Stage, Tally, Unscored, Verdict
from monitor.rubrics import RUBRICS
from monitor.rubrics.base import WindowResult
from monitor.rubrics.correction.answer import CRITERIA
from monitor.rubrics.correction.rubric import MEASURES
from monitor.rubrics.correction.summary import NO_CORRECTION
from tests.unit.rubrics.build import RUBRIC, SEATS, chat, corrected, kept, no_correction, reverted, seats, unjudged


def parsed(answer: dict[str, Any]) -> dict[str, Any]:
    verdict = RUBRIC.parse(json.dumps(answer), seats())
    assert isinstance(verdict, Verdict)
    return verdict.data


def refused(answer: object) -> str:
    with pytest.raises(InvalidVerdict) as caught:
        RUBRIC.parse(answer if isinstance(answer, str) else json.dumps(answer), seats())
    return str(caught.value)


def test_it_is_registered_with_its_measures() -> None:
    assert RUBRICS["correction"].measures == MEASURES
    assert RUBRICS["correction"].mode == "event"


# --- computed numbers


def test_code_computes_what_follows_from_the_observations() -> None:
    data = parsed(reverted())
    assert data["composite"] == (5 + 2 + 1 + 5) / 4
    assert data["correction_response_score"] == (3.25 - 1) / 4
    assert data["acknowledgment_flag"] is True
    assert data["regression_detected"] is True
    assert data["over_corrected"] is False
    assert data["persistence_unobserved"] is False
    assert data["error_turn_index"] == 1
    assert data["review_candidate"] is True


def test_sentinels_become_none() -> None:
    data = parsed(kept(targets_turn=-1, acknowledgment_quote="", acknowledgment=3))
    for field in ("error_turn_index", "reversion_turn_index", "acknowledgment_quote", "over_correction_detail"):
        assert data[field] is None
    assert data["regression_detected"] is False


@pytest.mark.parametrize(("score", "flag"), [(2, False), (3, True), (4, True)])
def test_acknowledgment_flag(score: int, flag: bool) -> None:
    assert parsed(kept(acknowledgment=score))["acknowledgment_flag"] is flag


@pytest.mark.parametrize(("acknowledgment", "candidate"), [(4, False), (1, False)])
def test_a_good_event_is_no_candidate(acknowledgment: int, candidate: bool) -> None:
    assert parsed(kept(acknowledgment=acknowledgment))["review_candidate"] is candidate


# --- what is accepted


def test_enums_are_compared_without_case_and_a_code_fence_is_taken_off() -> None:
    answer = reverted(failure_mode="Reverted", correction_type="FACTUAL_CORRECTION")
    verdict = RUBRIC.parse(f"```json\n{json.dumps(answer, indent=1)}\n```", seats())
    assert isinstance(verdict, Verdict)
    assert verdict.data["failure_mode"] == "reverted"


def test_quotes_are_compared_without_white_space_and_invisible_characters() -> None:
    evidence = [{"turn_index": 3, "quote": " 6\u200b seats\n in the garden room"}]
    assert parsed(kept(incorporation_evidence=evidence))


def test_no_correction_is_misaligned() -> None:
    result = RUBRIC.parse(json.dumps(no_correction()), seats())
    assert isinstance(result, Skipped)
    assert result.reason == "misaligned"


@pytest.mark.parametrize("answer", [unjudged(), no_correction()])
@pytest.mark.parametrize(
    "field",
    [
        "acknowledgment_quote",
        "incorporation_check_turns",
        "incorporation_evidence",
        "first_right_use_turn_index",
        "reversion_turn_index",
        "failure_mode",
    ],
)
def test_what_was_found_in_replies_is_not_passed_over_in_silence(answer: dict[str, Any], field: str) -> None:
    message = refused(answer | {field: reverted()[field]})
    assert message.startswith(f"{field} is ")
    assert ", but where " in message


@pytest.mark.parametrize("field", ["targets_turn", "corrected_claim", "correction_content"])
def test_where_there_is_no_correction_nothing_is_corrected(field: str) -> None:
    assert "where there is no correction" in refused(no_correction(**{field: reverted()[field]}))


@pytest.mark.parametrize("answer", [unjudged(), no_correction()])
def test_scores_are_not_read_where_no_reply_is_judged(answer: dict[str, Any]) -> None:
    for score in (1, 5):
        scores = dict.fromkeys(CRITERIA, score)
        assert isinstance(RUBRIC.parse(json.dumps(answer | scores), seats()), Skipped)


# The four seats stand in turns 0 and 1; turn 3 has nothing of them. Turn 4 corrects.
LATE = (*SEATS[:2], ("u", "And a cloakroom?"), ("a", "It has one."), *SEATS[2:4])


def late(target: int, **named: Any) -> Verdict | Skipped:
    (window,) = RUBRIC.windows(chat(*LATE, corrections=(corrected(4, error_turn_id="t1", **named),)))
    answer = kept(
        targets_turn=target, correction_turn_index=4, incorporation_check_turns=[5], first_right_use_turn_index=5,
        incorporation_evidence=[{"turn_index": 5, "quote": "6 seats"}],
    )  # fmt: skip
    return RUBRIC.parse(json.dumps(answer), window)


@pytest.mark.parametrize("target", [3, -1])
def test_another_claim_than_the_producer_named_is_misaligned(target: int) -> None:
    result = late(target)
    assert isinstance(result, Skipped)
    assert result.reason == "misaligned"
    assert isinstance(late(target, corrected_claim="seats in the garden room"), Skipped)


@pytest.mark.parametrize("named", [{}, {"corrected_claim": "seats in the garden room"}])
def test_another_turn_that_says_the_same_wrong_thing_is_the_same_claim(named: dict[str, Any]) -> None:
    found = late(1, **named)
    assert isinstance(found, Verdict)
    session = chat(*SEATS, corrections=(corrected(2, error_turn_id="t0", **named),))
    (window,) = RUBRIC.windows(session)
    other = RUBRIC.parse(json.dumps(kept(targets_turn=1)), window)
    assert isinstance(other, Verdict)
    assert other.data["error_turn_index"] == 1


def test_an_event_shows_a_claim_and_a_content_only_if_its_producer_gave_them() -> None:
    assert set(RUBRIC.fields(seats())["event"]) == {
        "correction_id", "correction_turn_index", "correction_text", "error_turn_index",
    }  # fmt: skip
    named = corrected(2, corrected_claim="4 seats", correction_content="6 seats")
    (window,) = RUBRIC.windows(chat(*SEATS, corrections=(named,)))
    event = RUBRIC.fields(window)["event"]
    assert (event["corrected_claim"], event["correction_content"]) == ("4 seats", "6 seats")


def test_a_guessed_error_turn_is_not_held_against_the_judge() -> None:
    assert parsed(kept(targets_turn=0))["error_turn_index"] == 0


def test_a_correction_that_does_not_say_what_is_right_is_not_applicable_save_a_retraction() -> None:
    result = RUBRIC.parse(json.dumps(unjudged(correction_content=" ")), seats())
    assert isinstance(result, Skipped)
    assert result.reason == "not_applicable"
    assert parsed(kept(correction_content="", correction_type="retraction"))["correction_type"] == "retraction"


# --- what is refused


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "other event": (reverted(correction_id="C2"), "correction_id"),
    "other turn": (reverted(correction_turn_index=4), "correction_turn_index"),
    "target after the correction": (reverted(targets_turn=3), "targets_turn"),
    "target not shown": (reverted(targets_turn=40), "targets_turn"),
    "acknowledgment not there": (reverted(acknowledgment_quote="Good catch"), "acknowledgment_quote"),
    "acknowledgment said by the user": (reverted(acknowledgment_quote="make it 6 seats"), "acknowledgment_quote"),
    "acknowledgment before the correction": (
        reverted(acknowledgment_quote="I am holding 4 seats in the garden room. Is"),
        "acknowledgment_quote",
    ),
    "5 without a quote": (reverted(acknowledgment_quote=""), "acknowledgment"),
    "a reply left out": (reverted(incorporation_check_turns=[3, 5, 7]), "incorporation_check_turns"),
    "a reply twice": (reverted(incorporation_check_turns=[3, 5, 7, 9, 9]), "incorporation_check_turns"),
    "a user's turn": (reverted(incorporation_check_turns=[3, 4, 5, 7, 9]), "incorporation_check_turns"),
    "no evidence": (kept(incorporation_evidence=[], first_right_use_turn_index=3), "incorporation_evidence"),
    "evidence from the user": (
        reverted(incorporation_evidence=[{"turn_index": 4, "quote": "parking"}]),
        "incorporation_evidence[0].turn_index",
    ),
    "evidence from another turn": (
        reverted(incorporation_evidence=[{"turn_index": 3, "quote": "There is parking"}]),
        "incorporation_evidence[0].quote",
    ),
    "empty evidence": (
        reverted(incorporation_evidence=[{"turn_index": 3, "quote": " "}]),
        "incorporation_evidence[0].quote",
    ),
    "first use not quoted": (reverted(first_right_use_turn_index=7), "first_right_use_turn_index"),
    "first use out of range": (reverted(first_right_use_turn_index=11), "first_right_use_turn_index"),
    "reversion without reverted": (reverted(failure_mode="partial"), "reversion_turn_index"),
    "reverted without reversion": (reverted(reversion_turn_index=-1), "reversion_turn_index"),
    "reversion not later than the first use": (reverted(reversion_turn_index=3), "reversion_turn_index"),
    "reversion without a first use": (reverted(first_right_use_turn_index=-1), "reversion_turn_index"),
    "reversion not quoted": (reverted(reversion_turn_index=7), "reversion_turn_index"),
    "none with low incorporation": (kept() | {"incorporation_accuracy": 3}, "incorporation_accuracy"),
    "none with low persistence": (kept() | {"persistence": 3}, "persistence"),
    "partial with every reply right": (
        kept() | {"failure_mode": "partial"},
        "incorporation_accuracy",
    ),
    "partial without a use": (
        kept() | {"failure_mode": "partial", "incorporation_accuracy": 3, "first_right_use_turn_index": -1},
        "first_right_use_turn_index",
    ),
    "none without a use": (kept() | {"first_right_use_turn_index": -1}, "first_right_use_turn_index"),
    "ignored with high incorporation": (
        kept(first_right_use_turn_index=-1)
        | {"failure_mode": "ignored", "incorporation_accuracy": 3},
        "incorporation_accuracy",
    ),
    "ignored with a use": (
        kept() | {"failure_mode": "ignored", "incorporation_accuracy": 1},
        "first_right_use_turn_index",
    ),
    "over-correction without a turn": (
        reverted(over_correction_detail="the room changed"),
        "over_correction_turn_index",
    ),
    "over-correction without detail": (reverted(over_correction_turn_index=3), "over_correction_turn_index"),
    "over-correction scored 5": (
        reverted(over_correction_detail="the room changed", over_correction_turn_index=3),
        "no_over_correction",
    ),
    "low score without over-correction": (reverted(no_over_correction=2), "no_over_correction"),
    "no rationale": (reverted(rationale=" "), "rationale"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_every_violation_is_one_sentence_that_names_the_field(name: str) -> None:
    answer, field = REFUSED[name]
    message = refused(answer)
    assert message.startswith(f"{field} is "), message
    assert message.endswith(".")
    assert ", but " in message
    assert "\n" not in message


@pytest.mark.parametrize(
    "raw", ["", "none", "[]", "null", '{"is_correction": true', "NaN", '{"a": 1} trailing', "\ud800"]
)
def test_what_is_no_such_object_is_refused(raw: str) -> None:
    assert refused(raw).startswith("The answer ")


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=60))
def test_a_quote_that_is_not_in_the_turn_is_refused(quote: str) -> None:
    turn = seats().turn(3)
    assert turn is not None
    if " ".join(quote.split()) not in turn.text or not quote.strip():
        message = refused(kept(incorporation_evidence=[{"turn_index": 3, "quote": quote}]))
        assert message.startswith("incorporation_evidence[0].quote")


@given(st.text(max_size=300))
def test_no_text_makes_the_parser_fail_in_another_way(raw: str) -> None:
    with pytest.raises(InvalidVerdict):
        RUBRIC.parse(raw, seats())


# --- merge, review, outcomes


def result(window_id: str, **changes: Any) -> WindowResult:
    verdict = RUBRIC.parse(json.dumps(changes.pop("answer", None) or reverted(**changes)), seats())
    assert isinstance(verdict, Verdict)
    return WindowResult(window_id=window_id, result=Verdict(data=verdict.data | {"correction_id": window_id}))


def merged(*results: WindowResult, risk: str = "normal") -> Verdict:
    verdict = RUBRIC.merge(chat(*SEATS, risk=risk), results)
    assert isinstance(verdict, Verdict)
    return verdict


def test_no_correction_gives_a_valid_empty_verdict() -> None:
    session = chat(("u", "Hello"), ("a", "Hello!"))
    verdict = RUBRIC.merge(session, [])
    assert isinstance(verdict, Verdict)
    assert verdict.note == NO_CORRECTION
    outcomes = RUBRIC.outcomes(verdict)
    assert set(outcomes.measures) == set(MEASURES)
    assert set(outcomes.measures.values()) == {Tally(trials=0, failures=0)}
    assert outcomes.scores == {}
    assert verdict.data["session"]["average_composite"] is None


def test_one_unscored_window_leaves_the_session_unscored() -> None:
    lost = WindowResult(window_id="C2", result=Unscored(reason="invalid", note="rationale is empty"))
    verdict = RUBRIC.merge(chat(*SEATS), [result("C1"), lost])
    assert verdict == Unscored(reason="invalid", note="C2: rationale is empty")
    assert RUBRIC.outcomes(verdict) == Outcomes()


def test_session_aggregates() -> None:
    session = merged(result("C1"), result("C2", answer=kept(acknowledgment=3))).data["session"]
    assert session == {
        "total_turns": 10,
        "correction_count": 2,
        "average_composite": (3.25 + 4.5) / 2,
        "fully_incorporated": 1,
        "with_reversion": 1,
        "persistence_unobserved": 0,
        "worst_criterion": "persistence",
        "overall_assessment": "1 of 2 corrections was taken and kept (1 reverted); "
        "composite 3.88 of 5, weakest in persistence.",
    }


def test_the_second_stage_is_recorded_and_goes_into_the_outcomes() -> None:
    said = [("u", "Count."), ("a", "1")]
    for index in range(20):
        said += [("u", f"No, I meant {index + 10}."), ("a", f"Sorry, {index + 10}.")]
    session = chat(*said)
    skips = [
        WindowResult(window_id=w.window_id, result=Skipped(reason="misaligned")) for w in RUBRIC.windows(session)
    ]
    verdict = RUBRIC.merge(session, skips)
    assert isinstance(verdict, Verdict)
    assert verdict.data["sampling"] == {"events": 20, "sampled_events": 8, "probability": 0.4}
    assert verdict.data["session"]["correction_count"] == 20
    assert RUBRIC.outcomes(verdict).stage == Stage(found=20, judged=8)
    assert RUBRIC.outcomes(RUBRIC.merge(chat(("u", "Hello."), ("a", "Hello.")), [])).stage == Stage()


def test_outcomes_count_events_scores_and_skipped_ones() -> None:
    over = kept(over_correction_detail="the room changed", over_correction_turn_index=3)
    results = [
        result("C1"),
        result("C2", answer=over | {"no_over_correction": 1}),
        WindowResult(window_id="C3", result=Skipped(reason="misaligned")),
        WindowResult(window_id="C4", result=Skipped(reason="no_response")),
    ]
    outcomes = RUBRIC.outcomes(merged(*results))
    assert outcomes.measures == {
        "reverted": Tally(trials=2, failures=1),
        "ignored": Tally(trials=2, failures=0),
        "partial": Tally(trials=2, failures=0),
        "contradicted": Tally(trials=2, failures=0),
        "over_corrected": Tally(trials=2, failures=1),
        "misaligned": Tally(trials=3, failures=1),
    }
    assert outcomes.skipped_events == {"misaligned": 1, "no_response": 1}
    assert outcomes.scores["correction_response_score"] == [0.5625, 0.75]
    assert outcomes.scores["criterion_score:persistence"] == [1.0, 5.0]
    session = {name: values for name, values in outcomes.scores.items() if name.startswith("correction_session")}
    assert session == {
        "correction_session_turns": [10.0],
        "correction_session_events": [4.0],
        "correction_session_composite": [(3.25 + 4.0) / 2],
        "correction_session_incorporated": [0.5],
        "correction_session_reverted": [0.5],
        "correction_session_worst:persistence": [3.0],
    }


def test_where_all_is_perfect_no_criterion_is_the_worst() -> None:
    scores = RUBRIC.outcomes(merged(result("C1", answer=kept()))).scores
    assert scores["correction_session_composite"] == [5.0]
    assert not [name for name in scores if name.startswith("correction_session_worst")]


def test_only_skipped_events_still_give_a_verdict_without_trials() -> None:
    verdict = merged(WindowResult(window_id="C1", result=Skipped(reason="no_response")))
    assert verdict.note == "none of 1 corrections could be evaluated"
    assert RUBRIC.outcomes(verdict).measures["reverted"] == Tally(trials=0, failures=0)


def test_one_low_event_is_a_candidate_but_flags_no_session() -> None:
    review = merged(result("C1")).data["review"]
    assert review == {"flagged": False, "reasons": [], "event_candidates": ["C1"], "awaiting_review": False}


def test_two_events_with_a_low_average_flag_the_session() -> None:
    assert merged(result("C1"), result("C2")).data["review"]["reasons"] == ["low_average"]
    good = result("C2", answer=kept())
    assert merged(result("C1"), good).data["review"]["flagged"] is False


def test_a_high_risk_session_goes_to_a_person_on_any_regression_low_composite_or_failure() -> None:
    review = merged(result("C1"), risk="high").data["review"]
    assert review["reasons"] == ["high_risk_regression", "high_risk_failing"]
    assert review["awaiting_review"] is True
    ignored = reverted(
        failure_mode="ignored", reversion_turn_index=-1, first_right_use_turn_index=-1, incorporation_accuracy=1,
        acknowledgment=1,
    )  # fmt: skip
    review = merged(result("C1", answer=ignored), risk="high").data["review"]
    assert review["reasons"] == ["high_risk_low_composite", "high_risk_failing"]
    assert review["awaiting_review"] is False
    assert merged(result("C1", answer=kept()), risk="high").data["review"]["flagged"] is False


def test_skipped_and_unscored_sessions_add_nothing() -> None:
    assert RUBRIC.outcomes(Skipped(reason="not_applicable")) == Outcomes()
    assert RUBRIC.outcomes(Unscored(reason="timeout")) == Outcomes()
