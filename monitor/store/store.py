"""The store: where decisions, judgements and totals live, and where alone counting happens."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from monitor.decision import DecisionRecord, Job
from monitor.judgement import Judgement
from monitor.store import queries, retention
from monitor.store.connect import blames_data, connect, migrate, reading, translated, worth_retrying, writing
from monitor.store.costs import DayCost, Volume, costs_by_day
from monitor.store.costs import volumes as read_volumes
from monitor.store.ledger import TotalKey
from monitor.store.queries import Page, SessionFilter, StoredSession
from monitor.store.recording import BadRecord, Batch, Tallied
from monitor.store.rows import Prepared, RubricCounts, Screened, prepare
from monitor.store.totals import Totals, is_rebuilding, read_totals, rebuild

Record: TypeAlias = DecisionRecord | Judgement
_TRIES: Final = 8


class Rejected(msgspec.Struct, kw_only=True, frozen=True):
    """A record that can't be stored, and why; the rest of its batch is stored."""

    record: Record
    error: str


class RecordReport(Tallied, kw_only=True):
    """What `Store.record` did. `standings` counts the new judgements by standing (see `tables`)."""

    rejected: list[Rejected] = msgspec.field(default_factory=list)


class Store:
    """The store behind one database URL. Thread-safe; every call is one transaction and blocks.

    `rubrics` says what each rubric can count, `judge` and `screen` which instruments are configured: `record`
    needs them for the zero totals of a policy and the zero tallies of sessions without a trial. Readers may leave
    them out.
    `clock` gives Unix seconds.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        rubrics: Mapping[str, RubricCounts] | None = None,
        judge: str = "lexical",
        screen: Screened | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._engine = engine
        self._rubrics = dict(rubrics or {})
        self._judge = judge
        self._screen = screen
        self._clock = clock
        # Totals that exist for certain; they are never removed, so this can only be behind.
        self._series: set[TotalKey] = set()

    @classmethod
    def open(
        cls,
        url: str,
        *,
        rubrics: Mapping[str, RubricCounts] | None = None,
        judge: str = "lexical",
        screen: Screened | None = None,
        clock: Callable[[], float] = time.time,
    ) -> Store:
        """Open a store and bring its schema up to date. Raises `StoreError` that names it and the remedy."""
        engine = connect(url)
        try:
            migrate(engine)
        except BaseException:
            engine.dispose()
            raise
        return cls(engine, rubrics=rubrics, judge=judge, screen=screen, clock=clock)

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def ping(self) -> bool:
        """Check that the database answers; says whether its totals can be trusted. Raises `StoreError`."""
        with translated(self._engine), reading(self._engine) as connection:
            return not is_rebuilding(connection)

    def record(self, batch: Sequence[Record]) -> RecordReport:
        """Take in a batch in one transaction (R1); redelivery is free. Commit offsets after it returns.

        A record that can't be stored is left out and reported; the others are stored. Raises `StoreError` when the
        database can't be used; nothing is stored then, and the batch may be sent again.
        """
        report = RecordReport()
        items: list[Prepared] = []
        now = self._now()
        for position, record in enumerate(batch):
            try:
                item = prepare(record, self._rubrics, now)
            except (ValueError, OverflowError, TypeError) as error:
                report.rejected.append(Rejected(record=record, error=str(error)))
            else:
                item.position = position
                items.append(item)
        with translated(self._engine):
            self._bisect(items, report)
        return report

    def totals(self) -> Totals:
        """Read all totals from one snapshot (R4). Raises `StoreError`."""
        with translated(self._engine):
            return read_totals(self._engine)

    def rebuild_totals(self) -> int:
        """Compute the totals again from the rows, as after a restore; gives the new generation (R4)."""
        with translated(self._engine):
            return rebuild(self._engine)

    def sessions(self, wanted: SessionFilter) -> Page:
        """List judgements that match, the newest first."""
        with translated(self._engine), reading(self._engine) as connection:
            return queries.judged(connection, wanted)

    def session(self, tenant: str, session_id: str, segment: str) -> StoredSession | None:
        """Give all that is stored of one segment, or None."""
        with translated(self._engine), reading(self._engine) as connection:
            return queries.one(connection, tenant, session_id, segment)

    def job(self, tenant: str, session_id: str, job_id: str) -> Job | None:
        """Make a job again from the decision that lists it; None when there is none, or its text is gone."""
        with translated(self._engine), reading(self._engine) as connection:
            return queries.job(connection, tenant, session_id, job_id)

    def costs(self, since: float) -> list[DayCost]:
        """Give what each judge and rubric cost on each day since then (Unix seconds), the newest day first."""
        with translated(self._engine), reading(self._engine) as connection:
            return costs_by_day(connection, round(since * 1000))

    def volumes(self, since: float, judge: str) -> list[Volume]:
        """Give how much there was to judge since then (Unix seconds), and what this judge took for it."""
        with translated(self._engine), reading(self._engine) as connection:
            return read_volumes(connection, round(since * 1000), judge)

    def forget(self, tenant: str, session_id: str) -> bool:
        """Remove all text of a session for good; its numbers stay (R5). Says whether anything was stored."""
        with translated(self._engine), writing(self._engine) as connection:
            return retention.forget(connection, tenant, session_id, self._now())

    def expire(self, *, text_before: float, rows_before: float) -> retention.Expired:
        """Remove text, and then whole rows, recorded before these times (Unix seconds); totals stay (R5)."""
        with translated(self._engine):
            return retention.expire(self._engine, round(text_before * 1000), round(rows_before * 1000))

    def _now(self) -> int:
        return round(self._clock() * 1000)

    def _bisect(self, items: list[Prepared], report: RecordReport) -> None:
        """Store a batch; when the database refuses it, store its halves, so that one bad record stands alone."""
        if not items:
            return
        try:
            done = self._transaction(items)
        except BadRecord as bad:
            report.rejected.append(Rejected(record=bad.item.record, error=str(bad)))
            self._bisect([item for item in items if item is not bad.item], report)
        except (DBAPIError, OverflowError) as error:
            if isinstance(error, DBAPIError) and not blames_data(error):
                raise
            if len(items) == 1:
                report.rejected.append(Rejected(record=items[0].record, error=_sentence(error)))
                return
            half = len(items) // 2
            self._bisect(items[:half], report)
            self._bisect(items[half:], report)
        else:
            _merge(report, done)

    def _transaction(self, items: list[Prepared]) -> Tallied:
        for attempt in range(1, _TRIES + 1):
            try:
                with writing(self._engine) as connection:
                    batch = Batch(connection, items, self._series)
                    done = batch.run(self._rubrics, self._judge, self._screen)
            except DBAPIError as error:
                if attempt == _TRIES or not worth_retrying(error):
                    raise
                # Waiting different times keeps two that met from meeting again.
                time.sleep(random.uniform(0.5, 1) * 0.02 * attempt)  # noqa: S311 - no secret
            else:
                self._series.update(batch.sums)
                return done
        raise AssertionError("unreachable")


def _merge(report: RecordReport, done: Tallied) -> None:
    for name in ("policies", "decisions", "overlaps", "addenda", "judgements", "duplicates"):
        setattr(report, name, getattr(report, name) + getattr(done, name))
    for standing, count in done.standings.items():
        report.standings[standing] = report.standings.get(standing, 0) + count


def _sentence(error: Exception) -> str:
    """Say what is wrong in one line, without the statement and its values: they hold text of users."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    return " ".join(str(cause).split("\n", 1)[0].split()) or type(cause).__name__
