"""The hallucination rubric: checks of an answer, windows, groundedness and the graph of what came back."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.errors import InvalidVerdict
from monitor.events import Passage
from monitor.judgement import Tally, Unscored, Verdict
from monitor.judging.lexical.hallucination import answer as lexical
from monitor.judging.prompt import load
from monitor.rubrics.bands import BANDS, turn_band
from monitor.rubrics.base import WindowResult
from monitor.rubrics.hallucination import HallucinationRubric
from monitor.rubrics.hallucination.answer import repeats
from monitor.rubrics.hallucination.spread import edges, returns, rooted
from monitor.rubrics.hallucination.window import OpenClaim
from monitor.session import Session
from tests.unit.rubrics.build import chat, sessions
from tests.unit.rubrics.hallucination_build import (
    AGAIN,
    DOGS,
    EVIDENCE,
    FERRY,
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
    assert sum(returns(edges(rooted(claims))).values()) == len(claims)


def test_a_cycle_is_an_error() -> None:
    claims = [
        {"claim_id": "1.1", "propagated_from": {"turn_index": 3, "claim_id": "3.1"}},
        {"claim_id": "3.1", "propagated_from": {"turn_index": 1, "claim_id": "1.1"}},
    ]
    with pytest.raises(ValueError, match=r"1\.1"):
        rooted(claims)


def back(claim_id: str, text: str, origin: str, **more: Any) -> dict[str, Any]:
    """Give a claim that came back from another one."""
    turn = int(origin.partition(".")[0])
    found = {"origin_turn_index": turn, "origin_claim_id": origin, "link": "built_on"}
    return claim(claim_id, text, "propagated_hallucination", **(found | more))


def test_an_origin_that_was_taken_up_itself_is_followed_to_the_first_of_its_chain() -> None:
    base = claim("1.1", "120 kronor", "unsupported")
    data = merged(told(base, back("3.1", "120 kronor", "1.1"), back("7.1", "lighthouses", "3.1"))).data
    root = {"turn_index": 1, "claim_id": "1.1"}
    assert [found["propagated_from"] for found in data["claims"]] == [None, root, root]
    assert [edge["from_claim_id"] for edge in data["propagation"]] == ["1.1", "1.1"]
    assert data["session"]["origins"] == {"1.1": 2}
    assert data["session"]["critical"] is True


def test_a_chain_that_began_in_a_turn_without_evidence_goes_back_to_it() -> None:
    said = (("u", "And?"), ("a", "Two lighthouses."), *(("u", "Sure?"), ("a", "Two lighthouses.")) * 2)
    session = chat(*said, evidence={3: (), 5: ()})
    first = back("3.1", "Two lighthouses", "1.1", origin_claim_id="", gap="retrieval_empty")
    again = back("5.1", "Two lighthouses", "3.1", gap="retrieval_empty")
    data = merged(told(first, again, audited_turns=[3, 5]), session).data
    assert data["session"]["origins"] == {"turn 1": 2}
    assert data["claims"][1]["propagated_from"] == {"turn_index": 1, "claim_id": None}


def test_a_chain_is_followed_from_window_to_window() -> None:
    rubric = HallucinationRubric(window_turns=1, overlap_turns=0)
    first, second, third = rubric.windows(island(evidence=EVIDENCE | {5: ()}))[:3]
    text = "The island has two lighthouses"
    answers = (
        (first, [WRONG | {"claim_id": "1.1"}]),
        (second, [back("3.1", "you pay 120 kronor", "1.1")]),
        (third, [back("5.1", text, "3.1", gap="retrieval_empty")]),
    )
    done: list[WindowResult] = []
    for window, claims in answers:
        raw = json.dumps(told(*claims, audited_turns=list(window.audited)))
        result = rubric.parse(raw, rubric.carry(window, done))
        done.append(WindowResult(window_id=window.window_id, result=result))
    found = rubric.merge(island(), done)
    assert isinstance(found, Verdict)
    assert found.data["session"]["origins"] == {"1.1": 2}


@pytest.mark.parametrize(
    ("earlier", "later", "same"),
    [
        ("two lighthouses", "Two lighthouses.", True),
        ("has two lighthouses", "two lighthouses", False),
        ("the island has two lighthouses", "Yes, the island has two lighthouses", True),
        ("As said, the island has two lighthouses", "the island has two lighthouses", True),
        ("the island has two lighthouses", "the island has two old lighthouses", False),
        ("it is 5 degrees", "it is -5 degrees", False),
        ("the isle has two lighthouses", "this isle has two lighthouses", False),
        ("...", "!", False),
    ],
)
def test_verbatim_repeats_are_the_same_words_or_five_in_a_row(earlier: str, later: str, same: bool) -> None:
    assert repeats(later, earlier) is same
    assert repeats(earlier, later) is same


def test_a_claim_in_the_words_of_an_earlier_unfounded_one_is_propagated_not_unsupported() -> None:
    base = claim("1.1", "120 kronor", "unsupported")
    said = refused(told(base, claim("3.1", "120 kronor", "unsupported")))
    assert said == (
        'claims[1].status is "unsupported", but it repeats the words of 1.1, which nothing supports: '
        '"propagated_hallucination".'
    )
    assert parsed(told(base | {"source": "user"}, claim("3.1", "120 kronor", "unsupported")))
    assert parsed(told(base, claim("1.2", "120 kronor", "unsupported")))


def test_a_claim_in_the_words_of_an_open_one_is_propagated() -> None:
    open_claim = OpenClaim(claim_id="0.1", turn_index=0, claim_text="120 Kronor", status="unsupported")
    window = msgspec.structs.replace(only_window(), open_claims=(open_claim,))
    with pytest.raises(InvalidVerdict, match=r"repeats the words of 0\.1"):
        parsed(told(claim("1.1", "120 kronor", "unsupported")), window)


# -- passages that are shown again ---------------------------------------------------------------------


def test_a_passage_that_was_shown_before_is_named_and_not_printed_again() -> None:
    window = only_window(island(evidence={1: (FERRY,), 3: (DOGS, FERRY), 7: (DOGS, DOGS)}))
    rows = RUBRIC.fields(window)["passages"]
    assert rows == [
        {"passage_id": "E1.1", "turn": 1, "text": FERRY.text},
        {"passage_id": "E3.1", "turn": 3, "text": DOGS.text},
        {"passage_id": "E3.2", "turn": 3, "same_as": "E1.1"},
        {"passage_id": "E7.1", "turn": 7, "same_as": "E3.1"},
        {"passage_id": "E7.2", "turn": 7, "same_as": "E3.1"},
    ]
    assert "same_as" in load("hallucination").system


@pytest.mark.parametrize("label", ["E3.2", "E1.1"])
def test_a_repeated_passage_counts_for_the_turn_whichever_label_is_given(label: str) -> None:
    session = island(evidence={1: (FERRY,), 3: (DOGS, FERRY), 7: ()})
    right = claim("3.1", "120 kronor", "contradicts_evidence", passage_id=label, source_quote="costs 90 kronor")
    (found,) = merged(told(right), session).data["claims"]
    assert (found["passage_label"], found["stale"]) == ("E3.2", False)
    with pytest.raises(InvalidVerdict, match="turn 1 or earlier"):
        merged(told(RIGHT | {"passage_id": "E3.2"}), session)


# -- several faults --------------------------------------------------------------------------------------


def test_all_faults_of_an_answer_are_told_at_once_up_to_five() -> None:
    wrong = [RIGHT | {"claim_text": "at noon"}, WRONG | {"source_quote": "91"}]
    said = refused(told(*wrong, rationale=" "))
    assert said.startswith('3 faults: claims[0].claim_text is "at noon", but')
    assert said.count("but ") == 3
    many = [claim(f"1.{number}", "120 kronor", "unsupported", gap="none") for number in range(1, 8)]
    said = refused(told(*many))
    assert said.startswith("7 faults, the first 5 of which are: claims[0].gap")
    assert said.count("name the gap") == 5


def test_a_wrong_number_of_a_claim_hides_no_other_fault_and_makes_none() -> None:
    said = refused(told(RIGHT | {"claim_id": "1.7"}, WRONG, FREE, AGAIN | {"evidence_gap": ""}))
    assert said.startswith("2 faults: claims[0].claim_id")
    assert "claims[3].evidence_gap" in said


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
