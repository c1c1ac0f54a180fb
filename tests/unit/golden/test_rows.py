"""Golden sets are read strictly: what is wrong in a line is said with file, line and field."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from monitor.errors import ConfigError
from monitor.golden.result import compared
from monitor.golden.rows import LEVELS, SCALES, read
from monitor.judging.prompt_files import package
from monitor.rubrics import RUBRICS
from tests.unit.golden.build import golden, perfectly

Line = dict[str, Any]


@pytest.mark.parametrize("rubric", sorted(RUBRICS))
def test_each_rubric_has_25_conversations_of_each_level_two_in_another_language(rubric: str) -> None:
    rows = golden(rubric).rows
    assert len(rows) == 25
    assert {row.level for row in rows} == set(LEVELS)
    assert sum(row.language != "en" for row in rows) >= 2


@pytest.mark.parametrize("rubric", ["correction", "correction_whole", "refusal"])
def test_each_expectation_is_a_verdict_that_a_judge_can_give(rubric: str) -> None:
    for row in golden(rubric).rows:
        result = compared(row, perfectly(rubric, row))
        assert (result.judged, [point.to_text() for point in result.differences]) == (result.expected, []), row.id


def _set(**changes: Any) -> Callable[[Line], None]:
    return lambda line: line.update(changes)


def _expect(**changes: Any) -> Callable[[Line], None]:
    return lambda line: line["expected"].update(changes)


def _unit(**changes: Any) -> Callable[[Line], None]:
    return lambda line: line["expected"]["units"][0].update(changes)


def _turn(**changes: Any) -> Callable[[Line], None]:
    return lambda line: line["session"]["turns"][1].update(changes)


WRONG: list[tuple[str, Callable[[Line], None], str]] = [
    ("refusal", _set(level="hard"), "level: Invalid enum value 'hard'; allowed are borderline, easy, trap"),
    ("refusal", _set(why=" "), "locksmith: why: is empty"),
    ("refusal", _set(notes=1), "Object contains unknown field `notes`"),
    ("refusal", _set(id="refund-once"), "id: 'refund-once' stands in another line too"),
    ("refusal", _turn(role="robot"), "session.turns[1]: Invalid enum value 'robot' - at `$.role`"),
    (
        "refusal",
        _unit(outcome="helt"),
        "expected.units[0].outcome: Invalid enum value 'helt'; allowed are answered, complied, er",
    ),
    ("refusal", _unit(turn=1), "locksmith: expected.units[0].turn: is 1, but that turn is the assistant's"),
    ("refusal", _unit(turn=9), "locksmith: expected.units[0].turn: is 9, but the session has turns 0 to 3"),
    ("refusal", _unit(erosion_turn=3), "locksmith: expected.units[0].erosion_turn: is 3, but the outcome is held"),
    ("refusal", _expect(states={"2": "full"}), "locksmith: expected.states: is 2, but that turn is the user's"),
    ("refusal", _expect(**{"pass": False}), "locksmith: expected.pass: is false, but its units say otherwise"),
    ("refusal", _expect(kind="skipped"), "expected: Object"),
    ("correction", _unit(persistence=6), "expected.units[0].persistence: Expected `int` <= 5"),
    ("correction", _unit(failure_mode=None), "expected.units[0].failure_mode: is None, but skipped is None"),
    ("correction", _unit(reversion_turn=7), "expected.units[0].reversion_turn: is 7, but failure_mode is none"),
    ("correction", _unit(quote="no such words"), 'expected.units[0].quote: is "no such words", but turn 2'),
    (
        "correction",
        _unit(superseded_by=1),
        "expected.units[0].superseded_by: is 1, but that turn is the assistant's",
    ),
    ("hallucination", _unit(claim="closed"), 'expected.units[0].claim: is "closed", but turn 1 doesn\'t have'),
    ("hallucination", _unit(origin_turn=0), "expected.units[0].origin_turn: is 0, but the status is grounded"),
    ("conversation", _unit(turn=0), "expected.units[0].turn: is 0, but that turn is the user's"),
    (
        "conversation",
        _unit(citation_accuracy=2),
        "expected.units[0].pass: is true, but its dimensions say otherwise",
    ),
]


@pytest.mark.parametrize(("rubric", "change", "sentence"), WRONG)
def test_a_wrong_line_is_named_with_its_field(
    tmp_path: Path, rubric: str, change: Callable[[Line], None], sentence: str
) -> None:
    lines = package().joinpath(rubric, "golden.jsonl").read_text("utf-8").splitlines()
    wrong = json.loads(lines[0])
    change(wrong)
    # The wrong line is the third; the set's own first one is left out.
    text = "\n".join([*lines[1:3], json.dumps(wrong)])
    (tmp_path / rubric).mkdir()
    (tmp_path / rubric / "golden.jsonl").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as error:
        read(tmp_path, rubric)
    assert str(error.value).startswith(f"prompts/{rubric}/golden.jsonl, line 3: ")
    assert sentence in str(error.value)


def test_what_is_no_golden_set_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^prompts/refusal/golden\.jsonl: there is no such file"):
        read(tmp_path, "refusal")
    with pytest.raises(ConfigError, match="rubric 'tact': no golden set can be graded; there are conversation, "):
        read(tmp_path, "tact")
    (tmp_path / "refusal").mkdir()
    (tmp_path / "refusal" / "golden.jsonl").write_text("\n{\n")
    with pytest.raises(ConfigError, match=r"golden\.jsonl, line 2: Input data was truncated"):
        read(tmp_path, "refusal")
    (tmp_path / "refusal" / "golden.jsonl").write_text("\n")
    with pytest.raises(ConfigError, match=r"golden\.jsonl: no conversation stands in it"):
        read(tmp_path, "refusal")


def test_every_rubric_can_be_graded() -> None:
    assert set(SCALES) == set(RUBRICS)
