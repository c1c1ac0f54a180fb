"""Merging by time (A2)."""

import tempfile
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.ingest import Raw, by_time

EVENTS = st.lists(st.builds(Raw, st.sampled_from([0.0, 1.5, 2.0, 1e9]), st.binary(max_size=30)), max_size=40)


@given(EVENTS, st.sampled_from([1, 500, 1_000, 1_000_000]))
def test_it_is_a_stable_sort_however_little_fits_into_memory(events: list[Raw], run_bytes: int) -> None:
    expected = [event.json for event in sorted(events, key=lambda event: event.ts)]
    assert list(by_time(iter(events), run_bytes=run_bytes)) == expected


def test_temporary_files_leave_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    merged = by_time((Raw(float(-n), b"x" * 50) for n in range(50)), run_bytes=1_000)
    assert next(merged) == b"x" * 50
    del merged
    assert list(tmp_path.iterdir()) == []


def test_memory_does_not_grow_with_the_input() -> None:
    def peak(events: int) -> int:
        tracemalloc.start()
        try:
            merged = by_time((Raw(float(-n), b"%9d" % n + b"x" * 300) for n in range(events)), run_bytes=500_000)
            assert sum(1 for _ in merged) == events
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    small, large = peak(2_000), peak(20_000)
    assert large < 2_000_000  # of 10 MB
    assert large < 2 * small
