"""What each judgement cost."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; what was judged before cost an unknown amount, and counts as nothing."""
    op.add_column("judgements", sa.Column("cost_nusd", sa.BigInteger(), server_default="0", nullable=False))
