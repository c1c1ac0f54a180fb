"""Reports of all rubrics, made of what the rubrics really store."""

from collections.abc import Iterator
from typing import Any

import pytest

from monitor.judgement import SKIP_REASONS, UNSCORED_REASONS, Skipped, Unscored, Verdict
from monitor.rubrics import RUBRICS
from monitor.session import Session, session_view
from monitor.store import StoredJudgement
from monitor.store.ledger import Counts
from monitor.web.report import REPORTS, Report, report
from monitor.web.report.base import SYMBOLS, TONES, listed, sampled
from monitor.web.report.reasons import skipped, unit, unscored
from monitor.web.transcript import transcript
from tests.unit.store.builders import judgement
from tests.unit.web.judged import decided, golden, judged, spreading


def stored(rubric: str, result: Verdict | Skipped | Unscored) -> StoredJudgement:
    answer = judgement(rubric=rubric, result=result)
    return StoredJudgement(
        rubric=rubric, judge="lexical", kind="verdict", reason="", standing="counted", finished_at=0, score=None,
        counts=Counts(), judgement=answer,
    )  # fmt: skip


def reported(rubric: str, data: dict[str, Any], session: Session | None = None) -> Report:
    return report(stored(rubric, Verdict(data=data)), "j0", session)


@pytest.fixture(scope="module")
def verdicts() -> dict[str, list[tuple[Session, dict[str, Any]]]]:
    """Give what the lexical judge says of the golden sets, by rubric, and one session with many claims."""
    found: dict[str, list[tuple[Session, dict[str, Any]]]] = {name: [] for name in RUBRICS}
    answers = [
        (chosen, item) for name, turns in golden() for chosen in [decided(name, turns)] for item in judged(chosen)
    ]
    for chosen, item in (*answers, spreading()):
        if isinstance(item.result, Verdict) and chosen.content is not None:
            found[item.rubric].append((session_view(chosen.content), item.result.data))
    return found


def test_every_rubric_has_a_report() -> None:
    assert set(REPORTS) == set(RUBRICS)


@pytest.mark.parametrize("rubric", RUBRICS)
def test_j2_every_quote_of_a_checked_verdict_is_found_in_its_session(
    rubric: str, verdicts: dict[str, list[tuple[Session, dict[str, Any]]]]
) -> None:
    quotes = 0
    for session, data in verdicts[rubric]:
        made = reported(rubric, data, session)
        located = [item for items in transcript(session, [made]).quotes.values() for item in items]
        assert [item.quote.words for item in located if item.place is None] == []
        quotes += len(located)
    assert quotes > 10


@pytest.mark.parametrize("rubric", RUBRICS)
def test_every_verdict_has_a_sentence_and_every_failure_a_place(
    rubric: str, verdicts: dict[str, list[tuple[Session, dict[str, Any]]]]
) -> None:
    failing = 0
    for session, data in verdicts[rubric]:
        made = reported(rubric, data, session)
        assert made.template == f"{rubric.removesuffix('_whole')}.html"
        assert made.headline.endswith(".")
        outcomes = RUBRICS[rubric].outcomes(Verdict(data=data))
        failed = any(tally.failures for tally in outcomes.measures.values())
        if failed and set(outcomes.measures) - {"misaligned", "unnoticed"}:
            failing += 1
        for part in (*made.where, *made.parts):
            assert 0 <= part.turn < len(session.turns)
        if made.tone == "bad":
            assert made.where
    assert failing


def anchors(made: Report) -> Iterator[str]:
    for finding in made.detail["findings"]:
        yield finding.anchor
        yield from (anchor for anchor, *_ in getattr(finding, "statements", ()))


@pytest.mark.parametrize("rubric", RUBRICS)
def test_parts_and_quotes_lead_to_findings_that_are_there(
    rubric: str, verdicts: dict[str, list[tuple[Session, dict[str, Any]]]]
) -> None:
    for session, data in verdicts[rubric]:
        made = reported(rubric, data, session)
        there = list(anchors(made))
        assert len(set(there)) == len(there)
        assert {quote.anchor for quote in made.quotes} <= set(there)
        assert {part.anchor for part in (*made.parts, *made.where)} <= set(there)


@pytest.mark.parametrize("rubric", RUBRICS)
@pytest.mark.parametrize(
    "data",
    [
        {"answers": [1, None], "events": [3], "claims": [None], "requests": ["x"]},
        {"review": []},
        {"session": "gone"},
        {"answers": [{}], "claims": [{"claim_id": 3}], "events": [{"scores": [1]}], "requests": [{"pushes": 1}]},
    ],
)
def test_data_of_another_form_is_not_guessed_at(rubric: str, data: dict[str, Any]) -> None:
    made = reported(rubric, data)
    assert made.template is None
    assert "don't know the form" in made.headline


@pytest.mark.parametrize("rubric", RUBRICS)
def test_data_of_an_older_version_may_lack_what_came_later(rubric: str) -> None:
    assert reported(rubric, {}).template


def test_a_rubric_of_tomorrow_is_shown_as_data() -> None:
    assert reported("tomorrow", {"a": 1}).template is None


def test_every_reason_has_words() -> None:
    for reason in SKIP_REASONS:
        assert len(skipped(Skipped(reason=reason))) > len(unit(reason)) > len(reason)
    for missing in UNSCORED_REASONS:
        assert len(unscored(Unscored(reason=missing))) > len(missing) + 5


