"""The requirements of the hallucination rubric, line by line: each test names the line that it holds to."""

from __future__ import annotations

import json

import pytest

from monitor.errors import InvalidVerdict
from monitor.events import Passage
from monitor.judging.prompt import load
from monitor.metrics import CATALOGUE
from monitor.rubrics import RUBRICS, configured
from monitor.rubrics.bands import BANDS
from monitor.rubrics.hallucination import HallucinationRubric
from monitor.rubrics.hallucination.answer import GAPS, LINKS, STATUSES
from monitor.settings import HallucinationSettings, RubricSettings
from tests.unit.rubrics.build import chat
from tests.unit.rubrics.hallucination_build import (
    AGAIN,
    FREE,
    LIGHTS,
    RIGHT,
    RUBRIC,
    WRONG,
    claim,
    island,
    merged,
    only_window,
    parsed,
    told,
)


def test_audited_is_each_assistant_turn_with_an_evidence_entry_even_an_empty_one() -> None:
    assert only_window().audited == (1, 3, 7)


def test_the_judge_may_use_nothing_but_the_evidence_true_but_unsupported_is_unsupported() -> None:
    system = load("hallucination").system
    assert "Never use knowledge of your own" in system
    assert "true and that no passage supports is unsupported" in system


def test_no_claims_are_opinions_pleasantries_style_and_a_right_refusal_for_lack_of_evidence() -> None:
    system = load("hallucination").system
    assert "No claims: opinions, pleasantries" in system
    assert "rightly declines for lack of evidence makes no claim" in system


def test_what_the_user_said_of_their_own_case_is_out_of_the_denominators() -> None:
    mine = claim("1.1", "The ferry leaves at 8.10", "unsupported", source="user", gap="evidence_ignored")
    assert merged(told(mine, FREE)).data["session"]["claims"] == 1


@pytest.mark.parametrize("missing", ["passage_id", "source_quote"])
def test_grounded_and_contradicting_claims_need_a_passage_and_its_words(missing: str) -> None:
    with pytest.raises(InvalidVerdict, match=r"claims\[0\]"):
        parsed(told(RIGHT | {missing: ""}))


def test_the_quote_is_verbatim_from_that_passage() -> None:
    with pytest.raises(InvalidVerdict, match="doesn't have these words"):
        parsed(told(RIGHT | {"source_quote": "The ferry leaves at nine"}))


def test_every_other_status_says_what_is_missing() -> None:
    with pytest.raises(InvalidVerdict, match="what is missing"):
        parsed(told(claim("1.1", "The ferry", "unsupported", evidence_gap="")))


def test_the_statuses_stand_in_the_order_in_which_the_first_holds() -> None:
    assert STATUSES == ("contradicts_evidence", "grounded", "propagated_hallucination", "unsupported")
    system = load("hallucination").system
    places = [system.index(f"{place}. {status}") for place, status in enumerate(STATUSES, 1)]
    assert places == sorted(places)


def test_with_scope_session_an_older_passage_grounds_a_claim_as_stale_with_turn_it_does_not() -> None:
    late = claim("3.1", "120 kronor", "grounded", passage_id="E1.1", source_quote="kronor")
    assert merged(told(late)).data["claims"][0]["stale"] is True
    with pytest.raises(InvalidVerdict):
        HallucinationRubric(evidence_scope="turn").parse(json.dumps(told(late)), only_window())


def test_a_claim_that_returns_is_a_repeat_mutated_or_built_on() -> None:
    assert LINKS == ("repeat", "mutated", "built_on", "none")


def test_an_origin_is_always_earlier() -> None:
    with pytest.raises(InvalidVerdict, match="always earlier"):
        parsed(told(RIGHT, WRONG, FREE, AGAIN | {"origin_turn_index": 3}))


def test_an_origin_in_a_turn_without_evidence_is_allowed_and_marked() -> None:
    (found,) = merged(told(LIGHTS)).data["claims"]
    assert found["propagated_from"] == {"turn_index": 5, "claim_id": None}


def test_turn_groundedness_is_grounded_by_claims_and_the_sessions_is_the_mean_over_turns_that_have_one() -> None:
    data = merged(told(RIGHT, WRONG, FREE)).data
    assert [turn["groundedness"] for turn in data["turns"]] == [0.5, 1.0, None]
    assert data["session"]["groundedness"] == pytest.approx(0.75)


