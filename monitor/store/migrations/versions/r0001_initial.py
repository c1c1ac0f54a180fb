"""The first schema.

A frozen copy of the tables as they were, so that later changes of `monitor.store.tables` don't change history.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create every table, and the generation of the totals."""
    op.create_table(
        "addenda",
        sa.Column("log_partition", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("log_offset", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("segment_key", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("segment", sa.Text(), nullable=False),
        sa.Column("recorded_at", sa.BigInteger(), nullable=False),
        sa.Column("event", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("log_partition", "log_offset", name=op.f("pk_addenda")),
    )
    op.create_index("ix_addenda_session_id", "addenda", ["session_id"], unique=False)
    op.create_index(op.f("ix_addenda_segment_key"), "addenda", ["segment_key"], unique=False)
    op.create_table(
        "decisions",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("segment_key", sa.Text(), nullable=False),
        sa.Column("session_key", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("segment", sa.Text(), nullable=False),
        sa.Column("previous_segment", sa.Text(), nullable=True),
        sa.Column("content_hash", sa.Text(), nullable=False),
        sa.Column("close_reason", sa.Text(), nullable=False),
        sa.Column("log_partition", sa.Integer(), nullable=False),
        sa.Column("first_offset", sa.BigInteger(), nullable=False),
        sa.Column("last_offset", sa.BigInteger(), nullable=False),
        sa.Column("closed_at", sa.BigInteger(), nullable=False),
        sa.Column("recorded_at", sa.BigInteger(), nullable=False),
        sa.Column("policy", sa.Text(), nullable=False),
        sa.Column("stratum", sa.Text(), nullable=False),
        sa.Column("priority", sa.Text(), nullable=False),
        sa.Column("weight16", sa.BigInteger(), nullable=False),
        sa.Column("selected", sa.Boolean(), nullable=False),
        sa.Column("holdout", sa.Boolean(), nullable=False),
        sa.Column("overlap", sa.Boolean(), nullable=False),
        sa.Column("assistant", sa.Text(), nullable=False),
        sa.Column("assistant_version", sa.Text(), nullable=False),
        sa.Column("turns", sa.Integer(), nullable=False),
        sa.Column("frame", sa.Text(), nullable=False),
        sa.Column("jobs", sa.Text(), nullable=False),
        sa.Column("signals", sa.Text(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("fingerprints", sa.LargeBinary(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_decisions")),
        sa.UniqueConstraint("segment_key", name=op.f("uq_decisions_segment_key")),
    )
    op.create_index("ix_decisions_closed_at", "decisions", ["closed_at"], unique=False)
    op.create_index(op.f("ix_decisions_session_key"), "decisions", ["session_key"], unique=False)
    op.create_index("ix_decisions_tenant_session_id", "decisions", ["tenant", "session_id"], unique=False)
    op.create_table(
        "jobs",
        sa.Column("segment_key", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("rubric", sa.Text(), nullable=False),
        sa.Column("stratum", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("listed_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("segment_key", "job_id", name=op.f("pk_jobs")),
    )
    op.create_index(
        "ix_jobs_pending",
        "jobs",
        ["rubric", "stratum", "listed_at"],
        unique=False,
        sqlite_where=sa.text("state = 'pending'"),
        postgresql_where=sa.text("state = 'pending'"),
    )
    op.create_table(
        "judgement_failures",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("measure", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("digest", "measure", name=op.f("pk_judgement_failures")),
    )
    op.create_table(
        "judgements",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("segment_key", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("segment", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("content_hash", sa.Text(), nullable=False),
        sa.Column("rubric", sa.Text(), nullable=False),
        sa.Column("judge", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("standing", sa.Text(), nullable=False),
        sa.Column("finished_at", sa.BigInteger(), nullable=False),
        sa.Column("recorded_at", sa.BigInteger(), nullable=False),
        sa.Column("score", sa.Float(), nullable=True),
        sa.Column("counts", sa.Text(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_judgements")),
        sa.UniqueConstraint("digest", name=op.f("uq_judgements_digest")),
    )
    op.create_index("ix_judgements_session_id", "judgements", ["session_id"], unique=False)
    op.create_index(op.f("ix_judgements_segment_key"), "judgements", ["segment_key"], unique=False)
    op.create_table(
        "meta",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_meta")),
    )
    op.create_table(
        "policies",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("policy", sa.Text(), nullable=False),
        sa.Column("loaded_at", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_policies")),
    )
    op.create_table(
        "pruned",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("rubric", sa.Text(), nullable=False),
        sa.Column("measure", sa.Text(), nullable=False),
        sa.Column("judge", sa.Text(), nullable=False),
        sa.Column("assistant", sa.Text(), nullable=False),
        sa.Column("assistant_version", sa.Text(), nullable=False),
        sa.Column("stratum", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("value >= 0 AND value <= 4611686018427387904", name=op.f("ck_pruned_range")),
        sa.PrimaryKeyConstraint(
            "name",
            "rubric",
            "measure",
            "judge",
            "assistant",
            "assistant_version",
            "stratum",
            "detail",
            name=op.f("pk_pruned"),
        ),
    )
    op.create_table(
        "sessions",
        sa.Column("session_key", sa.Text(), nullable=False),
        sa.Column("forgotten_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("session_key", name=op.f("pk_sessions")),
    )
    op.create_table(
        "totals",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("rubric", sa.Text(), nullable=False),
        sa.Column("measure", sa.Text(), nullable=False),
        sa.Column("judge", sa.Text(), nullable=False),
        sa.Column("assistant", sa.Text(), nullable=False),
        sa.Column("assistant_version", sa.Text(), nullable=False),
        sa.Column("stratum", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("value >= 0 AND value <= 4611686018427387904", name=op.f("ck_totals_range")),
        sa.PrimaryKeyConstraint(
            "name",
            "rubric",
            "measure",
            "judge",
            "assistant",
            "assistant_version",
            "stratum",
            "detail",
            name=op.f("pk_totals"),
        ),
    )
    meta = sa.table("meta", sa.column("name"), sa.column("value"))
    op.bulk_insert(meta, [{"name": "generation", "value": 1}, {"name": "rebuilding", "value": 0}])
