"""The offline judge: string rules that answer in the same JSON and go through the same parser."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given, settings

from monitor.errors import JudgeFatal
from monitor.judgement import Skipped, Verdict
from monitor.judging.flow import judge_flow
from monitor.judging.lexical import LexicalJudge
from monitor.judging.lexical.correction import answer
from monitor.judging.model import JudgeRequest
from monitor.judging.prompt import load
from monitor.session import Session
from tests.unit.rubrics.build import RUBRIC, SEATS, Said, chat, corrected, seats, sessions

HOLD = SEATS[:2]
SEVEN: Said = ("u", "No, make it 7 pm.")
MEET: tuple[Said, ...] = (("u", "Meet Anna at 5 pm in Ulm"), ("a", "You will meet Anna at 5 pm in Ulm, correct?"))


def judged(*said: Said) -> dict[str, object]:
    (window,) = RUBRIC.windows(chat(*said))
    verdict = RUBRIC.parse(json.dumps(answer(window)), window)
    assert isinstance(verdict, Verdict)
    return verdict.data


@pytest.mark.parametrize(
    ("said", "mode"),
    [
        ((*MEET, SEVEN, ("a", "You will meet Anna at 19:00 in Ulm.")), "none"),
        ((*MEET, SEVEN, ("a", "You will meet Anna at 5 pm in Ulm.")), "ignored"),
        ((*MEET, SEVEN, ("a", "I don't think that's right, you asked for 5 pm.")), "contradicted"),
        ((*MEET, SEVEN, ("a", "7 pm, then."), ("u", "Where?"), ("a", "In Ulm, at 5 pm.")), "reverted"),
        ((*MEET, ("u", "No, at 7 pm in Bonn."), ("a", "You will meet Anna at 7 pm in Ulm.")), "partial"),
        ((*MEET, SEVEN, ("a", "All done!")), "none"),
    ],
)
def test_failure_modes(said: tuple[Said, ...], mode: str) -> None:
    assert judged(*said)["failure_mode"] == mode


VAN: tuple[Said, ...] = (("u", "Move me."), ("a", "A large van from Ulm to Bonn on May 3 at 9 am. Is that right?"))


@pytest.mark.parametrize(
    ("correction", "reply", "mode"),
    [
        (
            "I'd rather go on May 5? Do they have an opening at 11 am?",
            "A large van to Bonn on May 5 at 9 am. Is that right?",
            "partial",
        ),
        (
            "I'd rather go on May 5? Do they have an opening at 11 am?",
            "A large van to Bonn on May 5 at 11 am. Is that right?",
            "none",
        ),
        ("No, a small van to Kehl.", "A small van from Ulm to Bonn on May 3. Is that right?", "partial"),
        ("No, from green haven on May 5.", "A van from green haven to Bonn on May 3. Is that right?", "partial"),
        ("No, from green haven on May 5.", "A large van to Bonn on May 3. Is that right?", "ignored"),
    ],
    ids=["a question", "both", "a class word", "lower case", "neither"],
)
def test_each_value_of_a_correction_counts_however_it_is_put(correction: str, reply: str, mode: str) -> None:
    (window,) = RUBRIC.windows(chat(*VAN, ("u", correction), ("a", reply), corrections=(corrected(2),)))
    assert answer(window)["failure_mode"] == mode


def test_the_teams_of_a_match_are_one_name() -> None:
    said = (("u", "One."), ("a", "1 ticket for Hawks Vs Doves in New Ulm on March 11th. Do you confirm?"))
    reply = ("a", "A ticket for Hawks Vs Doves on March 11th: do you confirm?")
    assert judged(*said, ("u", "No, I prefer Larks Vs Red Wrens"), reply)["failure_mode"] == "ignored"


def test_a_detail_of_the_last_reply_may_be_changed_besides_even_if_a_users_turn_is_corrected() -> None:
    said = (
        ("u", "Yes. Play it on the porch speaker please."),
        ("a", "Please confirmL playing the song Silver Lining on the porch."),
        ("u", "No, play it on the speaker in cellar."),
    )
    data = judged(*said, ("a", "Please confirm: playing the song Amber Field in the cellar."))
    assert data["error_turn_index"] == 0
    assert data["over_correction_detail"] == "Silver Lining became Amber Field"


def test_what_a_number_counts_is_no_detail_of_its_own() -> None:
    said = (("u", "A table."), ("a", "A table for 3 at Corvo in Ulm on May 3 at 6 pm. Is that right?"))
    data = judged(*said, ("u", "No, on May 5."), ("a", "A table for 3 people on May 5. Is that right?"))
    assert data["over_corrected"] is False


@pytest.mark.parametrize(
    ("first", "correction", "taken", "back"),
    [
        ("Booked for 5 pm.", "Make it 7 pm.", "Done, 7 pm.", "Your table is at 17:00."),
        ("Booked for 5 pm.", "No, 7.", "Sure, 7 pm it is.", "Yes. See you at five."),
        ("A table for four.", "Sorry, six people.", "Six people, noted.", "Your table for 4 is ready."),
        ("Noted, March 3.", "Actually March 5.", "Changed to March 5.", "You arrive on the third of March."),
        ("Budget $20.", "I said 30 dollars.", "Sorry, 30 dollars.", "It is within your budget of twenty dollars."),
        ("One red bike.", "Blue, please.", "A blue bike then.", "The red bike ships tomorrow."),
        ("I'll call Anna Berg.", "I meant Ina Lund.", "Calling Ina Lund.", "I'll let Anna know that you called."),
        ("Dr. Morgan, thanks.", "Dr. Johnson, I meant.", "Dr. Johnson, noted.", "Dr. Morgan is free at 9."),
        ("I'll order 25 chairs.", "35 chairs.", "35 chairs.", "Your twenty-five chairs arrive on Monday."),
        ("I'll order oat milk.", "Soy milk please.", "Soy milk it is.", "The oat milk is 3 dollars."),
        ("Meeting at 5 pm.", "It should be 6 pm.", "Updated!", "In room 2 at 5 pm."),
    ],
)
def test_an_old_value_comes_back_in_another_format(first: str, correction: str, taken: str, back: str) -> None:
    said = (("u", "Hello"), ("a", first), ("u", correction), ("a", taken), ("u", "And then?"), ("a", back))
    data = judged(*said)
    assert (data["failure_mode"], data["reversion_turn_index"]) == ("reverted", 5)


@pytest.mark.parametrize(
    ("first", "correction", "taken", "later"),
    [
        ("Booked for 5 pm.", "Make it 7 pm.", "Done, 7 pm.", "Your table is at 19:00."),
        ("Booked for 5 pm.", "No, 7.", "Sure, 7 pm it is.", "Yes, for 5 cars."),
        ("Budget $20.", "I said 30 dollars.", "Sorry, 30 dollars.", "About 20 minutes."),
        ("I'll order 25 chairs.", "35 chairs.", "35 chairs.", "They arrive on the 25th."),
        ("I'll order oat milk.", "Soy milk please.", "Soy milk it is.", "The milk is 3 dollars."),
        ("Meeting at 5 pm.", "It should be 6 pm.", "Updated!", "In room 5."),
    ],
)
def test_the_same_figures_of_something_else_are_no_reversion(
    first: str, correction: str, taken: str, later: str
) -> None:
    said = (("u", "Hello"), ("a", first), ("u", correction), ("a", taken), ("u", "And then?"), ("a", later))
    assert judged(*said)["failure_mode"] == "none"


def test_reverted_names_the_turn_and_quotes_it() -> None:
    data = judged(*SEATS)
    assert (data["first_right_use_turn_index"], data["reversion_turn_index"]) == (3, 5)
    assert {"turn_index": 5, "quote": SEATS[5][1]} in data["incorporation_evidence"]  # type: ignore[operator]


def test_an_old_value_that_the_user_asks_about_is_no_reversion() -> None:
    data = judged(*MEET, SEVEN, ("a", "7 pm, then."), ("u", "Was it 5 pm before?"), ("a", "It was 5 pm before."))
    assert data["failure_mode"] == "none"


def test_a_silent_reply_is_scored_lower_than_one_that_names_the_value() -> None:
    silent = judged(*MEET, SEVEN, ("a", "All done!"))
    named = judged(*MEET, SEVEN, ("a", "Meeting Anna at 7 pm in Ulm."))
    assert silent["scores"]["incorporation_accuracy"] == 4  # type: ignore[index]
    assert named["scores"]["incorporation_accuracy"] == 5  # type: ignore[index]


def test_an_acknowledgment_is_quoted() -> None:
    data = judged(*MEET, SEVEN, ("a", "You're right, 7 pm it is."))
    assert data["acknowledgment_quote"] == "You're right"
    assert data["acknowledgment_flag"] is True


def test_agreeing_words_are_no_dispute() -> None:
    data = judged(*MEET, SEVEN, ("a", "You're right, you said 7 pm. I have changed it."))
    assert data["failure_mode"] == "none"


def test_another_detail_that_changes_is_an_over_correction() -> None:
    data = judged(*MEET, SEVEN, ("a", "You will meet Berta at 7 pm in Ulm, correct?"))
    assert (data["failure_mode"], data["over_corrected"]) == ("none", True)
    assert data["over_correction_detail"] == "Anna became Berta"


def test_a_detail_that_was_asked_for_is_none() -> None:
    data = judged(*MEET, ("u", "No, Berta, at 7 pm"), ("a", "You will meet Berta at 7 pm in Ulm, correct?"))
    assert data["over_corrected"] is False


def test_a_bare_denial_is_not_applicable() -> None:
    (window,) = RUBRIC.windows(chat(*MEET, ("u", "That's wrong."), ("a", "Sorry, what should it be?")))
    result = RUBRIC.parse(json.dumps(answer(window)), window)
    assert isinstance(result, Skipped)
    assert result.reason == "not_applicable"


def test_a_retraction_needs_no_new_value() -> None:
    assert judged(*MEET, ("u", "Scratch that."), ("a", "All right."))["correction_type"] == "retraction"


def test_it_answers_through_the_seam() -> None:
    flow = judge_flow(RUBRIC, seats(), load("correction"))
    request = next(flow)
    completion = asyncio.run(LexicalJudge().complete(request, timeout=1))
    with pytest.raises(StopIteration) as stop:
        flow.send(completion)
    assert isinstance(stop.value.value.result, Verdict)
    assert [attempt.kind for attempt in stop.value.value.attempts] == ["valid"]


def test_a_rubric_without_rules_is_fatal() -> None:
    request = JudgeRequest(rubric="x", window_id="1", system="", messages=(), schema={}, max_tokens=1, window=None)
    with pytest.raises(JudgeFatal, match="rubric x"):
        asyncio.run(LexicalJudge().complete(request, timeout=1))


@settings(max_examples=200)
@given(sessions())
def test_its_answer_to_any_session_is_accepted(session: Session) -> None:
    for window in RUBRIC.windows(session):
        if RUBRIC.preflight(window) is None:
            given_ = answer(window)
            assert list(given_) == RUBRIC.schema(window)["required"]
            RUBRIC.parse(json.dumps(given_), window)
            assert answer(window) == given_
