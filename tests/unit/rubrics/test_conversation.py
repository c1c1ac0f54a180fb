"""The conversation rubric: every check of an answer, what it cites, and every number that code makes of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.errors import InvalidVerdict
from monitor.events import Passage
from monitor.judgement import Skipped, Tally, Verdict
from monitor.judging.lexical.conversation import answer as lexical
from monitor.judging.prompt import load
from monitor.rubrics.answers import _searched
from monitor.rubrics.base import WindowResult
from monitor.rubrics.conversation import ConversationRubric, grade
from monitor.rubrics.conversation.citations import citations
from monitor.rubrics.passages import LabelledPassage
from monitor.session import Session
from tests.unit.rubrics.build import chat, sessions
from tests.unit.rubrics.conversation_build import (
    BOAT,
    BOATS,
    RUBRIC,
    STALE,
    TICKET,
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


def refused(answer: dict[str, Any], **more: Any) -> str:
    with pytest.raises(InvalidVerdict) as error:
        judged(answer, **more)
    return str(error.value)


# -- every check ---------------------------------------------------------------------------------------------


def cited(**changes: Any) -> list[dict[str, Any]]:
    return [{"citation_id": "K1", "statement_id": "S1", "verdict": "right"} | changes]


def dimension(place: int, **changes: Any) -> list[dict[str, Any]]:
    found = graded()
    found[place] |= changes
    return found


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"turn_index": 1}, "turn_index", "is in turn 3"),
        ({"task": "chat"}, "task", "chat"),
        ({"question": "none"}, "question_quote", "must be empty"),
        ({"question_quote": ""}, "question_quote", "quote what was asked"),
        ({"question_quote": "When does the train leave?"}, "question_quote", "doesn't have these words"),
        ({"question": "vague"}, "question", "vague"),
        ({"asks_back_quote": "Which boat?"}, "asks_back_quote", "doesn't have these words"),
        ({"statements": [statement(2), STALE]}, "statements[0].statement_id", '"S1"'),
        ({"statements": [statement(quote="The boat sank"), STALE]}, "statements[0].quote", "doesn't have"),
        ({"statements": [statement(quote=""), STALE]}, "statements[0].quote", "doesn't have"),
        ({"statements": [statement(passage_id="E9.9"), STALE]}, "statements[0].passage_id", "one of the passages"),
        ({"statements": [statement(source_quote="at noon"), STALE]}, "statements[0].source_quote", "doesn't have"),
        ({"statements": [statement(unsupported_parts=["21:40"]), STALE]}, "unsupported_parts", '"supported"'),
        ({"statements": [statement(support="partly"), STALE]}, "unsupported_parts", "at least one"),
        (
            {"statements": [statement(support="partly", unsupported_parts=["noon"]), STALE]},
            "statements[0].unsupported_parts",
            "doesn't have these words",
        ),
        (
            {"statements": [statement(support="unsupported", unsupported_parts=["21:40"]), STALE]},
            "statements[0].passage_id",
            "no passage supports",
        ),
        (
            {"statements": [statement(), STALE | {"support": "contradicted", "unsupported_parts": ["6 euros"]}]},
            "statements[1].passage_id",
            "evidence of the reply itself",
        ),
        ({"citations": []}, "citations", "exactly once"),
        ({"citations": cited() * 2}, "citations", "exactly once"),
        ({"citations": cited(statement_id="S7")}, "citations[0].statement_id", "one of the statements"),
        ({"citations": cited(verdict="fabricated")}, "citations[0].verdict", "leads to E3.1"),
        ({"citations": cited(verdict="fine")}, "verdict", "fine"),
        ({"invented_source_quote": "the harbor office"}, "invented_source_quote", "doesn't have these words"),
        ({"settled_turn_index": 3, "settled_quote": "21:40"}, "settled_turn_index", "before the reply"),
        ({"settled_turn_index": 44}, "settled_turn_index", "before the reply"),
        ({"settled_turn_index": 1, "settled_quote": "7 euros"}, "settled_quote", "doesn't have these words"),
        ({"settled_quote": "6 euros"}, "settled_quote", "must be empty"),
        ({"stance_quote": ""}, "stance_quote", "must quote"),
        ({"stance_quote": "I think"}, "stance_quote", "doesn't have these words"),
        ({"stance": "abstains"}, "stance", '"hedges"'),
        ({"stance": "asks"}, "asks_back_quote", "a question to quote"),
        ({"stance": "shrugs"}, "stance", "shrugs"),
        ({"evidence": "plenty"}, "evidence", "plenty"),
        ({"dimensions": graded()[:4]}, "dimensions", "exactly once"),
        ({"dimensions": graded()[::-1]}, "dimensions", "in this order"),
        ({"dimensions": dimension(1, rationale=" ")}, "dimensions[1].rationale", "needs a reason"),
        ({"dimensions": dimension(1, quote="nowhere")}, "dimensions[1].quote", "doesn't have these words"),
        ({"dimensions": dimension(3, score=6)}, "dimensions[3].score", "1 to 5"),
        ({"dimensions": dimension(3, score=0)}, "dimensions[3].score", "1 to 5"),
        ({"dimensions": dimension(4, score=5)}, "dimensions[4].score", "follows from evidence and stance"),
        ({"dimensions": dimension(0, score=-1)}, "dimensions[0].score", "before the question"),
        ({"dimensions": dimension(1, score=-1)}, "dimensions[1].score", "cites something"),
        ({"dimensions": dimension(2, score=-1)}, "dimensions[2].score", "the user asked something"),
        ({"dimensions": dimension(3, score=-1)}, "dimensions[3].score", "the reply states something"),
        ({"rationale": "  "}, "rationale", "one sentence"),
        ({"rationale": "x" * 601}, "rationale", "600"),
    ],
)
def test_what_breaks_a_rule_is_refused_by_field_and_rule(changes: dict[str, Any], field: str, words: str) -> None:
    said = refused(told(**changes))
    assert field in said
    assert words in said


def test_all_faults_of_an_answer_are_told_at_once() -> None:
    said = refused(
        told(
            statements=[statement(quote="The boat sank"), STALE | {"source_quote": "at noon"}],
            stance_quote="I think",
            scores={"evidence_faithfulness": 4},
        )
    )
    assert said.startswith('4 faults: statements[0].quote is "The boat sank", but')
    assert 'statements[1].source_quote is "at noon", but E1.1' in said
    assert 'stance_quote is "I think", but' in said
    assert said.endswith("but evidence_faithfulness must be 5, since every statement is supported.")


def test_a_dimension_is_told_one_fault_never_two_that_contradict_each_other() -> None:
    stated = {"statements": [], "citations": cited(statement_id=""), "stance": "abstains"}
    said = refused(told(scores={"evidence_faithfulness": 3, "abstention_correctness": 5}, **stated))
    assert said == (
        "2 faults: dimensions[3].score is 3, but evidence_faithfulness must be -1, since it applies only where "
        "the reply states something. dimensions[4].score is 5, but it must be -1, since abstention_correctness "
        "follows from evidence and stance."
    )


def test_an_older_passage_of_the_same_text_is_named_and_not_printed_again() -> None:
    again = Passage(id="boats-1", text=BOATS.text)
    window = window_of(pier(evidence={1: (again, TICKET), 3: (BOATS,)}), 3)
    fields = RUBRIC.fields(window)
    assert fields["passages"] == [{"passage_id": "E3.1", "of": "boats-7", "text": BOATS.text}]
    assert fields["older_passages"] == [
        {"passage_id": "E1.1", "of": "boats-1", "same_as": "E3.1"},
        {"passage_id": "E1.2", "of": "fares-1", "text": TICKET.text},
    ]
    older = statement(passage_id="E1.1")
    found = parsed(window, told(statements=[older, STALE | {"passage_id": "E1.2"}]))["statements"]
    assert [item["stale"] for item in found] == [False, True]
    assert "same_as" in load("conversation").system


PART = statement(support="partly", unsupported_parts=["21:40"])


@pytest.mark.parametrize(
    ("changes", "place", "score", "why"),
    [
        ({}, 0, 3, "no settled point"),
        ({"settled_turn_index": 1, "settled_quote": "6 euros"}, 0, 4, "is contradicted"),
        ({}, 1, 3, "every citation is right"),
        ({"citations": cited(verdict="wrong")}, 1, 4, "a citation is wrong"),
        ({"invented_source_quote": "The pier"}, 1, 3, "made up"),
        ({"statements": [statement(), unsupported("The pier ticket costs 6 euros", 2)]}, 1, 4, "isn't supported"),
        ({}, 2, 4, "the question was clear"),
        ({"question": "ambiguous"}, 2, 4, "doesn't ask back"),
        ({"asks_back_quote": "The last boat"}, 2, 4, "asks back though"),
        ({"question": "ambiguous", "asks_back_quote": "The last boat"}, 2, 2, "asks back about"),
        ({}, 3, 4, "every statement is supported"),
        ({"statements": [PART, STALE]}, 3, 5, "only in part"),
        (
            {"statements": [statement(), unsupported("The pier ticket costs 6 euros", 2)], "citing": 3},
            3,
            4,
            "a statement is unsupported",
        ),
        (
            {"statements": [statement(support="contradicted", unsupported_parts=["21:40"]), STALE], "citing": 3,
             "citations": cited(verdict="wrong")},
            3,
            3,
            "contradicted",
        ),
    ],
)  # fmt: skip
def test_a_score_must_go_with_what_was_observed(changes: dict[str, Any], place: int, score: int, why: str) -> None:
    changes = dict(changes)
    citing = changes.pop("citing", 5)
    found = graded(citation_accuracy=citing)
    found[place] |= {"score": score}
    said = refused(told(dimensions=found, **changes))
    assert f"dimensions[{place}].score" in said
    assert why in said


def test_a_required_citation_that_is_missing_bounds_the_score() -> None:
    assert "no citation" in refused(told(), citation_required=True)


def test_a_right_citation_needs_a_carried_statement() -> None:
    other = unsupported(BOAT)
    assert "citations[0].verdict" in refused(told(statements=[other, STALE]))


def test_a_failing_dimension_without_a_quote_is_refused() -> None:
    found = graded(turn_consistency=1)
    found[0]["quote"] = ""
    said = refused(told(settled_turn_index=1, settled_quote="6 euros", dimensions=found))
    assert "dimensions[0].quote" in said


def test_without_a_passage_the_evidence_is_insufficient() -> None:
    window, answer = about("I can't tell.", (), stance="abstains", evidence="sufficient")
    with pytest.raises(InvalidVerdict, match="evidence is"):
        RUBRIC.parse(json.dumps(answer), window)


def test_what_is_not_from_evidence_needs_nothing_but_its_turn_and_a_reason() -> None:
    window = window_of(pier(), 3)
    chatty = told(task="general_chat", statements=[unsupported(BOAT, 9)], dimensions=[])
    assert isinstance(RUBRIC.parse(json.dumps(chatty), window), Skipped)
    with pytest.raises(InvalidVerdict, match="rationale"):
        RUBRIC.parse(json.dumps(chatty | {"rationale": ""}), window)


def test_a_reply_that_rests_on_a_passage_is_not_passed_over_as_chat() -> None:
    assert refused(told(task="creative")).startswith('task is "creative", but ')


def test_a_part_that_is_named_twice_would_count_twice() -> None:
    twice = statement(unsupported_parts=["21:40", " 21:40"], support="partly")
    assert "statements[0].unsupported_parts[1] is " in refused(told(statements=[twice]))


def test_enums_are_compared_without_regard_to_case() -> None:
    assert judged(told(stance="Answers", question="CLEAR"))["stance"] == "answers"


@given(st.sampled_from(sorted(told())))
def test_every_field_is_required(name: str) -> None:
    assert name in refused({key: value for key, value in told().items() if key != name})


# -- from observations to grades -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("question", "evidence", "stance", "wanted"),
    [
        ("clear", "sufficient", "answers", "pass"),
        ("clear", "insufficient", "answers", "unfounded_answer"),
        ("clear", "partial", "answers", "unfounded_answer"),
        ("clear", "partial", "abstains", "pass"),
        ("ambiguous", "sufficient", "abstains", "needless_abstention"),
        ("clear", "insufficient", "hedges", "pass"),
        ("clear", "insufficient", "asks", "not_applicable"),
        ("clear", "insufficient", "other", "not_applicable"),
        ("none", "insufficient", "answers", "not_applicable"),
    ],
)
def test_abstention(question: Any, evidence: Any, stance: Any, wanted: str) -> None:
    assert grade.abstention(question, evidence, stance) == wanted


def test_the_supported_share_counts_words() -> None:
    said = [("The boat leaves at nine", ["at nine"]), ("It is red", [])]
    assert grade.supported_share(said) == pytest.approx(1 - 2 / 8)
    assert grade.supported_share([("one two", ["one two", "two"])]) == 0
    assert grade.supported_share([]) is None


@given(st.lists(st.tuples(st.text(max_size=20), st.lists(st.text(max_size=9), max_size=3)), max_size=4))
def test_the_supported_share_lies_between_0_and_1(statements: list[tuple[str, list[str]]]) -> None:
    share = grade.supported_share(statements)
    assert share is None or 0 <= share <= 1


@given(st.lists(st.sampled_from([-1, 1, 2, 3, 4, 5]), min_size=4, max_size=4), st.sampled_from(["pass", "fail"]))
def test_overall_score_is_1_only_if_everything_is_perfect(scores: list[int], abstention: str) -> None:
    found: dict[str, dict[str, Any]] = {grade.ABSTENTION: {"score": None, "result": abstention}}
    for name, score in zip(grade.DIMENSIONS[:4], scores, strict=True):
        found[name] = {"score": None if score < 0 else score, "result": grade.result(score, 4)}
    overall = grade.overall_score(found)
    assert overall is not None
    assert 0 <= overall <= 1
    assert (overall == 1) == (abstention == "pass" and all(score in {-1, 5} for score in scores))
    if grade.overall_pass(found):
        assert overall >= 0.75


# -- citations -----------------------------------------------------------------------------------------------

SHELF = (
    LabelledPassage(label="E3.1", turn=3, passage_id="kb-17", text="See https://pier.example/boats for more."),
    LabelledPassage(label="E3.2", turn=3, passage_id="kb-18", text="Tickets."),
    LabelledPassage(label="E1.1", turn=1, passage_id="https://pier.example/old", text="Older."),
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Nine [2].", [("[2]", "E3.2")]),
        ("Nine [1, 2] and more [3].", [("[1, 2]", "E3.1"), ("[1, 2]", "E3.2"), ("[3]", "")]),
        ("Nine 【1】.", [("【1】", "E3.1")]),
        ("Nine [kb-18].", [("[kb-18]", "E3.2")]),
        ("Nine [kb-99].", [("[kb-99]", "")]),
        ("At https://pier.example/boats.", [("https://pier.example/boats", "E3.1")]),
        ("At https://pier.example/old today", [("https://pier.example/old", "E1.1")]),
        ("At (https://made.example/up)", [("https://made.example/up", "")]),
        ("[the timetable](https://pier.example/boats)", [("https://pier.example/boats", "E3.1")]),
        ("A list [sic] of [0] or [some words] is none.", [("[0]", "")]),
        ("No citation.", []),
    ],
)
def test_citations_lead_to_passages(text: str, found: list[tuple[str, str]]) -> None:
    seen = citations(text, 3, SHELF, ("number", "id", "url"))
    assert [(citation.text, citation.passage_id) for citation in seen] == found
    assert [citation.citation_id for citation in seen] == [f"K{number + 1}" for number in range(len(seen))]


# -- windows, merging, outcomes ------------------------------------------------------------------------------


def test_context_and_older_passages_are_bounded() -> None:
    said = [turn for number in range(6) for turn in (("u", f"Question {number}?"), ("a", f"Answer {number}."))]
    evidence = {2 * number + 1: passage(f"Passage {number}.") for number in range(6)}
    rubric = ConversationRubric(context_turns=5, older_passages=1)
    window = window_of(chat(*said, evidence=evidence), 11, rubric)
    assert [turn.index for turn in window.turns] == [6, 7, 8, 9, 10, 11]
    assert [shown.label for shown in window.passages] == ["E11.1", "E9.1"]


def test_a_passage_that_came_again_is_not_stale() -> None:
    window = window_of(pier(evidence={1: passage("Same."), 3: passage("Same.")}), 3)
    assert [shown.label for shown in window.passages] == ["E3.1"]


def test_a_reply_of_invisible_characters_is_none() -> None:
    session = chat(("u", "Which is it?"), ("a", "\x1b\u200b"), evidence={1: passage("Six.")})
    skipped = RUBRIC.applies(session)
    assert skipped is not None
    assert skipped.reason == "no_response"


def test_sampling_is_even_over_sessions() -> None:
    said = [turn for number in range(4) for turn in (("u", "Question?"), ("a", "Answer."))]
    evidence = {2 * number + 1: passage("Answer.") for number in range(4)}
    rubric = ConversationRubric(max_answers=1)
    picked = [
        rubric.windows(chat(*said, evidence=evidence, session_id=f"s{number}"))[0].answer for number in range(400)
    ]
    assert all(60 <= picked.count(turn) <= 140 for turn in (1, 3, 5, 7))


def test_merging_counts_turns_without_evidence_and_names_the_worst_dimension() -> None:
    failing = told(settled_turn_index=1, settled_quote="6 euros", scores={"turn_consistency": 1})
    session = merged(pier(), failing).data["session"]
    assert session["worst_dimension"] == "turn_consistency"
    assert (session["judged_answers"], session["failed_answers"], session["turns_without_evidence"]) == (1, 1, 0)
    assert merged(pier(), told()).data["session"]["worst_dimension"] is None


def test_a_session_of_nothing_but_chat_is_skipped() -> None:
    verdict = RUBRIC.merge(pier(), [])
    assert isinstance(verdict, Skipped)
    window = window_of(pier(), 3)
    chatty = RUBRIC.parse(json.dumps(told(task="creative", statements=[])), window)
    from_chat = RUBRIC.merge(pier(), [_result("A3", chatty)])
    assert isinstance(from_chat, Skipped)
    assert from_chat.reason == "not_applicable"


def test_outcomes_count_each_measure_over_its_own_trials() -> None:
    measures = RUBRIC.outcomes(merged(pier(), told())).measures
    assert measures["failed"] == Tally(trials=1, failures=0)
    assert measures["stale_evidence"] == Tally(trials=1, failures=1)
    assert measures["fabricated_citation"] == Tally(trials=1, failures=0)
    bare = merged(pier(evidence={1: passage("Six."), 3: ()}, cut={1: "length"}), _bare()).data
    assert bare["answers"][0]["dimensions"]["evidence_faithfulness"]["result"] == "fail"
    assert bare["skipped"][0]["reason"] == "cut_off"


def _bare() -> dict[str, Any]:
    return told(
        statements=[unsupported(BOAT)],
        citations=[{"citation_id": "K1", "statement_id": "S1", "verdict": "fabricated"}],
        evidence="insufficient",
        scores={"citation_accuracy": 1, "evidence_faithfulness": 1},
    )


def _result(window_id: str, result: Verdict | Skipped) -> WindowResult:
    return WindowResult(window_id=window_id, result=result)


# -- examples and the lexical judge --------------------------------------------------------------------------


@st.composite
def _with_evidence(draw: st.DrawFn) -> Session:
    session = draw(sessions())
    words = st.text(max_size=12) | st.sampled_from(["six seats [1].", "March 8th, not 5:15 pm", "[kb-1] garden"])
    passages = st.lists(st.builds(Passage, id=st.text(min_size=1, max_size=5), text=words), max_size=3)
    found = draw(st.dictionaries(st.integers(0, 14), passages.map(tuple), max_size=8))
    marks = draw(st.dictionaries(st.integers(0, 14), st.sampled_from([" [1]", " [kb-1]", " https://a.b/c"])))
    said = [
        (
            {"user": "u", "assistant": "a", "system": "s", "tool": "t"}[turn.role],
            turn.text + marks.get(turn.index, ""),
        )
        for turn in session.turns
    ]
    return chat(*said, evidence=found, close_reason=session.close_reason)


@given(_with_evidence(), st.booleans())
def test_the_lexical_answer_to_any_session_is_accepted(session: Session, required: bool) -> None:
    rubric = ConversationRubric(citation_required=required)
    for window in rubric.windows(session):
        assert isinstance(rubric.parse(json.dumps(lexical(window)), window), Verdict | Skipped)


def test_words_that_stand_twice_in_a_statement_may_be_told_twice() -> None:
    """The share of a statement that is carried counts words, and `can` was invented twice here."""
    said = "Boats can turn and can wait."
    window = window_of(chat(("u", "Boats?"), ("a", said), evidence={1: passage("Boats turn and wait.")}), 1)
    given = lexical(window)
    assert given["statements"][0]["unsupported_parts"] == ["can", "can"]
    assert isinstance(RUBRIC.parse(json.dumps(given), window), Verdict)
    given["statements"][0]["unsupported_parts"].append("can")
    with pytest.raises(InvalidVerdict, match="that part is there already"):
        RUBRIC.parse(json.dumps(given), window)


def test_a_reply_of_many_statements_is_normalized_once() -> None:
    """A reply of 2,000 lines took four seconds, in which the process did nothing else."""
    reply = " ".join(f"Boat {number} leaves." for number in range(300))
    window = window_of(chat(("u", "Which boats?"), ("a", reply), evidence={1: passage("Boats.")}), 1)
    quotes = [unsupported(f"Boat {number} leaves.", number + 1) for number in range(300)]
    before = _searched.cache_info().misses
    with pytest.raises(InvalidVerdict):
        RUBRIC.parse(json.dumps(told(turn_index=1, question_quote="Which boats?", statements=quotes)), window)
    assert _searched.cache_info().misses - before < 302 + 5
