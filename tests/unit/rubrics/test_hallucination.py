"""The hallucination rubric: checks of an answer, windows, groundedness and the graph of what came back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.errors import InvalidVerdict
from monitor.events import Passage
from monitor.judgement import Tally, Unscored, Verdict
from monitor.judging.lexical.hallucination import answer as lexical
from monitor.rubrics.bands import BANDS, turn_band
from monitor.rubrics.base import WindowResult
from monitor.rubrics.hallucination import HallucinationRubric
from monitor.rubrics.hallucination.spread import chains, edges
from monitor.session import Session
from tests.unit.rubrics.build import chat, sessions
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


def refused(answer: dict[str, Any]) -> str:
    with pytest.raises(InvalidVerdict) as error:
        parsed(answer)
    return str(error.value)


# -- numbers and graph -----------------------------------------------------------------------------


def test_groundedness_of_turns_and_session() -> None:
    data = merged(told()).data
    assert [(turn["turn_index"], turn["groundedness"]) for turn in data["turns"]] == [(1, 0.5), (3, 0.5), (7, 0.0)]
    assert data["session"]["groundedness"] == pytest.approx(1 / 3)
    assert data["session"]["failing"] is True


def test_a_turn_without_claims_has_no_groundedness_and_is_counted() -> None:
    data = merged(told(RIGHT, FREE)).data
    assert data["turns"][2]["groundedness"] is None
    assert data["session"]["turns_without_claims"] == 1
    assert data["session"]["groundedness"] == 1.0


def test_what_the_user_said_is_kept_out_of_the_denominators() -> None:
    mine = claim("1.1", "The ferry leaves at 8.10", "unsupported", source="user", gap="evidence_ignored")
    data = merged(told(mine, FREE)).data
    assert data["turns"][0]["groundedness"] is None
    assert (data["session"]["claims"], data["session"]["user_claims"]) == (1, 1)


def test_the_graph_leads_from_origin_to_what_came_of_it() -> None:
    data = merged(told()).data
    assert [(edge["from_turn_index"], edge["to_claim_id"]) for edge in data["propagation"]] == [
        (1, "3.2"),
        (5, "7.1"),
    ]
    assert data["session"]["origins"] == {"1.2": 1, "turn 5": 1}


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(1, 9)), max_size=20))
def test_origins_that_are_earlier_make_no_cycle(pairs: list[tuple[int, int]]) -> None:
    claims = [
        {
            "claim_id": f"{later}.{place}",
            "turn_index": later,
            "propagated_from": {"turn_index": min(earlier, later - 1), "claim_id": None},
            "link": "repeat",
        }
        for place, (earlier, later) in enumerate(pairs)
    ]
    assert sum(chains(edges(claims)).values()) == len(claims)


def test_a_cycle_is_an_error() -> None:
    graph = [
        {"to_claim_id": "1.1", "from_claim_id": "3.1", "from_turn_index": 3},
        {"to_claim_id": "3.1", "from_claim_id": "1.1", "from_turn_index": 1},
    ]
    with pytest.raises(ValueError, match=r"1\.1"):
        chains(graph)


def test_outcomes_count_claims_gaps_and_sessions() -> None:
    outcomes = RUBRIC.outcomes(merged(told()))
    assert outcomes.measures == {
        "unsupported": Tally(trials=5, failures=0),
        "contradicted": Tally(trials=5, failures=1),
        "propagated": Tally(trials=5, failures=2),
        "retrieval_empty": Tally(trials=5, failures=1),
        "retrieval_insufficient": Tally(trials=5, failures=0),
        "evidence_ignored": Tally(trials=5, failures=1),
        "failing_session": Tally(trials=1, failures=1),
        "critical_session": Tally(trials=1, failures=1),
    }
    assert outcomes.scores == {"groundedness_ratio:1-5": [0.5, 0.5, 0.0]}
    assert outcomes.skipped_events == {"no_evidence": 1}
    assert set(outcomes.measures) == set(RUBRIC.measures)


@pytest.mark.parametrize(("number", "band"), [(1, "1-5"), (5, "1-5"), (6, "6-10"), (20, "11-20"), (21, "21+")])
def test_bands(number: int, band: str) -> None:
    assert turn_band(number) == band
    assert band in BANDS


# -- windows ---------------------------------------------------------------------------------------


def long(replies: int) -> Session:
    said = [("u", "Go on."), ("a", "It costs 17 crowns to get in, every day.")] * replies
    passage = Passage(id="p", text="Entry is free.")
    return chat(*said, evidence={2 * place + 1: (passage,) for place in range(replies)})


@given(st.integers(1, 70), st.integers(2, 20), st.integers(0, 8))
def test_every_reply_is_audited_in_exactly_one_window(replies: int, size: int, overlap: int) -> None:
    rubric = HallucinationRubric(window_turns=size, overlap_turns=min(overlap, size - 1))
    windows = rubric.windows(long(replies))
    assert [turn for window in windows for turn in window.audited] == [2 * n + 1 for n in range(replies)]
    assert all(sum(turn.role == "assistant" for turn in window.turns) <= size for window in windows)


def judged(rubric: HallucinationRubric, session: Session) -> Verdict:
    done: list[WindowResult] = []
    for window in rubric.windows(session):
        carried = rubric.carry(window, done)
        result = rubric.parse(json.dumps(lexical(carried)), carried)
        done.append(WindowResult(window_id=window.window_id, result=result))
    merged_ = rubric.merge(session, done)
    assert isinstance(merged_, Verdict)
    return merged_


def test_windows_give_the_same_claims_and_edges_as_one_piece() -> None:
    session = long(45)
    cut = judged(HallucinationRubric(), session).data
    whole = judged(HallucinationRubric(window_turns=100), session).data
    assert cut["claims"] == whole["claims"]
    assert cut["propagation"] == whole["propagation"]
    # The origin lies in the first window, the last repeat in the third.
    assert {edge["from_claim_id"] for edge in cut["propagation"]} == {"1.1"}
    assert len(cut["propagation"]) == 44


def test_one_unscored_window_leaves_the_session_unscored() -> None:
    lost = WindowResult(window_id="W2", result=Unscored(reason="invalid", note="no"))
    found = RUBRIC.merge(island(), [WindowResult(window_id="W1", result=parsed(told())), lost])
    assert found == Unscored(reason="invalid", note="W2: no")


# -- which sessions --------------------------------------------------------------------------------


def test_sessions_without_evidence_entries_are_skipped_and_never_passed() -> None:
    skipped = RUBRIC.applies(island(evidence={}))
    assert skipped is not None
    assert skipped.reason == "no_evidence"


def test_a_reply_that_was_cut_off_is_not_audited() -> None:
    assert only_window(island(cut={1: "length"})).audited == (3, 7)


# -- every check -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "field", "words"),
    [
        (RIGHT | {"claim_id": "1.7"}, "claims[0].claim_id", '"1.1"'),
        (RIGHT | {"turn_index": 2}, "claims[0].turn_index", "one of the turns"),
        (RIGHT | {"claim_text": "The ferry leaves at 9.10"}, "claims[0].claim_text", "doesn't have these words"),
        (RIGHT | {"passage_id": "E9.1"}, "claims[0].passage_id", "turn 1 or earlier"),
        (RIGHT | {"passage_id": "E3.1"}, "claims[0].passage_id", "turn 1 or earlier"),
        (RIGHT | {"source_quote": "at noon"}, "claims[0].source_quote", "doesn't have these words"),
        (RIGHT | {"source_quote": ""}, "claims[0].source_quote", "doesn't have these words"),
        (RIGHT | {"evidence_gap": "x"}, "claims[0].evidence_gap", "must be empty"),
        (RIGHT | {"gap": "evidence_ignored"}, "claims[0].gap", '"none"'),
        (RIGHT | {"link": "repeat"}, "claims[0].link", "no origin"),
        (RIGHT | {"origin_turn_index": 0}, "claims[0].origin_turn_index", "no origin"),
        (RIGHT | {"status": "true"}, "status", "true"),
        (RIGHT | {"source": "user"}, "claims[0].status", "unsupported"),
        (claim("1.1", "The ferry", "unsupported", evidence_gap=" "), "claims[0].evidence_gap", "what is missing"),
        (claim("1.1", "The ferry", "unsupported", gap="none"), "claims[0].gap", "name the gap"),
        (claim("1.1", "The ferry", "unsupported", gap="retrieval_empty"), "claims[0].gap", "without any passage"),
        (claim("1.1", "The ferry", "unsupported", passage_id="E1.1"), "claims[0].passage_id", "must be empty"),
    ],
)
def test_what_breaks_a_rule_is_refused(changed: dict[str, Any], field: str, words: str) -> None:
    said = refused(told(changed))
    assert field in said
    assert words in said


@pytest.mark.parametrize(
    ("changed", "field", "words"),
    [
        (AGAIN | {"origin_turn_index": 3}, "claims[3].origin_turn_index", "always earlier"),
        (AGAIN | {"origin_claim_id": "1.9"}, "claims[3].origin_claim_id", "no such claim"),
        (AGAIN | {"origin_claim_id": "1.1"}, "claims[3].origin_claim_id", "nothing supports"),
        (AGAIN | {"origin_claim_id": ""}, "claims[3].origin_turn_index", "without evidence"),
        (AGAIN | {"link": "none"}, "claims[3].link", "repeats, changes or builds"),
        (AGAIN | {"origin_turn_index": 0}, "claims[3].origin_turn_index", "is in turn 1"),
    ],
)
def test_an_origin_is_an_earlier_claim_that_nothing_supports(
    changed: dict[str, Any], field: str, words: str
) -> None:
    said = refused(told(RIGHT, WRONG, FREE, changed))
    assert field in said
    assert words in said


@pytest.mark.parametrize("turns", [[1, 3], [1, 3, 7, 7], [3, 1, 7]])
def test_each_audited_turn_stands_there_exactly_once(turns: list[int]) -> None:
    assert "exactly once" in refused(told(audited_turns=turns))


def test_claims_stand_in_the_order_of_their_turns() -> None:
    assert "order of their turns" in refused(told(FREE, RIGHT))


def test_an_older_passage_grounds_a_claim_as_stale_unless_the_scope_is_the_turn() -> None:
    late = claim("3.1", "120 kronor", "grounded", passage_id="E1.1", source_quote="kronor")
    (found,) = merged(told(late)).data["claims"]
    assert found["stale"] is True
    narrow = HallucinationRubric(evidence_scope="turn")
    with pytest.raises(InvalidVerdict, match="only the turn's own evidence counts"):
        narrow.parse(json.dumps(told(late)), only_window())


def test_only_a_turns_own_evidence_contradicts() -> None:
    late = claim("3.1", "120 kronor", "contradicts_evidence", passage_id="E1.1", source_quote="90 kronor")
    assert "own evidence can contradict" in refused(told(late))


def test_an_origin_in_a_turn_without_evidence_has_no_claim() -> None:
    (found,) = merged(told(LIGHTS)).data["claims"]
    assert found["propagated_from"] == {"turn_index": 5, "claim_id": None}


# -- examples and the lexical judge ----------------------------------------------------------------


@given(sessions())
def test_the_lexical_answer_to_any_session_is_accepted(session: Session) -> None:
    if RUBRIC.applies(session) is None:
        judged(RUBRIC, session)
