"""Values: two wordings of one value are the same, two values are not."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.values import Token, group, holds, names, same, scan


def one(text: str) -> Token:
    return next(token for token in scan(text) if token.kind != "word")


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("half past 11 in the morning", "11:30 am"),
        ("quarter to 6 pm", "5:45 p.m."),
        ("quarter past six in the evening", "18:15"),
        ("noon", "12:00 pm"),
        ("eleven in the morning", "11 am"),
        ("5 o'clock", "5:00 pm"),
        ("March 8th", "the 8th of March"),
        ("2026-03-08", "3/8"),
        ("the 8th", "March 8"),
        ("next Friday", "friday"),
        ("1,250.50", "1250.5"),
        ("six", "6"),
        ("twenty-five", "25"),
        ("two hundred and fifty", "250"),
        ("a thousand", "1,000"),
        ("1.5k", "1500"),
        ("$20", "twenty dollars"),
        ("five thirty", "5:30 pm"),
        ("5.30 pm", "17:30"),
        ("ten to six", "5:50"),
        ("twenty past three in the afternoon", "15:20"),
        ("see you at five.", "5 pm"),
        ("the third of March", "March 3"),
        ("March third", "3/3"),
        ("on the twenty-first, please", "the 21st"),
        ("thirty-first of May", "May 31"),
    ],
)
def test_wordings_of_one_value(left: str, right: str) -> None:
    assert same(one(left), one(right))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("5:15 am", "5:15 pm"),
        ("March 8th", "April 8th"),
        ("5 pm", "5"),
        ("6", "60"),
        ("Friday", "Monday"),
        ("12 am", "12 pm"),
        ("at 5 Mill Lane", "5 pm"),
        ("tomorrow", "day after tomorrow"),
        ("twenty-five", "20"),
    ],
)
def test_different_values(left: str, right: str) -> None:
    assert not same(one(left), one(right))


def test_a_pronoun_is_no_number() -> None:
    assert not any(token.kind == "number" for token in scan("that one is wrong, the other one too"))
    assert any(token.kind == "number" for token in scan("one ticket"))


def test_strong_words_are_capitalized_inside_a_sentence_or_quoted() -> None:
    tokens = {token.key: token.strong for token in scan('Tell Anna. Bring "blue paint" and rope')}
    assert (tokens["anna"], tokens["blue"], tokens["paint"], tokens["bring"], tokens["rope"]) == (
        True,
        True,
        True,
        False,
        False,
    )


def test_an_address_is_one_value_and_units_stay_apart() -> None:
    text = "to 591 Redwood Highway # 2235"
    assert [value.text for value in group(text, [t for t in scan(text) if t.strong])] == [
        "591 Redwood Highway # 2235"
    ]
    text = "3 tickets for Anna"
    assert [value.text for value in group(text, [t for t in scan(text) if t.strong])] == ["3", "Anna"]


def test_a_short_name_must_be_named_whole() -> None:
    text = "at Garden Inn"
    (value,) = group(text, [token for token in scan(text) if token.strong])
    assert names(scan("The Garden Inn is free"), value)
    assert not names(scan("The Harbor Inn is free"), value)


@given(st.text(max_size=200))
def test_tokens_lie_in_the_text_in_order(text: str) -> None:
    tokens = scan(text)
    assert all(0 <= token.start < token.end <= len(text) for token in tokens)
    assert all(before.end <= after.start for before, after in pairwise(tokens))
    assert all(holds(tokens, token) for token in tokens)


@given(st.integers(0, 23), st.integers(0, 59))
def test_a_24_hour_time_is_its_12_hour_time(hour: int, minute: int) -> None:
    half = "am" if hour < 12 else "pm"
    assert same(one(f"{hour:02d}:{minute:02d}"), one(f"{hour % 12 or 12}:{minute:02d} {half}"))
