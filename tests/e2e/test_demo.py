"""`backslide demo --once --json`, as a newcomer's first look: everything runs, nothing is lost."""

from __future__ import annotations

import asyncio
import json
import sys


async def test_the_demo_ends_by_itself_and_loses_nothing() -> None:
    line = [sys.executable, "-m", "consumers", "demo", "--once", "--json", "--seed", "4"]
    child = await asyncio.create_subprocess_exec(
        *line, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await asyncio.wait_for(child.communicate(), 240)
    assert child.returncode == 0, err.decode()
    report = json.loads(out)
    assert report["finished"] == 2_000
    assert report["lost"] == report["duplicated"] == 0
    assert [row["version"] for row in report["versions"]] == ["2026.10", "2026.11"]
    assert sum(row["finished"] for row in report["versions"]) == 2_000
    for row in report["versions"]:
        low, high = row["interval"]
        assert 0 <= low <= row["weighted_rate"] <= high <= 1
        assert 0 < row["judged"] < row["finished"]
        assert row["judged"] <= row["calls"] * 2
    older, newer = report["versions"]
    assert older["true_rate"] < newer["true_rate"]
