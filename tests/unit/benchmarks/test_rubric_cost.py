"""What a rubric costs: the figures are those of the requests, not of the traffic."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import rubric_cost
from monitor.judging.prompt import load
from monitor.rubrics import RUBRICS
from tests.unit.test_judge_file import SAID


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    turns = [{"turn_id": f"t{at}", "role": role, "text": text} for at, (role, text) in enumerate(SAID)]
    sessions = [{"session_id": "corrected", "turns": turns}, {"session_id": "short", "turns": turns[:2]}]
    lines = "".join(json.dumps(session) + "\n" for session in sessions)
    (tmp_path / rubric_cost.TRAFFIC).write_text(lines)
    return tmp_path


def test_each_rubric_is_weighed_by_what_it_asks(folder: Path) -> None:
    found = rubric_cost.costs(folder)
    assert set(found) == set(RUBRICS)
    correction = found["correction"]
    assert (correction.sessions, correction.asked, correction.questions) == (2, 1, 1.0)
    prompt = len(load("correction").system) / 3
    assert prompt < correction.prompt_tokens < 2 * prompt
    assert prompt / correction.prompt_tokens < correction.cacheable < 1
    assert correction.sessions_per_s > 0
    # Nothing here rests on evidence, so nothing is asked and nothing divides by zero.
    assert (found["conversation"].asked, found["conversation"].prompt_tokens) == (0, 0)
    table = rubric_cost.table(found)
    assert table.count("\n") == len(RUBRICS)
    assert "1/2" in table
