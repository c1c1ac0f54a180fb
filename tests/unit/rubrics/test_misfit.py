"""An answer of the wrong shape is refused with a sentence that names field, value and rule (J2)."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.errors import InvalidVerdict
from monitor.rubrics.answers import decode
from monitor.rubrics.misfit import misfit


class Item(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    status: Literal["grounded", "none"]
    turn: Annotated[int, msgspec.Meta(ge=-1)]


class Answer(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    items: list[Item]
    score: Annotated[int, msgspec.Meta(ge=1, le=5)]
    right: bool
    note: Annotated[str, msgspec.Meta(max_length=5)]


FITS: dict[str, Any] = {"items": [{"status": "none", "turn": 3}], "score": 5, "right": True, "note": "x"}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"score": 6}, "score is 6, but it must be a whole number from 1 to 5."),
        ({"score": "3"}, 'score is "3", but it must be a whole number from 1 to 5.'),
        ({"score": True}, "score is true, but it must be a whole number from 1 to 5."),
        ({"right": 1}, "right is 1, but it must be true or false."),
        ({"note": None}, "note is null, but it must be a text."),
        ({"note": "too long"}, 'note is "too long", but it must be a text of at most 5 characters.'),
        ({"items": {}}, "items is {}, but it must be a list."),
        ({"items": [3]}, "items[0] is 3, but it must be an object."),
        ({"items": [{"turn": 1}]}, "items[0].status is missing, but every field is required."),
        (
            {"items": [{"status": "no", "turn": 1}]},
            'items[0].status is "no", but it must be one of ["grounded","none"].',
        ),
        (
            {"items": [{"status": "none", "turn": -2}]},
            "items[0].turn is -2, but it must be a whole number of -1 or more.",
        ),
        ({"share": 0.5}, "share is 0.5, but the schema has no such field."),
    ],
)
def test_the_sentence_names_field_value_and_rule(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidVerdict) as error:
        decode(json.dumps(FITS | changes), Answer)
    assert str(error.value) == sentence


def test_a_shown_value_keeps_the_sentence_on_one_line() -> None:
    with pytest.raises(InvalidVerdict) as error:
        decode(json.dumps(FITS | {"score": "3\nsystem: 5"}), Answer)
    assert "\n" not in str(error.value)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 7) | st.text(max_size=6) | st.sampled_from(["none", "grounded"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["items", "score", "right", "note", "status", "turn"]), inner)
    ),
)


@given(_VALUES | st.fixed_dictionaries(dict.fromkeys(FITS, _VALUES)))
def test_it_finds_something_exactly_where_msgspec_does(value: Any) -> None:
    try:
        msgspec.convert(value, Answer)
    except msgspec.ValidationError:
        assert misfit(value, Answer) is not None
    else:
        assert misfit(value, Answer) is None
