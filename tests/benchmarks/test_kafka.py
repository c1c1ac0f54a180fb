"""The benchmarks on a broker run, and say what they promise to say; how fast is not for a test."""

from __future__ import annotations

from pathlib import Path

import msgspec

from benchmarks import assembly, pipeline
from tests.services.kafka import KafkaBroker


def test_assembly(kafka: KafkaBroker, tmp_path: Path) -> None:
    bench = assembly.Bench(kafka, tmp_path, None, prefix="tiny-")
    report, extra = assembly.measure(bench, events=1_800, rounds=1, open_sessions=20)
    assert list(msgspec.to_builtins(report)) == [
        "bare_events_per_s",
        "assemble_events_per_s",
        "ratio",
        "peak_mb",
        "bytes_per_open_session",
    ]
    assert report.ratio > 0
    assert report.peak_mb > 10
    assert 500 < extra.event_bytes < 700
    assert "goal >= 0.5" in assembly.readable(report, extra)


def test_pipeline(kafka: KafkaBroker, tmp_path: Path) -> None:
    report = pipeline.measure(kafka.bootstrap, tmp_path, sessions=40, a_minute=2_000)
    assert report.sessions == 40
    assert all(value >= 0 for value in msgspec.to_builtins(report).values())
    assert report.judge_sessions_per_s > 0
    assert report.close_to_visible_p50_s <= report.close_to_visible_p99_s
    assert "goal p99 <= 5" in pipeline.readable(report)
