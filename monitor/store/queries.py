"""What the pages read: the list of judged sessions, and one session with everything that is stored of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec
from sqlalchemy import ColumnElement, Connection, Row, Select, select

from monitor.decision import Job
from monitor.judgement import Judgement, decode_judgement
from monitor.session import Session, decode_content, session_view
from monitor.store.ledger import Counts
from monitor.store.rows import clean, decision_facts, segment_key
from monitor.store.tables import ADDENDA, DECISIONS, FAILURES, JOBS, JUDGEMENTS

FAILING: Final = "failing"
"""The filter's name for verdicts that failed on some measure."""
_COUNTS = msgspec.json.Decoder(Counts)


class SessionFilter(msgspec.Struct, kw_only=True, frozen=True):
    """Which judgements to list; None lets everything through.

    `kind` is a result's, or `failing` for verdicts that failed on any measure; `failure` is one measure on which
    something failed, such as `reverted`. `since` and `until` bound the time of the judgement, in Unix
    milliseconds. `before` is the `next` of a page.
    """

    session_id: str | None = None
    rubric: str | None = None
    stratum: str | None = None
    kind: str | None = None
    failure: str | None = None
    assistant: str | None = None
    assistant_version: str | None = None
    since: int | None = None
    until: int | None = None
    before: int | None = None
    limit: int = 50


class JudgedSession(msgspec.Struct, kw_only=True, frozen=True):
    """A line of the list: one counted judgement under its stored decision. Times are Unix milliseconds."""

    id: int
    tenant: str
    session_id: str
    segment: str
    finished_at: int
    turns: int
    assistant: str
    assistant_version: str
    stratum: str
    probability: float
    rubric: str
    judge: str
    kind: str
    reason: str
    failures: tuple[str, ...]
    trials: int
    score: float | None


class Page(msgspec.Struct, kw_only=True, frozen=True):
    """A page of the list; `next` is None on the last one."""

    rows: tuple[JudgedSession, ...]
    next: int | None


class StoredDecision(msgspec.Struct, kw_only=True, frozen=True):
    """The stored decision of a segment, for people."""

    closed_at: int
    recorded_at: int
    close_reason: str
    previous_segment: str | None
    content_hash: str
    policy: str
    stratum: str
    priority: str
    probability: float
    selected: bool
    holdout: bool
    overlap: bool
    assistant: str
    assistant_version: str
    turns: int
    signals: dict[str, object]
    error: str | None


class StoredJudgement(msgspec.Struct, kw_only=True, frozen=True):
    """A judgement and its standing; `judgement` is None once its text was removed."""

    rubric: str
    judge: str
    kind: str
    reason: str
    standing: str
    finished_at: int
    score: float | None
    counts: Counts
    judgement: Judgement | None


class StoredAddendum(msgspec.Struct, kw_only=True, frozen=True):
    """A late event; None once its text was removed."""

    partition: int
    offset: int
    event: bytes | None


class PendingJob(msgspec.Struct, kw_only=True, frozen=True):
    """A job that the stored decision lists and that has no result yet. `listed_at` in Unix milliseconds."""

    rubric: str
    listed_at: int


class StoredSession(msgspec.Struct, kw_only=True, frozen=True):
    """One segment: `decision` is None while only its judgement is here, `view` when its text isn't stored."""

    tenant: str
    session_id: str
    segment: str
    decision: StoredDecision | None
    view: Session | None
    judgements: tuple[StoredJudgement, ...]
    addenda: tuple[StoredAddendum, ...]
    pending: tuple[PendingJob, ...] = ()


def judged(connection: Connection, wanted: SessionFilter) -> Page:
    """List counted judgements that match, the newest first."""
    rows = connection.execute(_narrowed(_listing(), wanted).limit(wanted.limit + 1)).all()
    shown = rows[: wanted.limit]
    more = len(rows) > wanted.limit
    return Page(rows=tuple(_line(row) for row in shown), next=shown[-1].id if more else None)


def one(connection: Connection, tenant: str, session_id: str, segment: str) -> StoredSession | None:
    """Give all that is stored of one segment, found by its text as stored (NUL-cleaned)."""
    names = {"tenant": clean(tenant), "session_id": clean(session_id), "segment": clean(segment)}
    decision = connection.execute(
        select(DECISIONS).where(*(DECISIONS.c[name] == value for name, value in names.items())).limit(1)
    ).first()
    # Without a decision only the exact ids lead to the rows; with NUL in them the page waits for the decision.
    key = segment_key(tenant, session_id, segment) if decision is None else decision.segment_key
    judgements = connection.execute(
        select(JUDGEMENTS).where(JUDGEMENTS.c.segment_key == key).order_by(JUDGEMENTS.c.id)
    ).all()
    addenda = connection.execute(
        select(ADDENDA).where(ADDENDA.c.segment_key == key).order_by(ADDENDA.c.log_partition, ADDENDA.c.log_offset)
    ).all()
    if decision is None and not judgements and not addenda:
        return None
    pending = connection.execute(
        select(JOBS.c.rubric, JOBS.c.listed_at)
        .where(JOBS.c.segment_key == key, JOBS.c.state == "pending")
        .order_by(JOBS.c.rubric)
    ).all()
    return StoredSession(
        **names,
        decision=None if decision is None else _decision(decision),
        view=None if decision is None or decision.content is None else session_view(decision.content),
        judgements=tuple(_judgement(row) for row in judgements),
        addenda=tuple(
            StoredAddendum(partition=row.log_partition, offset=row.log_offset, event=row.event) for row in addenda
        ),
        pending=tuple(PendingJob(rubric=row.rubric, listed_at=row.listed_at) for row in pending),
    )


