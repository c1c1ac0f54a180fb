"""One transaction that takes in a batch: lock and read first, apply in memory, write the difference (R1).

Tables are locked and written in one order (meta, sessions, policies, decisions, jobs, judgements, failures,
addenda, totals) and rows in the order of their keys, so that two recorders wait for each other instead of
deadlocking.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import msgspec
from sqlalchemy import Connection, Table, bindparam, select, tuple_, update

from monitor.decision import PolicyLoaded
from monitor.session import Addendum
from monitor.store import locks
from monitor.store.ledger import Sums, TotalKey
from monitor.store.retention import pruned_before
from monitor.store.rows import (
    Prepared,
    Row,
    RubricCounts,
    Screened,
    decision_columns,
    decision_facts,
    fingerprints,
    judgement_columns,
    judgement_facts,
)
from monitor.store.segment import Segment
from monitor.store.statements import add_totals, insert_new
from monitor.store.tables import (
    ADDENDA,
    DECISIONS,
    FAILURES,
    JOBS,
    JUDGEMENTS,
    POLICIES,
    SESSIONS,
)
from monitor.store.zeros import policy_keys


class BadRecord(Exception):
    """One record of a batch can't be counted; the transaction is rolled back and run without it."""

    def __init__(self, item: Prepared, error: ValueError) -> None:
        super().__init__(str(error))
        self.item = item
        self.error = error


class Tallied(msgspec.Struct, kw_only=True):
    """What one transaction stored; `standings` counts new judgements by standing."""

    policies: int = 0
    decisions: int = 0
    overlaps: int = 0
    addenda: int = 0
    judgements: int = 0
    duplicates: int = 0
    standings: dict[str, int] = {}


