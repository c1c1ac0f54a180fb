"""A short campaign: the quick faults, one on top of the other, on one pipeline."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.chaos.lane import Lane
from tests.chaos.plan import Plan

# The seed of the first one kills `sample`, `judge` and `assemble`, and stops `assemble` and `record`.
ROUNDS = (Plan(0, 147, ("kill", "term")), Plan(1, 2, ("policy", "kill")))


@pytest.mark.timeout(900)  # a minute on a machine of its own; every wait in here has a bound
async def test_quick_faults_lose_nothing_and_count_nothing_twice(kafka_jars: Path, tmp_path: Path) -> None:
    lane = Lane(0, tmp_path / "lane", "sqlite")
    try:
        await lane.start()
        for plan in ROUNDS:
            result = await lane.round(plan)
            assert result.report.findings == []
            assert result.sessions
            assert result.jobs
        assert await lane.stop() == []
        ended = {end.member.split("-")[0] for end in lane.fleet.exits}
        assert ended >= {"assemble", "sample", "judge", "record"}
    finally:
        await lane.close()
    shutil.rmtree(tmp_path, ignore_errors=True)
