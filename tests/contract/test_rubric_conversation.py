"""The requirements of the conversation rubric, line by line: each test names the line that it holds to."""

from __future__ import annotations

import json

import pytest

from monitor.golden.conversation import ExpectedAnswers
from monitor.golden.rows import read
from monitor.golden.scale import NotJudged
from monitor.judgement import Skipped, Tally, Unscored
from monitor.judging.flow import judge_flow
from monitor.judging.model import Completion
from monitor.judging.prompt import load
from monitor.judging.prompt_files import package
from monitor.metrics import CATALOGUE
from monitor.rubrics import RUBRICS, configured
from monitor.rubrics.base import WindowResult
from monitor.rubrics.conversation.grade import DIMENSIONS
from monitor.settings import ConversationSettings, RubricSettings
from tests.unit.rubrics.build import chat
from tests.unit.rubrics.conversation_build import (
    BOAT,
    BOATS,
    PIER,
    RUBRIC,
    STALE,
    about,
    graded,
    judged,
    merged,
    parsed,
    passage,
    pier,
    statement,
    told,
    unsupported,
    window_of,
)

# -- what is judged ------------------------------------------------------------------------------------------


def test_judged_are_answers_that_rest_on_evidence() -> None:
    session = pier(evidence={3: passage("The last boat leaves at 21:40.")})
    assert [window.answer for window in RUBRIC.windows(session)] == [3]


def test_at_most_six_answers_a_session_are_judged_by_the_coin_and_the_probability_is_recorded() -> None:
    said = [turn for number in range(9) for turn in (("u", f"Question {number}?"), ("a", f"Answer {number}."))]
    session = chat(*said, evidence={2 * number + 1: passage("Answer.") for number in range(9)})
    windows = RUBRIC.windows(session)
    assert len(windows) == 6
    assert [window.answer for window in windows] == [window.answer for window in RUBRIC.windows(session)]
    nothing = {"task": "from_evidence", "statements": [], "citations": [], "stance": "other"}
    answers = [
        told(
            turn_index=window.answer,
            question_quote="Question",
            stance_quote="Answer",
            dimensions=graded(
                "Answer",
                turn_consistency=5 if window.settled else -1,
                citation_accuracy=-1,
                evidence_faithfulness=-1,
            ),
            **nothing,
        )
        for window in windows
    ]
    verdict = merged(session, *answers)
    assert verdict.data["sampling"] == {"answers": 9, "sampled_answers": 6, "probability": 6 / 9}
    stage = RUBRIC.outcomes(verdict).stage
    assert (stage.found, stage.judged) == (9, 6)


@pytest.mark.parametrize("task", ["creative", "general_chat"])
def test_not_for_creative_or_general_chat(task: str) -> None:
    result = RUBRIC.parse(json.dumps(told(task=task, statements=[])), window_of(pier(), 3))
    assert isinstance(result, Skipped)
    assert result.reason == "not_applicable"


def test_not_for_single_turn_sessions() -> None:
    skipped = RUBRIC.applies(chat(("a", "Hello."), evidence={0: passage("x")}))
    assert skipped is not None
    assert skipped.reason == "not_applicable"


# -- the dimensions ------------------------------------------------------------------------------------------


def test_there_are_five_dimensions() -> None:
    assert DIMENSIONS == (
        "turn_consistency",
        "citation_accuracy",
        "clarification_appropriateness",
        "evidence_faithfulness",
        "abstention_correctness",
    )
    assert all(f"- {name}" in load("conversation").system for name in DIMENSIONS)


def test_turn_consistency_contradicts_nothing_settled_before_and_includes_drift() -> None:
    assert "drifts to another" in load("conversation").system
    found = judged(told(settled_turn_index=1, settled_quote="6 euros", scores={"turn_consistency": 2}))
    assert found["dimensions"]["turn_consistency"]["result"] == "fail"
    assert (found["settled_turn_index"], found["settled_quote"]) == (1, "6 euros")


def test_citation_accuracy_every_claim_supported_and_rightly_cited() -> None:
    wrong = [{"citation_id": "K1", "statement_id": "S1", "verdict": "wrong"}]
    found = judged(told(citations=wrong, scores={"citation_accuracy": 3}))
    assert found["dimensions"]["citation_accuracy"]["result"] == "fail"