def test_every_tone_has_a_symbol_of_its_own() -> None:
    assert set(SYMBOLS) == set(TONES)
    assert len(set(SYMBOLS.values())) == len(TONES)


EVENT = {"correction_id": "C1", "correction_turn_index": 2, "failure_mode": "none", "scores": {}}


def test_second_stage_sampling_is_said() -> None:
    made = reported(
        "correction", {"events": [EVENT] * 8, "sampling": {"events": 13, "sampled_events": 8, "probability": 0.6}}
    )
    assert made.doubts[0].startswith("8 of 13 corrections judged")
    made = reported(
        "conversation", {"answers": [{"turn_index": 1}], "sampling": {"answers": 9, "sampled_answers": 6}}
    )
    assert made.doubts[0].startswith("6 of 9 answers judged")
    assert sampled(3, 3, "answers") == ()


def test_corrections_that_were_not_judged_are_named_with_their_reason() -> None:
    skips = [{"correction_id": "C2", "reason": "superseded", "note": "turn 6 corrects the same"}]
    made = reported("correction", {"events": [{**EVENT, "persistence_unobserved": True}], "skipped": skips})
    assert [(item.label, item.reason, item.note) for item in made.passed_over] == [
        ("C2", "superseded", "turn 6 corrects the same")
    ]
    assert made.doubts == (
        "persistence not seen to the end: too few replies followed",
        "1 correction not judged",
    )


def test_whole_mode_says_what_event_mode_would_have_missed() -> None:
    events = [
        {**EVENT, "noticed": False, "superseded_by_turn_index": 6},
        {**EVENT, "correction_id": "C2", "noticed": True},
    ]
    made = reported("correction_whole", {"events": events})
    assert made.doubts == ("C1 would have been missed by the wording rules of event mode",)
    assert [(part.label, part.says) for part in made.parts if part.turn == 6] == [("C1 whole", "superseded here")]


def test_a_reversion_is_where_to_look_first() -> None:
    event = {**EVENT, "failure_mode": "reverted", "reversion_turn_index": 9, "first_right_use_turn_index": 3}
    made = reported("correction", {"events": [event]})
    assert [(part.turn, part.says) for part in made.where] == [(9, "reversion")]
    assert made.tone == "bad"


REQUEST = {
    "request_id": "R1", "turn_index": 0, "basis": "policy", "outcome": "eroded", "first_refusal_turn_index": 1,
    "yield_turn_index": 3, "erosion_turn_index": 5, "tactic_before_erosion": "role_play",
    "pushes": [{"turn_index": 2, "quote": "x", "tactic": "repeated"},
               {"turn_index": 4, "quote": "y", "tactic": "role_play"}],
}  # fmt: skip
STATES = [
    {"turn_index": turn, "state": state, "request_id": "R1", "quote": "q"}
    for turn, state in ((5, "none"), (1, "full"), (3, "partial"))
] + [{"turn_index": 7, "state": "none"}]


def test_the_course_of_a_request_runs_by_its_turns_with_pushes_between() -> None:
    made = reported("refusal", {"requests": [REQUEST], "turns": STATES})
    steps = made.detail["findings"][0].steps
    assert [(step.turn, step.kind, step.tone, step.flag) for step in steps] == [
        (0, "asked", "info", ""),
        (1, "reply", "good", ""),
        (2, "push", "warn", ""),
        (3, "reply", "warn", "gives way"),
        (4, "push", "warn", ""),
        (5, "reply", "bad", "eroded here"),
    ]
    assert [part.turn for part in made.where] == [5]
    assert made.headline == "Eroded: the refusal gave way in turn 5, after role play (2 pushes)."
    assert made.detail["others"] == 1


def test_refusing_what_should_be_answered_is_the_failure() -> None:
    request = {**REQUEST, "basis": "none", "outcome": "over_refused", "pushes": [], "erosion_turn_index": None}
    made = reported("refusal", {"requests": [request], "turns": STATES})
    steps = [step for step in made.detail["findings"][0].steps if step.kind == "reply"]
    assert [(step.turn, step.tone) for step in steps] == [(1, "bad"), (3, "warn"), (5, "good")]
    assert [part.turn for part in made.where] == [1]


def test_claims_that_spread_are_drawn_each_once() -> None:
    chosen, answer = spreading()
    assert isinstance(answer.result, Verdict)
    assert chosen.content is not None
    made = reported("hallucination", answer.result.data, session_view(chosen.content))
    drawing = made.detail["drawing"]
    assert len(drawing.lines) == 18
    assert len(drawing.boxes) == 20
    assert all(box.node.anchor for box in drawing.boxes)
    assert [part.turn for part in made.where] == list(range(1, 20, 2))
    assert made.headline == "Of 40 claims, 18 came back unsupported and 12 unsupported; the session fails."


def test_an_origin_that_was_never_audited_stands_for_its_turn() -> None:
    claim = {"turn_index": 3, "claim_id": "3.1", "status": "propagated_hallucination", "link": "repeat",
             "propagated_from": {"turn_index": 1, "claim_id": None}}  # fmt: skip
    made = reported("hallucination", {"claims": [claim]})
    nodes = {box.node.key: box.node for box in made.detail["drawing"].boxes}
    assert nodes["turn 1"].anchor is None
    assert nodes["3.1"].says == "repeats turn 1"


def test_words_are_listed_as_a_sentence_does() -> None:
    assert [listed(list("abc"[:count])) for count in range(4)] == ["", "a", "a and b", "a, b and c"]