class Batch:
    """One batch inside its transaction.

    `series` holds totals that are known to exist: adding nothing to them is left out. `sums` collects what the
    batch adds.
    """

    def __init__(self, connection: Connection, items: Sequence[Prepared], series: AbstractSet[TotalKey]) -> None:
        self._connection = connection
        self._series = series
        # Stable: records of one session keep the order in which they came, which decides overlaps.
        self._items = sorted(items, key=lambda item: item.session_key)
        self._segments: dict[str, Segment] = {}
        self._known_jobs: dict[str, dict[str, str]] = {}
        self._known_standings: dict[str, str] = {}
        self._prints: dict[str, dict[str, frozenset[bytes]]] = {}
        self._forgotten: frozenset[str] = frozenset()
        self._pruned_before = 0
        self._new_decisions: list[tuple[int, Row]] = []
        self._new_judgements: list[tuple[int, Row]] = []
        self.sums: Sums = {}
        self._new_failures: list[Row] = []
        self.report = Tallied()

    def run(self, rubrics: Mapping[str, RubricCounts], judge: str, screen: Screened | None = None) -> Tallied:
        """Take in every record. Raises `BadRecord` for one that can't be counted."""
        self._lock()
        self._load()
        self._policies(rubrics, judge, screen)
        for item in self._items:
            try:
                self._apply(item)
            except ValueError as error:
                raise BadRecord(item, error) from error
        self._write()
        return self.report

    def _lock(self) -> None:
        locks.share(self._connection)
        keys = sorted({item.session_key for item in self._items if item.session_key})
        if not keys:
            return
        insert_new(self._connection, SESSIONS, [{"session_key": key, "forgotten_at": None} for key in keys])
        locked = self._connection.execute(
            select(SESSIONS)
            .where(SESSIONS.c.session_key.in_(keys))
            .order_by(SESSIONS.c.session_key)
            .with_for_update()
        )
        self._forgotten = frozenset(row.session_key for row in locked if row.forgotten_at is not None)
        self._pruned_before = pruned_before(self._connection)

    def _load(self) -> None:
        keys = sorted({item.segment_key for item in self._items if item.decision or item.judgement})
        if not keys:
            return
        decided = select(*decision_columns()).where(DECISIONS.c.segment_key.in_(keys))
        rows = self._connection.execute(decided).mappings()
        decisions = {row["segment_key"]: decision_facts(row) for row in rows}
        listed = select(JOBS.c.segment_key, JOBS.c.job_id, JOBS.c.state).where(JOBS.c.segment_key.in_(keys))
        for key, job_id, state in self._connection.execute(listed):
            self._known_jobs.setdefault(key, {})[job_id] = state
        for key in keys:
            self._segments[key] = Segment(decisions.get(key), dict(self._known_jobs.get(key, {})), sums=self.sums)
        stored = select(*judgement_columns()).where(JUDGEMENTS.c.segment_key.in_(keys)).order_by(JUDGEMENTS.c.id)
        for row in self._connection.execute(stored).mappings():
            self._segments[row["segment_key"]].judgements.append(judgement_facts(row))
            self._known_standings[row["digest"]] = row["standing"]
        self._load_fingerprints(decisions)

    def _load_fingerprints(self, decided: Mapping[str, Any]) -> None:
        sessions = {item.session_key for item in self._items if item.decision and item.segment_key not in decided}
        if not sessions:
            return
        columns = DECISIONS.c.session_key, DECISIONS.c.segment_key, DECISIONS.c.fingerprints
        where = DECISIONS.c.session_key.in_(sorted(sessions))
        for session, segment, packed in self._connection.execute(select(*columns).where(where)):
            self._prints.setdefault(session, {})[segment] = fingerprints(packed)

    def _policies(self, rubrics: Mapping[str, RubricCounts], judge: str, screen: Screened | None) -> None:
        for item in self._items:
            if not isinstance(item.record, PolicyLoaded):
                continue
            newest = select(POLICIES.c.policy, POLICIES.c.body).order_by(POLICIES.c.id.desc()).limit(1)
            row = self._connection.execute(newest).first()
            if row is not None and bytes(row.body) == item.row["body"]:
                self.report.duplicates += 1
            else:
                self._connection.execute(POLICIES.insert(), [item.row])
                self.report.policies += 1
            # Again even for a known policy: the judge or the allow-list may be new.
            for key in policy_keys(item.record, rubrics, judge, screen):
                self.sums.setdefault(key, 0)

    def _apply(self, item: Prepared) -> None:
        if item.decision is not None:
            self._decide(item)
        elif item.judgement is not None:
            self._judge(item)

    def _decide(self, item: Prepared) -> None:
        facts, segment = item.decision, self._segments[item.segment_key]
        if facts is None or segment.decision is not None or self._is_pruned(item.row["closed_at"]):
            self.report.duplicates += 1
            return
        mine = fingerprints(item.row["fingerprints"])
        others = self._prints.setdefault(item.session_key, {})
        facts.overlap = any(mine & theirs for theirs in others.values())
        segment.decide(facts)
        others[item.segment_key] = mine
        forgotten = {"content": None} if item.session_key in self._forgotten else {}
        self._new_decisions.append((item.position, {**item.row, "overlap": facts.overlap, **forgotten}))
        self.report.decisions += 1
        self.report.overlaps += facts.overlap

    def _judge(self, item: Prepared) -> None:
        facts, segment = item.judgement, self._segments[item.segment_key]
        pruned = segment.decision is None and self._is_pruned(item.row["finished_at"])
        # A copy, since a batch that is run again must start from an unsettled judgement.
        if facts is None or pruned or not segment.judge(facts := msgspec.structs.replace(facts)):
            self.report.duplicates += 1
            return
        forgotten = {"body": None} if item.session_key in self._forgotten else {}
        self._new_judgements.append((item.position, {**item.row, **forgotten}))
        failed = (measure for measure, (_, failures) in facts.counts.measures.items() if failures)
        self._new_failures.extend({"digest": facts.digest, "measure": measure} for measure in failed)
        self.report.judgements += 1

    def _is_pruned(self, time: int) -> bool:
        """Say whether a record that isn't stored was, and has gone with its time (R5)."""
        return time < self._pruned_before

    def _write(self) -> None:
        self._insert(DECISIONS, [row for _, row in sorted(self._new_decisions, key=_position)])
        self._write_jobs()
        self._write_judgements()
        self._write_addenda()
        new = {key: value for key, value in self.sums.items() if value or key not in self._series}
        add_totals(self._connection, new)

    def _write_jobs(self) -> None:
        listed_at = {row["segment_key"]: row["recorded_at"] for _, row in self._new_decisions}
        new, changed = [], []
        for key, segment in self._segments.items():
            known = self._known_jobs.get(key, {})
            for job_id, state in segment.jobs.items():
                if job_id not in known:
                    new.append(_job_row(key, job_id, state, segment, listed_at[key]))
                elif known[job_id] != state:
                    changed.append({"key": key, "id": job_id, "new_state": state})
        self._insert(JOBS, new)
        if changed:
            self._connection.execute(_UPDATE_JOB, changed)

    def _write_judgements(self) -> None:
        facts = [fact for segment in self._segments.values() for fact in segment.judgements]
        standings = {fact.digest: fact.standing for fact in facts}
        rows = [
            {**row, "standing": standings[row["digest"]]} for _, row in sorted(self._new_judgements, key=_position)
        ]
        self._insert(JUDGEMENTS, rows)
        for row in rows:
            self.report.standings[row["standing"]] = self.report.standings.get(row["standing"], 0) + 1
        changed = [
            {"key": digest, "new_standing": standings[digest]}
            for digest, known in sorted(self._known_standings.items())
            if standings[digest] != known
        ]
        if changed:
            self._connection.execute(_UPDATE_STANDING, changed)
        self._insert(FAILURES, self._new_failures)

    def _write_addenda(self) -> None:
        items = [item for item in self._items if isinstance(item.record, Addendum)]
        if not items:
            return
        new = {_place(item.row): item for item in reversed(items)}
        places = tuple_(ADDENDA.c.log_partition, ADDENDA.c.log_offset)
        stored = select(ADDENDA.c.log_partition, ADDENDA.c.log_offset).where(places.in_(sorted(new)))
        for place in self._connection.execute(stored).all():
            del new[place.log_partition, place.log_offset]
        rows = [
            {**new[place].row, "event": None} if new[place].session_key in self._forgotten else new[place].row
            for place in sorted(new)
        ]
        insert_new(self._connection, ADDENDA, rows)
        self.report.addenda += len(rows)
        self.report.duplicates += len(items) - len(rows)

    def _insert(self, table: Table, rows: list[Row]) -> None:
        if rows:
            self._connection.execute(table.insert(), rows)


def _place(row: Row) -> tuple[int, int]:
    return row["log_partition"], row["log_offset"]


def _position(numbered: tuple[int, Row]) -> int:
    """Ids of new rows follow the order in which records came, which the detector's cursor and the pages read."""
    return numbered[0]


def _job_row(key: str, job_id: str, state: str, segment: Segment, listed_at: int) -> Row:
    decision = segment.decision
    if decision is None:
        raise RuntimeError("a job without its decision")
    return {
        "segment_key": key,
        "job_id": job_id,
        "rubric": decision.jobs[job_id],
        "stratum": decision.stratum,
        "state": state,
        "listed_at": listed_at,
    }


_UPDATE_JOB = (
    update(JOBS)
    .where(JOBS.c.segment_key == bindparam("key"), JOBS.c.job_id == bindparam("id"))
    .values(state=bindparam("new_state"))
)
_UPDATE_STANDING = (
    update(JUDGEMENTS).where(JUDGEMENTS.c.digest == bindparam("key")).values(standing=bindparam("new_standing"))
)