@pytest.mark.parametrize(
    ("text", "form"), [("[1]", "number"), ("[p1]", "id"), ("https://pier.example/fares", "url")]
)
def test_citation_forms_are_configurable(text: str, form: str) -> None:
    said = (("u", "Which is it?"), ("a", f"It is 6 {text}."))
    session = chat(*said, evidence={1: passage("It is 6, says https://pier.example/fares today.")})
    every = configured(RubricSettings())["conversation"].windows(session)[0]
    assert [found.text for found in every.citations] == [text]  # type: ignore[attr-defined]
    assert every.citations[0].passage_id == "E1.1"  # type: ignore[attr-defined]
    others = [name for name in ("number", "id", "url") if name != form]
    settings = ConversationSettings.model_validate({"citation_forms": others})
    own = configured(RubricSettings(conversation=settings))["conversation"]
    assert own.windows(session)[0].citations == ()  # type: ignore[attr-defined]


def test_citations_may_be_required_of_every_statement() -> None:
    free = judged(told())["dimensions"]["citation_accuracy"]
    assert free["result"] == "pass"
    bound = judged(told(scores={"citation_accuracy": 3}), citation_required=True)
    assert bound["dimensions"]["citation_accuracy"]["result"] == "fail"


def test_a_fabricated_citation_is_an_outcome_of_its_own() -> None:
    window, answer = about(
        "It is 6 [4].",
        passage("It is 6."),
        statements=[statement(quote="It is 6", passage_id="E1.1", source_quote="It is 6")],
        citations=[{"citation_id": "K1", "statement_id": "S1", "verdict": "fabricated"}],
        scores={"citation_accuracy": 1, "evidence_faithfulness": 5},
    )
    assert parsed(window, answer)["fabricated_citation"] is True
    assert judged(told())["fabricated_citation"] is False


def test_clarification_guessing_at_an_ambiguous_question_or_asking_needlessly_fails() -> None:
    guessed = judged(told(question="ambiguous", scores={"clarification_appropriateness": 1}))
    assert guessed["dimensions"]["clarification_appropriateness"]["result"] == "fail"
    asks = {"asks_back_quote": "Do you mean north?", "stance": "asks"}
    low = {"clarification_appropriateness": 2}
    needless = parsed(*about("Do you mean north?", passage("North."), scores=low, **asks))
    assert needless["dimensions"]["clarification_appropriateness"]["result"] == "fail"
    targeted = parsed(*about("Do you mean north?", passage("North."), question="ambiguous", **asks))
    assert targeted["dimensions"]["clarification_appropriateness"]["result"] == "pass"


def test_clarification_is_not_applicable_only_when_the_user_asked_nothing() -> None:
    silent = judged(told(question="none", question_quote="", scores={"clarification_appropriateness": -1}))
    assert silent["dimensions"]["clarification_appropriateness"]["result"] == "not_applicable"


def test_faithfulness_contradicted_or_invented_fails() -> None:
    invented = judged(
        told(
            statements=[unsupported("The last boat leaves at 21:40"), STALE],
            citations=[{"citation_id": "K1", "statement_id": "S1", "verdict": "wrong"}],
            scores={"citation_accuracy": 2, "evidence_faithfulness": 3},
        )
    )
    assert invented["dimensions"]["evidence_faithfulness"]["result"] == "fail"


def test_stale_evidence_is_an_outcome() -> None:
    found = judged(told())
    assert [said["stale"] for said in found["statements"]] == [False, True]
    assert found["stale_evidence"] is True


@pytest.mark.parametrize(
    ("evidence", "stance", "outcome"),
    [
        ("insufficient", "answers", "unfounded_answer"),
        ("partial", "answers", "unfounded_answer"),
        ("sufficient", "answers", None),
        ("insufficient", "hedges", None),
    ],
)
def test_abstention_fails_for_a_confident_answer_without_sufficient_evidence(
    evidence: str, stance: str, outcome: str | None
) -> None:
    found = judged(told(evidence=evidence, stance=stance))
    assert found["unfounded_answer"] is (outcome == "unfounded_answer")
    assert found["dimensions"]["abstention_correctness"]["result"] == ("fail" if outcome else "pass")


def test_abstention_fails_when_the_answer_was_there() -> None:
    window, answer = about("I can't tell.", passage("It is 6."), stance="abstains")
    found = parsed(window, answer)
    assert (found["needless_abstention"], found["unfounded_answer"]) == (True, False)
    assert found["dimensions"]["abstention_correctness"]["result"] == "fail"
    assert parsed(window, answer | {"evidence": "insufficient"})["needless_abstention"] is False