def test_turns_without_claims_have_no_groundedness_and_are_counted() -> None:
    assert merged(told(RIGHT, FREE)).data["session"]["turns_without_claims"] == 1


def test_every_audited_turn_stands_in_the_answer_exactly_once() -> None:
    with pytest.raises(InvalidVerdict, match="exactly once"):
        parsed(told(audited_turns=[1, 3]))


def test_a_turn_without_an_evidence_event_is_counted_and_never_passed() -> None:
    verdict = merged(told())
    assert verdict.data["session"]["turns_without_evidence"] == 1
    assert RUBRIC.outcomes(verdict).skipped_events == {"no_evidence": 1}
    skipped = RUBRIC.applies(island(evidence={}))
    assert skipped is not None
    assert skipped.reason == "no_evidence"


def test_over_twenty_assistant_turns_windows_of_twenty_overlap_by_four_and_count_them_once() -> None:
    said = [("u", "Go on."), ("a", "It costs 17 crowns.")] * 30
    evidence = {2 * n + 1: (Passage(id="p", text="It is free."),) for n in range(30)}
    first, second = RUBRIC.windows(chat(*said, evidence=evidence))
    assert (len(first.audited), len(second.audited)) == (20, 10)
    shown = [turn.index for turn in second.turns if turn.role == "assistant"]
    assert shown[:4] == list(first.audited[-4:])
    assert not set(first.audited) & set(second.audited)


def test_windows_run_in_order_each_with_the_open_claims_so_far() -> None:
    assert RUBRIC.sequential
    assert "open_claims" in RUBRIC.fields(only_window())


def test_a_session_under_the_threshold_is_a_failing_one() -> None:
    assert RUBRIC.min_groundedness == 0.8
    assert merged(told(RIGHT, WRONG, FREE)).data["session"]["failing"] is True
    assert merged(told(RIGHT, FREE)).data["session"]["failing"] is False


def test_critical_is_any_contradiction_or_a_claim_that_came_back_twice() -> None:
    assert merged(told(RIGHT, WRONG)).data["session"]["critical"] is True
    base = claim("1.1", "120 kronor", "unsupported")
    once = claim(
        "3.1", "120 kronor", "propagated_hallucination", origin_turn_index=1, origin_claim_id="1.1", link="repeat"
    )
    twice = claim(
        "7.1",
        "lighthouses",
        "propagated_hallucination",
        origin_turn_index=3,
        origin_claim_id="3.1",
        link="built_on",
    )
    assert merged(told(base, once)).data["session"]["critical"] is False
    assert merged(told(base, once, twice)).data["session"]["critical"] is True


def test_gaps_are_retrieval_empty_retrieval_insufficient_or_evidence_ignored() -> None:
    assert GAPS == ("retrieval_empty", "retrieval_insufficient", "evidence_ignored", "none")
    with pytest.raises(InvalidVerdict, match="without any passage"):
        parsed(told(claim("7.1", "two lighthouses", "unsupported", gap="evidence_ignored")))


def test_growth_is_groundedness_by_turn_band() -> None:
    assert BANDS == ("1-5", "6-10", "11-20", "21+")
    assert CATALOGUE["groundedness_ratio"].labels[-1] == "turn_band"
    assert RUBRIC.scores == tuple(f"groundedness_ratio:{band}" for band in BANDS)


def test_common_failing_high_risk_sessions_go_to_a_person_and_critical_ones_await_them() -> None:
    review = merged(told(), island(risk="high")).data["review"]
    assert review["reasons"] == ["high_risk_failing", "high_risk_critical"]
    assert review["awaiting_review"] is True
    assert merged(told()).data["review"]["flagged"] is False


def test_common_every_threshold_is_a_setting() -> None:
    own = HallucinationSettings(window_turns=5, overlap_turns=1, min_groundedness=0.5, evidence_scope="turn")
    rubric = configured(RubricSettings(hallucination=own))["hallucination"]
    assert isinstance(rubric, HallucinationRubric)
    assert (rubric.window_turns, rubric.overlap_turns, rubric.min_groundedness) == (5, 1, 0.5)
    assert "hallucination" in RUBRICS
