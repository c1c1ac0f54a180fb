"""A backlog after an outage, small: the same scenario as `python -m benchmarks.overload --only backlog`."""

from __future__ import annotations

from pathlib import Path

from benchmarks.overload import backlog
from tests.services.kafka import KafkaBroker


async def test_a_backlog_is_worked_off_whole_and_urgent_jobs_go_first(kafka: KafkaBroker, tmp_path: Path) -> None:
    found = await backlog(kafka, tmp_path, 0.02)
    assert (found["sessions_finished"], found["lost"], found["doubled"]) == (1_000, 0, 0)
    assert found["jobs_listed"] == found["pending_jobs"] > found["urgent_jobs"] > 5
    # Urgent jobs are fetched apart from the others: a few of those may be under way before the first of them.
    assert found["answered_until_last_urgent"] <= found["urgent_jobs"] + 96
    # So small a backlog may be gone before anybody looks; that it is measured at all is what can be held to here.
    assert found["max_lag_s"]["assemble:events"] >= 0
    assert set(found["rss"]) == {"assemble", "sample", "judge", "record"}