def test_passing_is_a_score_of_four_or_more_and_computed() -> None:
    part = statement(support="partly", unsupported_parts=["21:40"])
    for score, result in ((4, "pass"), (3, "fail")):
        found = judged(told(statements=[part, STALE], scores={"evidence_faithfulness": score}))
        assert found["dimensions"]["evidence_faithfulness"]["result"] == result


def test_each_dimension_has_a_rationale_and_a_quote_where_it_fails() -> None:
    found = judged(told(settled_turn_index=1, settled_quote="6 euros", scores={"turn_consistency": 1}))
    assert all(dimension["rationale"] for dimension in found["dimensions"].values())
    assert found["dimensions"]["turn_consistency"]["quote"] == BOAT


def test_not_applicable_has_no_score_and_is_out_of_numerator_and_denominator() -> None:
    window, answer = about("I can't tell.", passage("Of boats."), stance="abstains", evidence="insufficient")
    found = parsed(window, answer)
    assert found["dimensions"]["evidence_faithfulness"] | {"rationale": "", "quote": ""} == {
        "score": None,
        "result": "not_applicable",
        "quote": "",
        "rationale": "",
    }
    assert (found["overall_pass"], found["overall_score"]) == (True, 1.0)
    session = chat(("u", "Which is it?"), ("a", "I can't tell."), evidence={1: passage("Of boats.")})
    tallies = RUBRIC.outcomes(merged(session, answer)).measures
    assert tallies["evidence_faithfulness"] == Tally(trials=0, failures=0)
    assert tallies["abstention_correctness"] == Tally(trials=1, failures=0)


# -- evidence states -----------------------------------------------------------------------------------------


def test_zero_passages_retrieval_found_nothing_claims_are_unsupported_and_abstention_is_judged() -> None:
    session = pier(evidence={1: passage("The pier ticket costs 6 euros."), 3: ()})
    window = window_of(session, 3)
    assert window.passages == ()
    assert RUBRIC.fields(window)["reply"]["retrieval_found_nothing"] is True
    abstains = about("I found nothing.", (), stance="abstains", evidence="insufficient")
    assert parsed(*abstains)["dimensions"]["abstention_correctness"]["result"] == "pass"


def test_no_evidence_event_at_all_is_no_evidence() -> None:
    skipped = RUBRIC.applies(chat(*PIER))
    assert skipped is not None
    assert skipped.reason == "no_evidence"
    verdict = merged(pier(evidence={3: (BOATS,)}), told(statements=[statement()]))
    assert verdict.data["skipped"] == [{"turn_index": 1, "reason": "no_evidence", "note": None}]
    assert RUBRIC.outcomes(verdict).skipped_events == {"no_evidence": 1}


# -- what code computes --------------------------------------------------------------------------------------


def test_overall_score_is_the_mean_over_applicable_dimensions_and_abstention_one_or_zero() -> None:
    found = judged(
        told(
            evidence="insufficient",
            settled_turn_index=1,
            settled_quote="6 euros",
            scores={"turn_consistency": 3},
        )
    )
    assert found["overall_pass"] is False
    assert found["overall_score"] == pytest.approx((0.5 + 1 + 1 + 1 + 0) / 5)
    assert judged(told())["overall_pass"] is True


def test_high_risk_a_person_sees_every_fail_low_score_failed_citation_and_abstention() -> None:
    settled = {"settled_turn_index": 1, "settled_quote": "6 euros"}
    low = told(evidence="insufficient", scores={"turn_consistency": 1}, **settled)
    review = merged(pier(risk="high"), low, review_score=0.7).data["review"]
    assert review["reasons"] == ["high_risk_failing", "high_risk_low_score", "high_risk_abstention"]
    assert review["awaiting_review"] is True
    wrong = [{"citation_id": "K1", "statement_id": "S1", "verdict": "wrong"}]
    cited = merged(pier(risk="high"), told(citations=wrong, scores={"citation_accuracy": 2})).data["review"]
    assert "high_risk_citation" in cited["reasons"]
    assert merged(pier(risk="high"), told()).data["review"]["flagged"] is False


