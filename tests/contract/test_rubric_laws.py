"""Laws that every rubric keeps (J1, J2, facts/rubrics.md): whatever is in `RUBRICS` is held to them."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from monitor.errors import InvalidVerdict
from monitor.judgement import SKIP_REASONS, Result, Skipped, Unscored, Verdict
from monitor.rubrics import RUBRICS
from monitor.rubrics.answers import shown
from monitor.rubrics.base import WindowResult
from monitor.session import Session
from tests.laws import material
from tests.laws.allowed import ALLOWED, Allowance
from tests.laws.corruptions import Corruption, at, corruptions
from tests.laws.material import Case

each_rubric = pytest.mark.parametrize("name", RUBRICS)

SENTENCE = re.compile(
    r"(?P<field>The answer|\S+) (?:is (?P<value>.+), but|is missing, but) (?P<rule>.+)\.", re.DOTALL
)
# What code computes from answers: an answer that states one of these is refused.
COMPUTED = (
    "composite",
    "correction_response_score",
    "overall_score",
    "overall_pass",
    "supported_share",
    "groundedness",
    "outcome",
    "pushes_endured",
    "weight",
)


@cache
def cases(name: str) -> tuple[Case, ...]:
    return tuple(material.cases(name))


def parsed(case: Case) -> Verdict | Skipped:
    return case.rubric.parse(case.raw, case.window)


# -- valid answers -----------------------------------------------------------------------------------------------


@each_rubric
def test_a_rubric_parses_the_examples_of_its_prompt(name: str) -> None:
    examples = material.examples(name)
    assert examples, f"prompts/{name} has no examples"
    for case in examples:
        assert list(case.answer) == case.rubric.schema(case.window)["required"], case.name
        assert isinstance(parsed(case), Verdict | Skipped), case.name


@each_rubric
def test_merging_one_window_adds_nothing_and_loses_nothing(name: str) -> None:
    for case in cases(name):
        result = parsed(case)
        merged = case.rubric.merge(case.session, [WindowResult(window_id=case.window.window_id, result=result)])
        again = case.rubric.merge(case.session, [WindowResult(window_id=case.window.window_id, result=result)])
        assert merged == again
        if isinstance(result, Verdict):
            assert isinstance(merged, Verdict)
            assert material.units(name, merged) == material.units_of_window(name, result), case.name
        else:
            assert merged == result or _skipped(merged) == [result.reason], case.name


@each_rubric
def test_a_window_that_the_judge_failed_on_leaves_its_session_unscored(name: str) -> None:
    case = cases(name)[0]
    lost = WindowResult(window_id=case.window.window_id, result=Unscored(reason="timeout"))
    merged = case.rubric.merge(case.session, [lost])
    assert isinstance(merged, Unscored)
    assert merged.reason == "timeout"
    assert case.rubric.outcomes(merged).measures == {}
    assert case.rubric.outcomes(merged).scores == {}


@pytest.mark.parametrize("name", [name for name, rubric in RUBRICS.items() if not rubric.sequential])
def test_merging_does_not_depend_on_the_order_of_the_windows(name: str) -> None:
    rubric = RUBRICS[name]
    several = list(_sessions_with_results(name))
    assert several
    for session, results in several:
        wanted = rubric.merge(session, results)
        for order in itertools.islice(itertools.permutations(results), 24):
            merged = rubric.merge(session, list(order))
            assert merged == wanted
            assert rubric.outcomes(merged) == rubric.outcomes(wanted)


@each_rubric
def test_outcomes_are_within_the_closed_sets(name: str) -> None:
    rubric, judged = RUBRICS[name], 0
    for case in cases(name):
        result = case.rubric.merge(
            case.session, [WindowResult(window_id=case.window.window_id, result=parsed(case))]
        )
        outcomes = rubric.outcomes(result)
        if not isinstance(result, Verdict):
            assert not outcomes.measures
            assert not outcomes.scores
            continue
        judged += 1
        assert set(outcomes.measures) == set(rubric.measures), "a measure without a trial is zero, not absent"
        assert all(0 <= tally.failures <= tally.trials for tally in outcomes.measures.values())
        assert set(outcomes.scores) <= set(rubric.scores)
        for score, values in outcomes.scores.items():
            low, high = _range(score)
            assert all(low <= value <= high for value in values), score
        assert set(outcomes.skipped_events) <= set(SKIP_REASONS)
        assert outcomes.stage.judged <= outcomes.stage.found
    assert judged


def _range(score: str) -> tuple[float, float]:
    if any(part in score for part in ("criterion", "worst", "composite")):
        return 1.0, 5.0
    return (0.0, 1.0) if score.partition(":")[0].endswith(("_score", "_ratio")) else (0.0, math.inf)


# -- answers with one thing wrong --------------------------------------------------------------------------------


def changed(case: Case) -> Iterator[tuple[Corruption, Result | InvalidVerdict]]:
    foreign = [turn.text for turn in reversed(case.session.turns)]
    for corruption in corruptions(case.answer, case.rubric.schema(case.window), foreign, COMPUTED):
        try:
            yield corruption, case.rubric.parse(json.dumps(corruption.answer), case.window)
        except InvalidVerdict as error:
            yield corruption, error


@each_rubric
def test_any_change_of_one_field_is_refused_or_listed_as_just_as_valid(name: str) -> None:
    assert name in ALLOWED, f"the rubric {name!r} has no list of allowed changes: add it to tests/laws/allowed.py"
    used: Counter[tuple[Allowance, str]] = Counter()
    accepted: list[str] = []
    refusals = 0
    for case in cases(name):
        valid = parsed(case)
        for corruption, result in changed(case):
            if isinstance(result, InvalidVerdict):
                refusals += 1
                assert len(str(result)) < 3_000
                for fault in result.faults:
                    assert_sentence(fault, corruption, case)
                continue
            found = _allowance(name, corruption, case, same=result == valid)
            if found is None:
                accepted.append(f"{case.name}: {corruption.kind} at {corruption.path}")
            else:
                used[found, corruption.kind] += 1
    assert not accepted, f"{len(accepted)} slip through:\n" + "\n".join(accepted[:20])
    listed = {(allowance, kind) for allowance in ALLOWED[name] for kind in allowance.kinds}
    unused = [f"{kind} at {allowance.where}" for allowance, kind in listed - used.keys()]
    assert not unused, f"allowed without need: {sorted(unused)}"
    assert refusals > 1_000


def assert_sentence(message: str, corruption: Corruption, case: Case) -> None:
    """Hold a refusal to one sentence that names the field, its value and the rule."""
    where = f"{case.name}: {corruption.kind} at {corruption.path}: {message}"
    found = SENTENCE.fullmatch(message)
    assert found, where
    assert "\n" not in message, where
    field, value = found["field"], found["value"]
    if field == "The answer":
        return
    known = _names(case.rubric.schema(case.window)) | {"remark", *COMPUTED}
    assert set(re.findall(r"[a-z_]{2,}", re.sub(r"\[\w*\]", "", field))) <= known, where
    there = at(corruption.answer, field)
    if value is None:
        assert not isinstance(there, str | int | list | dict), where
    elif isinstance(there, str | bool | int | float):
        # Enumerated values are compared and shown in lower case, without white space around them.
        assert value.casefold().replace(" ", "") == shown(there).casefold().replace(" ", ""), where


def _names(schema: dict[str, Any]) -> set[str]:
    """Collect the names of all fields."""
    found: set[str] = set()
    for name, shape in schema.get("properties", {}).items():
        found |= {name} | _names(shape.get("items", {})) | _names(shape)
    return found


def _allowance(name: str, corruption: Corruption, case: Case, *, same: bool) -> Allowance | None:
    row = at(corruption.answer, corruption.path.rpartition(".")[0])
    values = {str(at(answer, corruption.path)) for answer in (case.answer, corruption.answer)}
    return next(
        (
            allowance
            for allowance in ALLOWED[name]
            if allowance.where == corruption.where
            and corruption.kind in allowance.kinds
            and (same or not allowance.same)
            and (not allowance.values or values <= set(allowance.values))
            and (allowance.holds is None or allowance.holds(corruption.answer, row))
        ),
        None,
    )


def _skipped(result: Result) -> list[str]:
    return [item["reason"] for item in result.data["skipped"]] if isinstance(result, Verdict) else []


def _sessions_with_results(name: str) -> Iterator[tuple[Session, list[WindowResult]]]:
    """Give sessions of several windows with what these gave, also with windows that were skipped or lost."""
    by_session: dict[int, tuple[Session, dict[str, WindowResult]]] = {}
    for case in cases(name):
        _, found = by_session.setdefault(id(case.session), (case.session, {}))
        window_id: str = case.window.window_id
        found[window_id] = WindowResult(window_id=window_id, result=parsed(case))
    for session, of_windows in by_session.values():
        results = list(of_windows.values())
        yield session, results
        if len(results) > 1:
            other: tuple[Result, ...] = (Skipped(reason="not_applicable"), Skipped(reason="misaligned"))
            yield session, _replaced(results, other)
            yield session, _replaced(results, (Unscored(reason="invalid"), Unscored(reason="timeout")))


def _replaced(results: list[WindowResult], others: tuple[Result, ...]) -> list[WindowResult]:
    replaced = [
        WindowResult(window_id=item.window_id, result=other) for item, other in zip(results, others, strict=False)
    ]
    return [*replaced, *results[len(replaced) :]]
