"""The examples of the documentation do what it says: events decode, mapping, policy and PromQL are right."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from pydantic import BaseModel

from monitor.events import EVENT_TYPES, EventDecoder
from monitor.ingest import EventFile, parse_mapping
from monitor.metrics import CATALOGUE
from monitor.rubrics import RUBRICS
from monitor.rubrics.correction.rubric import MEASURES
from monitor.sampling.policy import default_policy, parse_policy
from monitor.sampling.predicate import FIELDS, FUNCTIONS, Predicate
from monitor.settings import Settings
from tests.services.parts import checkout, program


def page(name: str) -> str:
    return (checkout() / "docs" / name).read_text(encoding="utf-8")


def blocks(name: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page(name), re.DOTALL)


def values(block: str) -> list[dict[str, Any]]:
    """Give the JSON objects of a block, folded over lines or one a line."""
    decoder, found, place = json.JSONDecoder(), [], 0
    while place < len(block):
        value, place = decoder.raw_decode(block, place)
        found.append(value)
        place += len(block[place:]) - len(block[place:].lstrip())
    return found


def test_every_event_of_the_page_is_taken_in() -> None:
    events = [value for block in blocks("input.md", "json") for value in values(block) if "type" in value]
    assert {event["type"] for event in events} == {*EVENT_TYPES} - {"tick"}
    for event in events:
        EventDecoder().decode(msgspec.json.encode(event))


def test_every_field_of_the_events_is_named() -> None:
    text = page("input.md")
    for block in blocks("input.md", "json"):
        for value in values(block):
            for field in value if "type" in value else ():
                assert f"`{field}`" in text or f"`.{field}`" in text or field == "passages", field


def test_a_session_of_the_page_is_taken_in(tmp_path: Path) -> None:
    (session,) = [value for block in blocks("input.md", "json") for value in values(block) if "turns" in value]
    path = tmp_path / "sessions.jsonl"
    path.write_text(json.dumps(session))
    assert len(list(EventFile(path))) == 3


def test_the_mapping_of_the_page_gives_what_it_says(tmp_path: Path) -> None:
    (line,) = [value for block in blocks("input.md", "json") for value in values(block) if "messages" in value]
    (text,) = blocks("input.md", "yaml")
    path = tmp_path / "export.jsonl"
    path.write_text(json.dumps(line))
    file = EventFile(path, mapping=parse_mapping(text, source="docs/input.md"))
    kinds = [json.loads(raw.json)["type"] for raw in file]
    assert (kinds.count("turn"), kinds.count("evidence"), kinds.count("feedback")) == (4, 2, 1)
    assert file.passed_over == 1


def test_the_policy_of_the_page_is_the_built_in_one() -> None:
    (shown,) = [block for block in blocks("sampling.md", "yaml") if block.startswith("strata:")]
    policy = parse_policy(shown, source="docs/sampling.md", rubrics=RUBRICS)
    assert policy.version == default_policy(RUBRICS).version


def test_every_variable_and_function_of_a_predicate_is_named() -> None:
    text = page("sampling.md")
    for name in FIELDS["signals"]:
        assert f"`signals.{name}`" in text
    for name in FIELDS["attributes"]:
        assert f"`attributes.{name}`" in text or f"`.{name}`" in text
    for name in FUNCTIONS:
        assert f"`{name}`" in text


def test_the_predicates_of_the_page_compile() -> None:
    found = [
        line
        for block in blocks("sampling.md", "yaml")
        for line in re.findall(r"^when: (.*)$", block, re.MULTILINE)
    ]
    assert len(found) == 2
    for source in found:
        Predicate(source)


PAGES = ("input.md", "sampling.md", "judging.md", "operations.md")


@pytest.mark.parametrize("name", PAGES)
def test_every_setting_and_metric_of_a_page_exists(name: str) -> None:
    settings = {f"{section}.{key}" for section, kind in _sections().items() for key in kind.model_fields}
    sections = "|".join(_sections())
    named = set(re.findall(rf"`((?:{sections})\.[a-z_]+)", page(name)))
    assert named
    assert named <= settings
    metrics = {metric.full_name for metric in CATALOGUE.values()}
    known = metrics | {f"{metric}_total" for metric in metrics}
    assert set(re.findall(r"backslide_[a-z0-9_]+", page(name))) <= known


def _sections() -> dict[str, type[BaseModel]]:
    return {
        name: field.annotation
        for name, field in Settings.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
    }


def test_every_measure_has_its_trials_explained() -> None:
    for measure in MEASURES:
        assert f"`{measure}`" in page("judging.md")


def test_the_queries_of_the_page_give_the_weighted_rate(tmp_path: Path) -> None:
    """Figures of a run: 400 sessions, of which a window's differences are these; 7 is what was there before."""
    (rules,) = [block for block in blocks("sampling.md", "yaml") if block.startswith("groups:")]
    (tmp_path / "rules.yml").write_text(rules)
    exact, short, unscored = blocks("sampling.md", "promql")
    added = {"base": (287, 308, 308, 20), "corrected": (113, 113, 226, 73)}
    rates = {exact: 0.17862838915470494, short: 93 / 534, unscored: 9 / (9 + 2 * 7 + 308 + 113)}
    expected = [
        {"expr": f"sum(abs(({query}) - {rate!r}) < bool 1e-9)", "exp_samples": [{"labels": "{}", "value": 1}]}
        for query, rate in rates.items()
    ]
    case = {
        "interval": "1m",
        "input_series": [item for stratum, sums in added.items() for item in _series(stratum, *sums)],
        "promql_expr_test": [{**item, "eval_time": "12h"} for item in expected],
    }
    test = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": [case]}
    (tmp_path / "test.yml").write_text(yaml.safe_dump(test))
    done = subprocess.run(
        [str(program("promtool")), "test", "rules", "test.yml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _series(
    stratum: str, finished: float, sessions: float, trials: float, failures: float
) -> list[dict[str, str]]:
    frame = f'rubric="correction", mode="event", assistant="a", assistant_version="1", stratum="{stratum}"'
    judged = f'{frame}, judge="lexical", measure="reverted"'
    found = [_one(f"backslide_sessions_finished_total{{{frame}}}", finished)]
    sums = {"sessions": sessions, "trials": trials, "failures": failures}
    found += [_one(f"backslide_weighted_{name}_total{{{judged}}}", value) for name, value in sums.items()]
    if stratum == "base":
        unscored = f'{frame}, judge="lexical", reason="timeout"'
        found.append({"series": f"backslide_weighted_unscored_total{{{unscored}}}", "values": "9x720"})
    return found


def _one(series: str, added: float) -> dict[str, str]:
    """Make a series that is 7 for six hours, and 7 more than was added for the next six."""
    return {"series": series, "values": f"7x360 {7 + added}x360"}
