"""Runs mutants, each in a copy of the tree, and says which test killed it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from tests.mutations.mutant import Mutant

TEST_TIMEOUT_S = 60
# Exit statuses of pytest.
PASSED, FAILED = 0, 1


class BrokenMutant(Exception):
    """The mutant proves nothing: its tests fail without it, or fail to run with it."""


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant: `killed_by` names the test that failed, `broken` says why it proves nothing."""

    mutant: Mutant
    killed_by: str = ""
    broken: str = ""
    seconds: float = 0.0


class Tree:
    """A copy of the checkout, to patch and to run tests in."""

    def __init__(self, root: Path, folder: Path) -> None:
        self._folder = folder
        # Hidden entries are caches and git's; what the tests have downloaded is used where it is.
        shutil.copytree(root, folder, ignore=shutil.ignore_patterns(".*", "__pycache__"))
        if (root / ".cache").exists():
            (folder / ".cache").symlink_to(root / ".cache")

    def test(self, tests: Sequence[str]) -> tuple[int, str]:
        """Run tests up to the first failure; give pytest's exit status and what it printed."""
        line = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=no", "-rfE", "-p", "no:cacheprovider"]
        # By signal, a test that hangs fails like any other; by thread it would end pytest with the same status.
        line += [f"--timeout={TEST_TIMEOUT_S}", "--timeout-method=signal", "--hypothesis-seed=0"]
        line += [f"--basetemp={self._folder.with_name(self._folder.name + '-temp')}", *tests]
        done = subprocess.run(
            line,
            cwd=self._folder,
            env={**os.environ, "PYTHONPATH": str(self._folder)},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    @contextmanager
    def mutated(self, mutant: Mutant) -> Iterator[None]:
        """Switch a mutant's rule off for a while."""
        path = self._folder / mutant.path
        source = path.read_text(encoding="utf-8")
        self._write(path, mutant.patched(source))
        try:
            yield
        finally:
            self._write(path, source)

    def _write(self, path: Path, source: str) -> None:
        path.write_text(source, encoding="utf-8")
        # A cached module is told by its second and size alone, and both may be the same.
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()


def check_unmutated(tree: Tree, mutants: Sequence[Mutant]) -> None:
    """Check that all named tests pass while no rule is off. Raises `BrokenMutant` with pytest's last lines."""
    status, printed = tree.test(sorted({test for mutant in mutants for test in mutant.tests}))
    if status != PASSED:
        raise BrokenMutant("without any mutant:\n" + "\n".join(printed.splitlines()[-8:]))


def attack(tree: Tree, mutant: Mutant) -> Outcome:
    """Run a mutant's tests with its rule off."""
    started = time.monotonic()
    try:
        with tree.mutated(mutant):
            status, printed = tree.test(mutant.tests)
        killed_by = killer(status, printed)
    except (BrokenMutant, ValueError) as error:
        return Outcome(mutant, broken=str(error), seconds=time.monotonic() - started)
    return Outcome(mutant, killed_by, seconds=time.monotonic() - started)


def killer(status: int, printed: str) -> str:
    """Name the test that failed, empty when all passed. Raises `BrokenMutant` when none came to a result."""
    if status == PASSED:
        return ""
    lines = printed.splitlines()
    failed = [line.split(" ", 2)[1] for line in lines if line.startswith("FAILED ")]
    # A fixture that can't be set up has the same status as a failure.
    if status != FAILED or not failed or any(line.startswith("ERROR ") for line in lines):
        raise BrokenMutant(f"pytest ended with status {status}:\n" + "\n".join(lines[-8:]))
    return failed[0]


def attack_all(root: Path, folder: Path, mutants: Sequence[Mutant], jobs: int) -> Iterator[Outcome]:
    """Run mutants in as many trees as jobs, in order. Raises `BrokenMutant` when their tests fail without them."""
    trees: SimpleQueue[Tree] = SimpleQueue()
    for number in range(jobs):
        trees.put(Tree(root, folder / f"tree{number}"))
    first = trees.get()
    check_unmutated(first, mutants)
    trees.put(first)

    def next_free(mutant: Mutant) -> Outcome:
        tree = trees.get()
        try:
            return attack(tree, mutant)
        finally:
            trees.put(tree)

    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(next_free, mutants)
