"""What a labelled set is: where its sessions come from, which rubric judges them, what is compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from benchmarks.agreement.rows import Row, read
from monitor.agreement import Estimate, bootstrap
from monitor.judgement import Judgement

Record: TypeAlias = dict[str, Any]
Compare: TypeAlias = Callable[[Sequence[Any], Sequence[Any]], float | None]


class Unit(msgspec.Struct, kw_only=True, frozen=True):
    """One comparison: what is true, what the judge said, and what a trivial rule would have said.

    `source` is the dialogue that a row was made of; units of one source are resampled together. `kind` tells units
    of different figures apart.
    """

    kind: str
    source: str
    truth: Any
    said: Any
    trivial: Any = None


class Figure(msgspec.Struct, kw_only=True, frozen=True):
    """One figure of a set: `compare(truth, said)` over the units of a kind.

    With `trivial` it is also computed for the trivial rule on the same units, as `baseline_<name>`.
    """

    name: str
    kind: str
    compare: Compare
    goal: float | None = None
    at_most: float | None = None
    trivial: bool = False

    def misses(self, value: float | None) -> str | None:
        """Say which goal a value misses, or None."""
        if self.goal is not None and (value is None or value < self.goal):
            return f"at least {self.goal}"
        if self.at_most is not None and (value is None or value > self.at_most):
            return f"at most {self.at_most}"
        return None


class LabelledSet(msgspec.Struct, kw_only=True, frozen=True):
    """A set. `prepare` makes the sessions to judge of the records of its file and of `more_files`.

    `table` is the kind of unit whose confusion is worth a look (`--confusion`).
    """

    name: str
    file: str
    rubric: str
    units: Callable[[Row, Judgement], Iterable[Unit]]
    figures: tuple[Figure, ...]
    prepare: Callable[[list[Record]], list[Record]] = list
    table: str | None = None
    more_files: tuple[str, ...] = ()

    def records(self, folder: Path) -> list[Record]:
        """Read the sessions to judge from a folder; files of `more_files` may be absent."""
        more = [folder / name for name in self.more_files if (folder / name).exists()]
        return self.prepare([record for path in (folder / self.file, *more) for record in read(path)])


def measured(figures: Sequence[Figure], units: Sequence[Unit], resamples: int) -> dict[str, Estimate]:
    """Compute a set's figures, with intervals by source dialogue."""
    found: dict[str, Estimate] = {}
    for figure in figures:
        of_kind = [unit for unit in units if unit.kind == figure.kind]
        found[figure.name] = _estimate(of_kind, figure.compare, lambda unit: unit.said, resamples)
        if figure.trivial:
            trivial = _estimate(of_kind, figure.compare, lambda unit: unit.trivial, resamples)
            found[f"baseline_{figure.name}"] = trivial
    return found


def _estimate(units: Sequence[Unit], compare: Compare, said: Callable[[Unit], Any], resamples: int) -> Estimate:
    def figure(drawn: Sequence[Unit]) -> float | None:
        return compare([unit.truth for unit in drawn], [said(unit) for unit in drawn])

    return bootstrap(units, lambda unit: unit.source, figure, resamples=resamples)