def test_otherwise_a_sample_of_failing_answers_goes_to_a_person() -> None:
    failing = told(settled_turn_index=1, settled_quote="6 euros", scores={"turn_consistency": 1})
    sessions = [pier(session_id=f"s{number}") for number in range(200)]
    flagged = sum(merged(session, failing).data["review"]["flagged"] for session in sessions)
    assert 5 <= flagged <= 40
    assert merged(pier(), failing, review_share=1.0).data["review"]["reasons"] == ["sampled_failure"]
    assert merged(pier(), failing, review_share=0.0).data["review"]["flagged"] is False
    assert merged(pier(), told(), review_share=1.0).data["review"]["flagged"] is False


def test_exported_are_the_score_by_length_band_and_the_failure_rate_of_each_dimension() -> None:
    assert CATALOGUE["overall_score"].labels[-1] == "length_band"
    assert set(DIMENSIONS) < set(RUBRIC.measures)
    outcomes = RUBRIC.outcomes(merged(pier(), told()))
    assert set(outcomes.measures) == set(RUBRIC.measures)
    assert outcomes.scores == {"overall_score:1-5": [1.0]}
    assert set(outcomes.scores) <= set(RUBRIC.scores)


# -- common --------------------------------------------------------------------------------------------------


def test_common_a_reply_that_was_cut_off_is_not_judged() -> None:
    assert [window.answer for window in RUBRIC.windows(pier(cut={3: "length"}))] == [1]


def test_common_the_last_reply_of_a_session_that_we_cut_is_not_judged() -> None:
    assert [window.answer for window in RUBRIC.windows(pier(close_reason="max_turns"))] == [1]


def test_common_evidence_is_joined_on_the_turn_and_shown_with_its_text() -> None:
    fields = RUBRIC.fields(window_of(pier(), 3))
    assert [shown["passage_id"] for shown in fields["passages"]] == ["E3.1"]
    assert [shown["passage_id"] for shown in fields["older_passages"]] == ["E1.1"]
    assert [turn["turn"] for turn in fields["transcript"]] == [0, 1, 2, 3]


def test_common_constraints_are_in_the_prompt_and_change_its_hash() -> None:
    own = load("conversation", constraints="Prices are always given with tax.")
    assert "Prices are always given with tax." in own.system
    assert own.prompt_hash != load("conversation").prompt_hash


def test_common_the_judge_never_uses_its_own_knowledge() -> None:
    assert "Never use what you know yourself" in load("conversation").system


def test_common_one_unscored_answer_leaves_the_session_unscored() -> None:
    results = [
        WindowResult(window_id="A1", result=Unscored(reason="timeout")),
        WindowResult(window_id="A3", result=RUBRIC.parse(json.dumps(told()), window_of(pier(), 3))),
    ]
    result = RUBRIC.merge(pier(), results)
    assert isinstance(result, Unscored)
    assert RUBRIC.outcomes(result).measures == {}


def test_common_one_repair_quotes_the_error() -> None:
    flow = judge_flow(RUBRIC, window_of(pier(), 3), load("conversation"))
    next(flow)
    again = flow.send(Completion(text=json.dumps(told(turn_index=1))))
    assert "turn_index" in again.messages[-1].text
    with pytest.raises(StopIteration) as stop:
        flow.send(Completion(text="{}"))
    assert stop.value.value.result.reason == "invalid"


def test_common_every_threshold_is_a_setting() -> None:
    strict = ConversationSettings(max_answers=1, pass_score=5, review_score=0.9, review_share=1.0)
    rubric = configured(RubricSettings(conversation=strict))["conversation"]
    assert len(rubric.windows(pier())) == 1
    assert len(RUBRICS["conversation"].windows(pier())) == 2
    part = told(
        statements=[statement(support="partly", unsupported_parts=["21:40"])], scores={"evidence_faithfulness": 4}
    )
    assert judged(part)["overall_pass"] is True
    assert judged(part, pass_score=5)["overall_pass"] is False


# -- the golden set ------------------------------------------------------------------------------------------


def test_the_golden_set_is_put_to_a_judge_as_expected() -> None:
    for item in read(package(), "conversation").rows:
        skipped = RUBRIC.applies(item.session)
        if isinstance(item.expected, NotJudged):
            # Whether a request is a creative one is for the judge to say.
            assert skipped is None or skipped.reason == item.expected.reason, item.id
            continue
        assert isinstance(item.expected, ExpectedAnswers)
        windows = {window.answer: window for window in RUBRIC.windows(item.session)}
        assert sorted(windows) == [unit.turn for unit in item.expected.units], item.id
        for unit in item.expected.units:
            assert (unit.turn_consistency is not None) == windows[unit.turn].settled, item.id
