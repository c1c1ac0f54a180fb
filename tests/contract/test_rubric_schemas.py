"""The schema of every rubric's answer is one that an API's grammar can keep (facts/judging.md A1, J2).

What a grammar can't keep must not be asked of it: unions, optional fields, open objects, recursion, bounds.
Required fields are written in their order, so what is observed stands before what is concluded from it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.events import Passage
from monitor.judging.extract import Extraction
from monitor.judging.prompt import load
from monitor.judging.screen import PROMPTS as SCREENS
from monitor.judging.screen import Screen
from monitor.rubrics import RUBRICS
from monitor.session import Session
from tests.laws import material
from tests.unit.rubrics.build import SEATS, chat, sessions

each_rubric = pytest.mark.parametrize("name", RUBRICS)

# The shapes there are, and the only keys that each may have.
KEYS: Final = {
    "object": {"type", "properties", "required", "additionalProperties"},
    "array": {"type", "items"},
    "string": {"type", "enum"},
    "integer": {"type", "enum"},
    "boolean": {"type"},
}
VERDICTS: Final = (
    "verdict",
    "status",
    "state",
    "support",
    "failure_mode",
    "score",
    "rationale",
    "basis",
    "kind",
    "tactic",
)
# Numbers that a judge observes: turns, and grades. Every other number is code's to compute.
OBSERVED: Final = ("turn_index", "turns", "targets_turn", "score")


def shapes(
    schema: dict[str, Any], name: str = "", above: tuple[str, ...] = ()
) -> Iterator[tuple[str, Any, tuple[str, ...]]]:
    """Give every shape with its field's name and the types above it."""
    yield name, schema, above
    inside = (*above, str(schema["type"]))
    for field, shape in schema.get("properties", {}).items():
        yield from shapes(shape, field, inside)
    if "items" in schema:
        yield from shapes(schema["items"], name, inside)


def assert_keepable(schema: dict[str, Any]) -> None:
    """Hold a schema to the forms that a grammar keeps."""
    assert schema["type"] == "object"
    for name, shape, above in shapes(schema):
        assert isinstance(shape["type"], str), f"{name}: a union"
        assert set(shape) <= KEYS[shape["type"]], f"{name}: {sorted(set(shape) - KEYS[shape['type']])}"
        if shape["type"] == "object":
            assert shape["additionalProperties"] is False, f"{name}: an open object"
            assert shape["required"] == list(shape["properties"]), f"{name}: an optional field, or out of order"
            assert shape["properties"], f"{name}: an object without fields"
            assert above in {(), ("object", "array")}, f"{name}: objects stand in one list, and in no other object"
        if shape["type"] == "array":
            # A list of plain texts or numbers may stand in a row; a list of rows or of lists may not.
            assert above.count("array") == 0 or shape["items"]["type"] in {"string", "integer"}, f"{name}: nested"
            assert above[-1] == "object", f"{name}: a list straight in a list"
        if "enum" in shape:
            assert shape["enum"], name
            assert len(set(shape["enum"])) == len(shape["enum"]), name


@pytest.mark.parametrize(
    "form",
    [
        {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        {"type": ["string", "null"]},
        {"type": "object", "properties": {}, "required": [], "additionalProperties": {"type": "integer"}},
        {"type": "object", "properties": {"a": {"type": "string"}}, "required": [], "additionalProperties": False},
        {"type": "array", "items": {"type": "array", "items": {"type": "string"}}},
        {"type": "array", "prefixItems": [{"type": "string"}]},
        {"type": "array", "items": {"type": "string"}, "minItems": 2},
        {"type": "integer", "minimum": 1},
        {"type": "number"},
        {"type": "string", "maxLength": 5},
        {"type": "string", "pattern": "a"},
        {"$ref": "#"},
    ],
    ids=lambda form: json.dumps(form)[:40],
)
def test_forms_that_no_grammar_keeps_are_found(form: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": {"x": form}, "required": ["x"], "additionalProperties": False}
    with pytest.raises((AssertionError, KeyError)):
        assert_keepable(schema)


@each_rubric
def test_every_schema_has_only_forms_that_a_grammar_keeps(name: str) -> None:
    from anthropic import transform_schema  # seconds to load, which other tests here don't need

    for case in material.examples(name):
        schema = case.rubric.schema(case.window)
        assert_keepable(schema)
        # The SDK moves what a grammar can't keep into descriptions: here there is nothing to move.
        assert "description" not in json.dumps(transform_schema(schema))


@pytest.mark.parametrize("name", SCREENS)
def test_the_schema_of_a_screen_has_only_such_forms(name: str) -> None:
    screen = Screen(name)
    (window,) = screen.windows(chat(*SEATS))
    assert_keepable(screen.schema(window))
    assert list(screen.schema(window)["properties"]) == ["quote", "look"], "what it rests on, then what it says"


def test_the_schema_of_the_extraction_has_only_such_forms() -> None:
    (window,) = Extraction().windows(chat(*SEATS))
    assert_keepable(Extraction().schema(window))
    assert list(Extraction().schema(window)["properties"]) == ["corrections", "rationale"]


@each_rubric
def test_what_is_quoted_stands_before_what_is_concluded(name: str) -> None:
    schema = material.examples(name)[0].rubric.schema(material.examples(name)[0].window)
    for _, shape, _ in shapes(schema):
        fields = list(shape.get("properties", {}))
        quotes = [place for place, field in enumerate(fields) if field.endswith("quote") or field == "claim_text"]
        verdicts = [place for place, field in enumerate(fields) if field in VERDICTS]
        assert not quotes or not verdicts or max(quotes) < min(verdicts), fields
    # A list of quotes stands before the grades of the whole, and the sentence of reasons last.
    order = list(schema["properties"])
    assert "rationale" not in order or order[-1] == "rationale"


@each_rubric
def test_the_only_numbers_of_an_answer_are_turns_and_grades(name: str) -> None:
    case = material.examples(name)[0]
    for field, shape, _ in shapes(case.rubric.schema(case.window)):
        if shape["type"] == "integer":
            grade = shape.get("enum") == [1, 2, 3, 4, 5]
            assert grade or field.endswith(OBSERVED), f"{field}: a number that code should compute"
        if shape["type"] == "boolean":
            assert field == "is_correction", f"{field}: a conclusion that code should draw"


@each_rubric
def test_the_prompt_speaks_of_every_field(name: str) -> None:
    case, system = material.examples(name)[0], load(name).system
    missing = {field for field, _, _ in shapes(case.rubric.schema(case.window)) if field and field not in system}
    assert not missing


@given(data=st.data(), session=sessions(), found=st.booleans())
@settings(max_examples=40)
def test_the_schema_is_the_same_for_every_window(data: st.DataObject, session: Session, found: bool) -> None:
    """A schema that changes with the window would compile a grammar and lose the cached prompt each time."""
    name = data.draw(st.sampled_from(sorted(RUBRICS)))
    turns = [({"user": "u", "assistant": "a", "system": "s", "tool": "t"}[t.role], t.text) for t in session.turns]
    passages = (Passage(id="p1", text="Six seats."),) if found else ()
    evidence = {turn.index: passages for turn in session.turns if turn.role == "assistant"}
    rubric = RUBRICS[name]
    same = material.examples(name)[0]
    wanted = json.dumps(same.rubric.schema(same.window))
    for window in rubric.windows(chat(*turns, evidence=evidence)):
        assert json.dumps(rubric.schema(window)) == wanted
