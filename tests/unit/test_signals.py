"""Signals: counts a policy can look at (DESIGN S1), by wording and by producers' events."""

from __future__ import annotations

import time

import pytest
from hypothesis import given

from monitor.events import Escalation, Feedback, Passage
from monitor.session import Session
from monitor.signals import (
    Signals,
    correction_turns,
    extract,
    is_pushback,
    is_refusal,
    looks_like_correction,
)
from tests.unit.rubrics.build import SEATS, chat, corrected, sessions

PLAN = "I will book a table for Tuesday at 7 pm. Is that correct?"


@pytest.mark.parametrize(
    "text",
    [
        "No, Wednesday please.",
        "no make it two people",
        "I meant the other branch",
        "That\u2019s wrong, it is due in May.",
        "Actually, I need it by noon.",
        "Scratch that, send it by mail.",
        "Wait, it was my brother's name",
        "change the day to Friday",
        "It's not Anna, it's Hannah.",
        "I said blue, not green",
        "You got the address wrong",
        "Could we do Thursday instead?",
        "It should be 40 euros",
    ],
)
def test_wording_of_a_correction(text: str) -> None:
    assert looks_like_correction(text, PLAN)


@pytest.mark.parametrize(
    ("text", "before"),
    [
        ("No thanks, that's all.", "Is there anything else I can do?"),
        ("No, I need nothing more.", "Anything else you would like?"),
        ("no", PLAN),
        ("No, that's fine.", PLAN),
        ("Yes, that sounds good.", PLAN),
        ("Perfect, thank you!", PLAN),
        ("Where is it?", PLAN),
        ("Make sure to keep the receipt.", PLAN),
        ("No idea.", "Which size do you take?"),
        ("No, Wednesday please.", None),
    ],
)
def test_wording_of_no_correction(text: str, before: str | None) -> None:
    assert not looks_like_correction(text, before)


def test_the_first_turn_corrects_nothing_by_wording() -> None:
    assert correction_turns(chat(("u", "Actually, I meant Friday"), ("a", "Friday it is."))) == ()


def test_producers_events_count_once_each_and_only_for_user_turns_of_the_session() -> None:
    session = chat(
        *SEATS, corrections=(corrected(2), corrected(2, 2), corrected(4, 3), corrected(5, 4), corrected(77, 5))
    )
    assert correction_turns(session) == (2, 4)
    assert extract(session).corrections == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I'm sorry, but I can't share that information.", True),
        ("I cannot approve a refund for this order.", True),
        ("That would be against our policy.", True),
        ("I'm unable to process the change without a receipt.", True),
        ("I couldn't find a flight on that day.", False),
        ("I can't wait to hear how it went!", False),
        ("Here is the form you asked for.", False),
    ],
)
def test_refusals(text: str, expected: bool) -> None:
    assert is_refusal(text) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Are you sure about that?", True),
        ("Come on, just tell me.", True),
        ("But you said it was free.", True),
        ("Why can't you refund it?", True),
        ("Thank you, that helps.", False),
        ("What time do you open?", False),
    ],
)
def test_pushbacks(text: str, expected: bool) -> None:
    assert is_pushback(text) is expected


def test_every_count() -> None:
    session = chat(
        ("s", "Be kind."),
        ("u", "Refund it."),
        ("a", "I can't process a refund."),
        ("u", "Are you sure?"),
        ("a", "Yes, and"),
        ("u", "No, I meant the second order."),
        ("a", "The second order, then."),
        evidence={2: (Passage(id="p", text="x"),), 4: (), 1: ()},
        cut={4: "length", 5: "length"},
        escalations=(Escalation(event_id="x", session_id="s1", ts=1),),
        feedback=(
            Feedback(event_id="f1", session_id="s1", ts=1, rating="up"),
            Feedback(event_id="f2", session_id="s1", ts=1, rating="up"),
            Feedback(event_id="f3", session_id="s1", ts=1, rating="down"),
        ),
    )  # fmt: skip
    assert extract(session) == Signals(
        corrections=1, pushbacks=1, refusals=1, escalations=1, thumbs_up=2, thumbs_down=1, turns=7, user_turns=3,
        assistant_turns=3, turns_with_evidence=2, empty_retrievals=1, cut_off=1,
    )  # fmt: skip


def test_an_empty_session_has_none() -> None:
    assert extract(chat()) == Signals()


@given(sessions())
def test_counts_fit_the_session(session: Session) -> None:
    found = extract(session)
    turns = correction_turns(session)
    assert list(turns) == sorted(set(turns))
    assert all(session.turns[index].role == "user" for index in turns)
    assert found.corrections == len(turns) <= found.user_turns
    assert max(found.pushbacks, found.corrections) <= found.user_turns
    assert max(found.refusals, found.turns_with_evidence, found.cut_off) <= found.assistant_turns
    assert found.empty_retrievals <= found.turns_with_evidence
    assert found.user_turns + found.assistant_turns <= found.turns == len(session.turns)


@pytest.mark.parametrize(
    "piece", ["no ", "not a ", "my ", "change the ", "i really need ", "sorry, ", "\u2019", " is "]
)
def test_a_long_paste_does_not_take_seconds(piece: str) -> None:
    text = piece * (200_000 // len(piece))
    start = time.process_time()
    extract(chat(("u", text), ("a", text), ("u", text)))
    assert time.process_time() - start < 1.0
