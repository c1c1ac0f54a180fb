"""The tables of the store, the same on SQLite and PostgreSQL.

Ids that come from outside may be long and hold anything, so rows are keyed by digests of them: `session_key` for
(tenant, session_id), `segment_key` for (tenant, session_id, segment). The text columns are for people. Times are
Unix milliseconds. Large blobs come last in their row, where a scan of the others doesn't touch them.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    text,
)

METADATA: Final = MetaData(
    naming_convention={
        "ix": "ix_%(column_0_label)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# SQLite only counts up a primary key that is declared as INTEGER.
SERIAL: Final = BigInteger().with_variant(Integer(), "sqlite")


def _text(name: str, *, nullable: bool = False, server_default: str | None = None) -> Column[str]:
    return Column(name, Text, nullable=nullable, server_default=server_default)


def _big(name: str, *, nullable: bool = False, server_default: str | None = None) -> Column[int]:
    return Column(name, BigInteger, nullable=nullable, server_default=server_default)


def _identity() -> tuple[Column[str], ...]:
    """Name a session in the words of its producer, NUL-cleaned."""
    return _text("tenant"), _text("session_id"), _text("segment")


META: Final = Table("meta", METADATA, Column("name", Text, primary_key=True), _big("value"))
"""`generation` of the totals; `rebuilding`: 1 while they can't be trusted; `pruned_before`: Unix milliseconds."""

POLICIES: Final = Table(
    "policies",
    METADATA,
    Column("id", SERIAL, primary_key=True, autoincrement=True),
    _text("policy"),
    _big("loaded_at"),
    Column("body", LargeBinary, nullable=False),
)

SESSIONS: Final = Table(
    "sessions",
    METADATA,
    Column("session_key", Text, primary_key=True),
    _big("forgotten_at", nullable=True),
)
"""The row that a transaction locks. One per session, so that it covers all segments of the session (R1, R5)."""

DECISIONS: Final = Table(
    "decisions",
    METADATA,
    Column("id", SERIAL, primary_key=True, autoincrement=True),
    Column("segment_key", Text, nullable=False, unique=True),
    Column("session_key", Text, nullable=False, index=True),
    *_identity(),
    _text("previous_segment", nullable=True),
    _text("content_hash"),
    _text("close_reason"),
    Column("log_partition", Integer, nullable=False),
    _big("first_offset"),
    _big("last_offset"),
    _big("closed_at"),
    _big("recorded_at"),
    _text("policy"),
    _text("stratum"),
    _text("priority"),
    _big("weight16"),
    Column("selected", Boolean, nullable=False),
    Column("holdout", Boolean, nullable=False),
    Column("overlap", Boolean, nullable=False),
    _text("assistant"),
    _text("assistant_version"),
    Column("turns", Integer, nullable=False),
    _text("frame"),
    _text("jobs"),
    _text("signals"),
    _text("error", nullable=True),
    Column("fingerprints", LargeBinary, nullable=False),
    Column("content", LargeBinary, nullable=True),
    Index("ix_decisions_tenant_session_id", "tenant", "session_id"),
    Index("ix_decisions_closed_at", "closed_at"),
)

JOBS: Final = Table(
    "jobs",
    METADATA,
    Column("segment_key", Text, primary_key=True),
    Column("job_id", Text, primary_key=True),
    _text("rubric"),
    _text("stratum"),
    _text("state"),
    _big("listed_at"),
    Index(
        "ix_jobs_pending",
        "rubric",
        "stratum",
        "listed_at",
        sqlite_where=text("state = 'pending'"),
        postgresql_where=text("state = 'pending'"),
    ),
)

JUDGEMENTS: Final = Table(
    "judgements",
    METADATA,
    Column("id", SERIAL, primary_key=True, autoincrement=True),
    Column("digest", Text, nullable=False, unique=True),
    Column("segment_key", Text, nullable=False, index=True),
    *_identity(),
    _text("job_id"),
    _text("content_hash"),
    _text("rubric"),
    _text("judge"),
    _text("kind"),
    _text("reason"),
    _text("standing"),
    _big("finished_at"),
    _big("recorded_at"),
    Column("score", Float, nullable=True),
    _big("cost_nusd", server_default="0"),
    _text("screen_judge", server_default=""),
    _big("screen_cost_nusd", server_default="0"),
    _text("counts"),
    Column("body", LargeBinary, nullable=True),
    Index("ix_judgements_session_id", "session_id"),
)
"""`standing`: waiting, counted, repeat, superseded or overlap; `counts` is what it adds once it counts.

`cost_nusd` is what its attempts cost, in 1e-9 $; `screen_cost_nusd` what the screen before it did, whose name is
`screen_judge`, empty without one.
"""

FAILURES: Final = Table(
    "judgement_failures",
    METADATA,
    Column("digest", Text, primary_key=True),
    Column("measure", Text, primary_key=True),
)
"""The measures on which a judgement saw a failure; only the pages' filter reads it."""

ADDENDA: Final = Table(
    "addenda",
    METADATA,
    Column("log_partition", Integer, primary_key=True, autoincrement=False),
    Column("log_offset", BigInteger, primary_key=True, autoincrement=False),
    Column("segment_key", Text, nullable=False, index=True),
    *_identity(),
    _big("recorded_at"),
    Column("event", LargeBinary, nullable=True),
    Index("ix_addenda_session_id", "session_id"),
)


def _sums(name: str) -> Table:
    """Declare whole-number sums. The check keeps SQLite from turning a sum past 64 bits into a float."""
    keys = ("name", "rubric", "measure", "judge", "assistant", "assistant_version", "stratum", "detail")
    return Table(
        name,
        METADATA,
        *(Column(key, Text, primary_key=True) for key in keys),
        _big("value"),
        CheckConstraint("value >= 0 AND value <= 4611686018427387904", name="range"),
    )


TOTALS: Final = _sums("totals")
PRUNED: Final = _sums("pruned")
"""What rows that retention dropped had added; a rebuild starts from it (R5)."""
