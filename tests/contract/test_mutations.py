"""Mutants fit the source as it is: `make mutations` then shows that a test notices each of them."""

from __future__ import annotations

import ast
from collections import Counter

import pytest

from tests.mutations import assembly, counting
from tests.mutations.mutant import Mutant
from tests.mutations.run import BrokenMutant, killer
from tests.services.parts import checkout

MUTANTS = (*assembly.MUTANTS, *counting.MUTANTS)
# The rules of the design that code keeps and that have mutants.
RULES = [
    *(f"A{number}" for number in range(1, 11)),
    *(f"S{number}" for number in range(1, 5)),
    *(f"J{number}" for number in range(1, 6)),
    *(f"R{number}" for number in range(1, 7)),
]


def test_every_mutant_has_a_name_of_its_own() -> None:
    names = Counter((mutant.rule, mutant.title) for mutant in MUTANTS)
    assert [name for name, times in names.items() if times > 1] == []


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_has_a_mutant(rule: str) -> None:
    assert any(mutant.rule == rule for mutant in MUTANTS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.rule}-{mutant.title}")
def test_the_mutant_changes_one_place_and_still_parses(mutant: Mutant) -> None:
    source = (checkout() / mutant.path).read_text(encoding="utf-8")
    patched = mutant.patched(source)
    assert ast.dump(ast.parse(patched)) != ast.dump(ast.parse(source))


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.rule}-{mutant.title}")
def test_the_tests_that_have_to_notice_exist(mutant: Mutant) -> None:
    assert mutant.tests
    for test in mutant.tests:
        path, _, name = test.partition("::")
        tree = ast.parse((checkout() / path).read_text(encoding="utf-8"))
        functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        assert name in functions, test


def test_only_a_failed_test_kills() -> None:
    assert killer(0, "3 passed in 0.1s") == ""
    assert killer(1, "FAILED tests/a.py::test_b - assert 1 == 2\n1 failed in 0.1s") == "tests/a.py::test_b"
    with pytest.raises(BrokenMutant, match="status 2"):
        killer(2, "ERROR tests/a.py - NameError: x\n1 error in 0.1s")
    with pytest.raises(BrokenMutant, match="status 1"):
        killer(1, "ERROR tests/a.py::test_b - a fixture failed\n1 error in 0.1s")
    with pytest.raises(BrokenMutant, match="status 4"):
        killer(4, "ERROR: not found: tests/a.py::test_b")
