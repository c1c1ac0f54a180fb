"""The store against a store without faults: rows, totals, what the rows add up to, and `/metrics`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import Select, select

from consumers.record import rubric_counts
from monitor.decision import decode_decision
from monitor.exporter import families
from monitor.rubrics import RUBRICS
from monitor.store import Store
from monitor.store.connect import reading
from monitor.store.ledger import TotalKey
from monitor.store.segment import COUNTED
from monitor.store.tables import ADDENDA, DECISIONS, JOBS, JUDGEMENTS
from monitor.store.totals import row_sums
from tests.chaos.check import Observed, Report
from tests.chaos.reference import Reference, Segment

SUPERSEDED: Final = "judgements_superseded"
# Moves on by itself.
AGE: Final = "backslide_oldest_pending_job_seconds"

_DECISIONS: Final = select(
    DECISIONS.c.segment_key,
    DECISIONS.c.session_id,
    DECISIONS.c.previous_segment,
    DECISIONS.c.content_hash,
    DECISIONS.c.close_reason,
    DECISIONS.c.log_partition,
    DECISIONS.c.first_offset,
    DECISIONS.c.last_offset,
    DECISIONS.c.closed_at,
    DECISIONS.c.policy,
    DECISIONS.c.stratum,
    DECISIONS.c.weight16,
    DECISIONS.c.selected,
    DECISIONS.c.holdout,
    DECISIONS.c.overlap,
    DECISIONS.c.assistant,
    DECISIONS.c.assistant_version,
    DECISIONS.c.turns,
    DECISIONS.c.jobs,
    DECISIONS.c.content,
)
_JOBS: Final = select(JOBS.c.segment_key, JOBS.c.job_id, JOBS.c.rubric, JOBS.c.stratum, JOBS.c.state)
_COUNTED: Final = select(
    JUDGEMENTS.c.segment_key,
    JUDGEMENTS.c.job_id,
    JUDGEMENTS.c.content_hash,
    JUDGEMENTS.c.kind,
    JUDGEMENTS.c.reason,
    JUDGEMENTS.c.score,
    JUDGEMENTS.c.counts,
).where(JUDGEMENTS.c.standing == COUNTED)
_ADDENDA: Final = select(ADDENDA.c.log_partition, ADDENDA.c.log_offset, ADDENDA.c.segment_key, ADDENDA.c.event)
TABLES: Final[dict[str, Select[Any]]] = {
    "decisions": _DECISIONS,
    "jobs": _JOBS,
    "counted judgements": _COUNTED,
    "addenda": _ADDENDA,
}


class Stores:
    """The store of the pipeline under test, and one that is filled from the reference run, each record once."""

    def __init__(self, url: str, reference_url: str) -> None:
        self.store = Store.open(url)
        self.reference = Store.open(reference_url, rubrics=rubric_counts(RUBRICS), judge="lexical")
        self._fed: set[object] = set()

    def close(self) -> None:
        """Close both."""
        self.store.close()
        self.reference.close()

    def feed(self, reference: Reference, observed: Observed) -> None:
        """Bring the store without faults up to date: the first decision of each segment, each answer once."""
        records: list[Any] = []
        for value, policy in self._new(observed.policies.items()):
            records += [policy] if value else []
        for segment, copies in self._new(observed.decisions.items()):
            if segment not in reference.segments or copies[0].policy not in reference.policies:
                continue  # the comparison of decisions says so
            decided = reference.decided(segment, copies[0].policy)
            records.append(decode_decision(decided.decision))
            records += [reference.answers[job_id] for job_id in decided.jobs if job_id in reference.answers]
        records += [decode_decision(addendum) for _, addendum in self._new(reference.addenda.items())]
        for start in range(0, len(records), 500):
            report = self.reference.record(records[start : start + 500])
            assert not report.rejected, report.rejected[0].error

    def _new(self, items: Any) -> Iterator[tuple[Any, Any]]:
        for key, value in list(items):
            if key not in self._fed:
                self._fed.add(key)
                yield key, value

    def waiting(self, reference: Reference, observed: Observed) -> Iterator[str]:
        """Say what the store has yet to take in."""
        with reading(self.store._engine) as connection:
            stored = {
                name: len(connection.execute(select(column)).all())
                for name, column in (
                    ("decisions", DECISIONS.c.id),
                    ("judgements", JUDGEMENTS.c.id),
                    ("addenda", ADDENDA.c.log_offset),
                )
            }
        wanted = {
            "decisions": len(reference.segments),
            "judgements": sum(map(len, observed.answers.values())),
            "addenda": len(reference.addenda),
        }
        for name, count in wanted.items():
            if stored[name] < count:
                yield f"{count - stored[name]} {name} are not in the store"

    def compare(self, reference: Reference, observed: Observed, report: Report) -> None:
        """Compare rows and totals (R1 to R3). Both must be up to date."""
        for name, query in TABLES.items():
            found, wanted = self._rows(self.store, query), self._rows(self.reference, query)
            report.add("lost", f"rows of {name}", sorted(map(_short, (wanted - found).elements())))
            report.add("doubled", f"rows of {name}", sorted(map(_short, (found - wanted).elements())))
        totals, wanted_totals = self.store.totals(), self.reference.totals()
        sums, wanted_sums = dict(totals.sums), dict(wanted_totals.sums)
        report.superseded = sum(sums.pop(key) for key in list(sums) if key.name == SUPERSEDED)
        for key in [key for key in wanted_sums if key.name == SUPERSEDED]:
            del wanted_sums[key]
        report.add("differing", "totals", sorted(_unequal(sums, wanted_sums)))
        again = sum(map(len, observed.answers.values())) - self._counted(reference, observed)
        if report.superseded != again:
            report.add("differing", f"second answers ({report.superseded}, should be {again})", ["superseded"])
        report.add("lost", "jobs still pending (R2)", totals.pending)
        self._identity(sums, report)
        self._rebuilt(report)

    def _counted(self, reference: Reference, observed: Observed) -> int:
        return sum(
            len(reference.decided(segment, copies[0].policy).jobs.keys() & observed.answers.keys())
            for segment, copies in observed.decisions.items()
            if segment in reference.segments and copies[0].policy in reference.policies
        )

    def _identity(self, sums: dict[TotalKey, int], report: Report) -> None:
        by_name: Counter[str] = Counter()
        for key, value in sums.items():
            by_name[key.name] += value
        listed = by_name["jobs_listed"]
        answered = by_name["verdicts"] + by_name["skipped"] + by_name["unscored"]
        if listed != answered:
            report.add("differing", "R2", [f"{listed} jobs listed, {answered} answered"])

    def _rebuilt(self, report: Report) -> None:
        """Totals equal what the rows add up to (R3), without rebuilding anything under the recorder."""
        totals = {key: value for key, value in self.store.totals().sums.items() if value}
        rebuilt: Counter[TotalKey] = Counter()
        with reading(self.store._engine) as connection:
            for key, value in row_sums(connection):
                rebuilt[key] += value
        found = {key: value for key, value in rebuilt.items() if value}
        report.add("differing", "totals against the sum of the rows", sorted(_unequal(totals, found)))

    def rebuild(self) -> list[str]:
        """Compute the totals again from the rows, for good; give what is different then."""
        before = dict(self.store.totals().sums)
        self.store.rebuild_totals()
        after = dict(self.store.totals().sums)
        return [
            f"{key.name} is {after.get(key)} after a rebuild, was {before.get(key)}"
            for key in _unequal(before, after)
        ]

    def compare_metrics(self, shown: str, report: Report) -> None:
        """Compare the page of metrics with the totals (R4)."""
        wanted = {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in families(self.store.totals(), 0.0)
            for sample in family.samples
            if sample.name != AGE
        }
        names = {name for name, _ in wanted}
        found = {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(shown)
            for sample in family.samples
            if sample.name in names
        }
        report.add("differing", "metrics", sorted({name for name, _ in _unequal(found, wanted)}))

    def waits(self, reference: Reference, since: dict[Segment, float]) -> list[float]:
        """Seconds from each segment's close in the log, or from `since` if that is later, until it was recorded.

        A segment that is judged is recorded when its counted judgements are.
        """
        with reading(self.store._engine) as connection:
            rows = connection.execute(
                select(DECISIONS.c.tenant, DECISIONS.c.session_id, DECISIONS.c.recorded_at, DECISIONS.c.segment)
            ).all()
            answers = connection.execute(
                select(
                    JUDGEMENTS.c.tenant,
                    JUDGEMENTS.c.session_id,
                    JUDGEMENTS.c.recorded_at,
                    JUDGEMENTS.c.segment,
                ).where(JUDGEMENTS.c.standing == COUNTED)
            ).all()
        recorded: dict[Segment, int] = {}
        for row in (*rows, *answers):
            segment = (row.tenant, row.session_id, row.segment)
            recorded[segment] = max(recorded.get(segment, 0), row.recorded_at)
        return [
            max(recorded[segment] / 1000 - max(reference.segments[segment].at / 1000, earliest), 0.0)
            for segment, earliest in since.items()
            if segment in recorded
        ]

    @staticmethod
    def _rows(store: Store, query: Select[Any]) -> Counter[Any]:
        with reading(store._engine) as connection:
            return Counter(tuple(row) for row in connection.execute(query))


def _unequal(one: dict[Any, Any], other: dict[Any, Any]) -> Iterator[Any]:
    return (key for key in one.keys() | other.keys() if one.get(key, 0) != other.get(key, 0))


def _short(row: tuple[Any, ...]) -> tuple[str, ...]:
    return tuple(str(part)[:40] for part in row[:3])
