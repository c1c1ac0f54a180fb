"""Which screen was asked before a judgement, and what that cost."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; nothing was screened before."""
    op.add_column("judgements", sa.Column("screen_judge", sa.Text(), server_default="", nullable=False))
    op.add_column("judgements", sa.Column("screen_cost_nusd", sa.BigInteger(), server_default="0", nullable=False))