def job(connection: Connection, tenant: str, session_id: str, job_id: str) -> Job | None:
    """Make a job again from the stored decision that lists it, the very bytes of the session included."""
    listed = select(DECISIONS).where(
        DECISIONS.c.tenant == clean(tenant), DECISIONS.c.session_id == clean(session_id)
    )
    for row in connection.execute(listed):
        rubric = decision_facts(row._mapping).jobs.get(job_id)  # noqa: SLF001 - SQLAlchemy's public name for it
        if rubric is not None and row.content is not None:
            content = decode_content(row.content)
            return Job(
                job_id=job_id,
                tenant=content.tenant,
                session_id=content.session_id,
                segment=content.segment,
                rubric=rubric,
                stratum=row.stratum,
                priority=row.priority,
                content_hash=row.content_hash,
                content=msgspec.Raw(row.content),
            )
    return None


def _listing() -> Select[Any]:
    judgement = ("id", "tenant", "session_id", "segment", "finished_at", "rubric", "judge", "kind", "reason",
                 "counts", "score")  # fmt: skip
    decision = ("turns", "assistant", "assistant_version", "stratum", "weight16")
    columns = (*(JUDGEMENTS.c[name] for name in judgement), *(DECISIONS.c[name] for name in decision))
    joined = JUDGEMENTS.join(DECISIONS, DECISIONS.c.segment_key == JUDGEMENTS.c.segment_key)
    counted = JUDGEMENTS.c.standing == "counted"
    return select(*columns).select_from(joined).where(counted).order_by(JUDGEMENTS.c.id.desc())


def _narrowed(query: Select[Any], wanted: SessionFilter) -> Select[Any]:
    for name in ("session_id", "rubric"):
        if (value := getattr(wanted, name)) is not None:
            query = query.where(JUDGEMENTS.c[name] == clean(value))
    for name in ("stratum", "assistant", "assistant_version"):
        if (value := getattr(wanted, name)) is not None:
            query = query.where(DECISIONS.c[name] == clean(value))
    for condition in _by_outcome(wanted):
        query = query.where(condition)
    if wanted.since is not None:
        query = query.where(JUDGEMENTS.c.finished_at >= wanted.since)
    if wanted.until is not None:
        query = query.where(JUDGEMENTS.c.finished_at < wanted.until)
    if wanted.before is not None:
        query = query.where(JUDGEMENTS.c.id < wanted.before)
    return query


def _by_outcome(wanted: SessionFilter) -> Iterator[ColumnElement[bool]]:
    failed = select(FAILURES.c.digest).where(FAILURES.c.digest == JUDGEMENTS.c.digest)
    if wanted.kind == FAILING:
        yield failed.exists()
    elif wanted.kind is not None:
        yield JUDGEMENTS.c.kind == clean(wanted.kind)
    if wanted.failure is not None:
        yield failed.where(FAILURES.c.measure == clean(wanted.failure)).exists()


def _line(row: Row[Any]) -> JudgedSession:
    values = dict(row._mapping)  # noqa: SLF001 - SQLAlchemy's public name for it
    tallies = _COUNTS.decode(values.pop("counts")).measures
    return JudgedSession(
        probability=16 / values.pop("weight16"),
        failures=tuple(measure for measure, (_, failed) in tallies.items() if failed),
        trials=max((trials for trials, _ in tallies.values()), default=0),
        **values,
    )


def _decision(row: Row[Any]) -> StoredDecision:
    same = ("closed_at", "recorded_at", "close_reason", "previous_segment", "content_hash", "policy", "stratum",
            "priority", "selected", "holdout", "overlap", "assistant", "assistant_version", "turns",
            "error")  # fmt: skip
    return StoredDecision(
        probability=16 / row.weight16,
        signals=msgspec.json.decode(row.signals),
        **{name: getattr(row, name) for name in same},
    )


def _judgement(row: Row[Any]) -> StoredJudgement:
    same = ("rubric", "judge", "kind", "reason", "standing", "finished_at", "score")
    return StoredJudgement(
        counts=_COUNTS.decode(row.counts),
        judgement=None if row.body is None else decode_judgement(row.body),
        **{name: getattr(row, name) for name in same},
    )
