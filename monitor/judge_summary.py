"""What judging a file came to, as a value, as JSON and as a table for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import msgspec

from monitor.judgement import Judgement, Skipped, Unscored
from monitor.judging.prices import dollars
from monitor.replay_summary import Census, CensusRate, listed, percent, table
from monitor.rubrics import RUBRICS
from monitor.sampling.decide import resolve_labels
from monitor.session import Session


class JudgeSummary(msgspec.Struct, kw_only=True, frozen=True):
    """What became of `sessions` finished sessions: `verdicts`, `skipped` and `unscored` (by reason), or `missing`.

    `rates` are over all scored sessions, without weights or intervals: nothing was sampled. `invalid` counts lines
    of the input by reason, `calls` calls of the judge by error type (`none`: answered), `tokens` by type;
    `cost_nusd` is their price in 1e-9 $. `known` sessions were in the file of judgements before.
    """

    rubric: str
    judge: str
    out: str
    sessions: int
    known: int
    verdicts: int
    skipped: dict[str, int]
    unscored: dict[str, int]
    missing: int
    rates: list[CensusRate]
    invalid: dict[str, int] = {}
    calls: dict[str, int] = {}
    tokens: dict[str, int] = {}
    cost_nusd: int = 0
    canceled: bool = False

    def to_text(self) -> str:
        """Lay it out for a terminal, without any text of a session."""
        return "\n".join(_lines(self))


class JudgeCounts:
    """Counts judgements as they come."""

    def __init__(self, assistants: Mapping[str, list[str]]) -> None:
        self.verdicts = 0
        self.skipped: Counter[str] = Counter()
        self.unscored: Counter[str] = Counter()
        self._assistants = assistants
        self._census = Census()

    @property
    def judged(self) -> int:
        """How many judgements there are."""
        return self.verdicts + self.skipped.total() + self.unscored.total()

    def add(self, judgement: Judgement, session: Session) -> None:
        """Count a judgement of a session."""
        match judgement.result:
            case Skipped(reason=reason):
                self.skipped[reason] += 1
            case Unscored(reason=failed):
                self.unscored[failed] += 1
            case _:
                self.verdicts += 1
        labels = resolve_labels(session.attributes, self._assistants)
        self._census.add(judgement, labels, RUBRICS[judgement.rubric].measures)

    def rates(self) -> list[CensusRate]:
        """Give the rates so far."""
        return self._census.rates()


def _lines(summary: JudgeSummary) -> Iterator[str]:
    yield f"{summary.rubric} by {summary.judge}, in {summary.out}"
    known = f" ({summary.known} known before)" if summary.known else ""
    yield f"{summary.sessions} sessions: {summary.verdicts} verdicts{known}"
    for name, counts in (("skipped", summary.skipped), ("unscored", summary.unscored)):
        if counts:
            yield f"{sum(counts.values())} {name}{listed(counts)}"
    if summary.missing:
        yield f"{summary.missing} without a judgement{'; canceled' if summary.canceled else ''}"
    if summary.invalid:
        yield f"{sum(summary.invalid.values())} invalid, left out{listed(summary.invalid)}"
    if summary.calls:
        failed = {name: count for name, count in summary.calls.items() if name != "none"}
        yield f"{sum(summary.calls.values())} calls of the judge{listed(failed)}"
    if summary.tokens:
        yield f"{sum(summary.tokens.values())} tokens{listed(summary.tokens)}, {dollars(summary.cost_nusd)}"
    if summary.rates:
        yield ""
        heads = ("assistant", "version", "measure", "sessions", "failures", "rate")
        yield from table(heads, [_cells(rate) for rate in summary.rates])


def _cells(rate: CensusRate) -> list[str]:
    return [
        rate.assistant,
        rate.assistant_version,
        f"{rate.rubric}/{rate.measure}",
        str(rate.sessions),
        f"{rate.failures} of {rate.trials}",
        percent(rate.rate),
    ]
