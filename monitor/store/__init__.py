"""Where decisions, judgements and totals live: SQLite by default, PostgreSQL in production.

`Store.open(url, rubrics=..., judge=...)`, `record`, `totals`; `sessions` and `session` feed the pages.
"""

from monitor.store.ledger import Counts, Sums, TotalKey, moved
from monitor.store.queries import (
    FAILING,
    JudgedSession,
    Page,
    PendingJob,
    SessionFilter,
    StoredDecision,
    StoredJudgement,
    StoredSession,
)
from monitor.store.retention import Expired
from monitor.store.rows import RubricCounts, Screened
from monitor.store.store import Record, RecordReport, Rejected, Store
from monitor.store.totals import Totals

__all__ = [
    "FAILING",
    "Counts",
    "Expired",
    "JudgedSession",
    "Page",
    "PendingJob",
    "Record",
    "RecordReport",
    "Rejected",
    "RubricCounts",
    "Screened",
    "SessionFilter",
    "Store",
    "StoredDecision",
    "StoredJudgement",
    "StoredSession",
    "Sums",
    "TotalKey",
    "Totals",
    "moved",
]
