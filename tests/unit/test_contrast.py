"""Value contrast: corrections without a marker word are found, answers and choices are not taken for them."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.contrast import Line, asks_for, contrasts, takes
from monitor.session import Session
from monitor.signals import correction_turns
from tests.unit.correction_wording import CORRECTIONS, MISSED, NEAR_MISSES, OVERCALLED
from tests.unit.rubrics.build import chat


def told(lines: tuple[str, ...]) -> Session:
    """Make a session of lines that take turns, of which the last is the user's."""
    return chat(*(("u" if (len(lines) - at) % 2 else "a", line) for at, line in enumerate(lines)))


def found(lines: tuple[str, ...]) -> bool:
    session = told(lines)
    return session.turns[-1].index in correction_turns(session)


def cases(listed: tuple[tuple[str, ...], ...], limits: frozenset[str]) -> list[Any]:
    """Mark the known limits: a rule that comes to see one must say so."""
    limit = pytest.mark.xfail(strict=True, reason="a known limit of string rules")
    return [
        pytest.param(lines, marks=limit if lines[-1] in limits else (), id=" / ".join(lines)) for lines in listed
    ]


@pytest.mark.parametrize("lines", cases(CORRECTIONS, MISSED))
def test_a_correction_is_found(lines: tuple[str, ...]) -> None:
    assert found(lines)


@pytest.mark.parametrize("lines", cases(NEAR_MISSES, OVERCALLED))
def test_a_near_miss_is_none(lines: tuple[str, ...]) -> None:
    assert not found(lines)


def test_the_lists_are_worth_measuring_by() -> None:
    assert len(set(CORRECTIONS)) == len(CORRECTIONS) >= 60
    assert len(set(NEAR_MISSES)) == len(NEAR_MISSES) >= 60
    assert sum(map(found, CORRECTIONS)) >= 0.9 * len(CORRECTIONS)
    assert sum(map(found, NEAR_MISSES)) <= 0.05 * len(NEAR_MISSES)


@pytest.mark.parametrize(
    ("reply", "kinds"),
    [
        ("What time would you like?", {"time"}),
        ("For how many guests, and on which day?", {"count", "date"}),
        ("Which one?", {"any"}),
        ("Please provide your account number.", {"id"}),
        ("Your table is booked for 5 pm. Is that correct?", set()),
        ("Let me know if that suits you.", set()),
    ],
)
def test_what_a_reply_asks_for(reply: str, kinds: set[str]) -> None:
    assert kinds <= asks_for(reply)
    assert bool(kinds) == bool(asks_for(reply))


def test_consent_takes_a_reply_as_it_is_unless_limited() -> None:
    assert takes("Yes, at 9.")
    assert not takes("Yes, but at 9.")
    assert not takes("At 9.")


def test_the_newest_word_on_a_slot_counts() -> None:
    parking = Line(text="Yes, behind the house.", by_user=False)
    four = Line(text="We are 4 people.", by_user=True)
    six = Line(text="We are 6 people.", by_user=True)
    assert contrasts("We are 6 people.", parking, (four,))
    assert not contrasts("We are 6 people.", parking, (six, four))


@given(st.text(max_size=80), st.text(max_size=80), st.booleans())
def test_saying_the_same_again_is_no_contrast(text: str, more: str, by_user: bool) -> None:
    assert not contrasts(text, Line(text=text, by_user=False), (Line(text=more, by_user=by_user),))


@pytest.mark.parametrize("piece", ["so that ", "5 pm ", "Dr. ", "a.m.", "Anna ", "twenty ", "1:", "oak door "])
def test_a_long_paste_does_not_take_seconds(piece: str) -> None:
    text = piece * (100_000 // len(piece))
    start = time.process_time()
    correction_turns(chat(("u", text), ("a", text), ("u", piece * 70), ("a", text), ("u", "6 pm, please")))
    assert time.process_time() - start < 1.0
