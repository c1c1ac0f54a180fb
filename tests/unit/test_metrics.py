"""The catalogue: every name by the rules of Prometheus, and every process asks only for what is in it."""

from __future__ import annotations

import importlib
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest

from consumers import supervisor
from monitor.metrics import CATALOGUE, PIPELINE, QUALITY, Meters, Metric

IDS = {"session_id", "event_id", "turn_id", "tenant", "job_id", "segment", "partition", "offset"}


def test_each_metric_is_declared_once() -> None:
    assert len(CATALOGUE) == len(QUALITY) + len(PIPELINE)


@pytest.mark.parametrize("metric", CATALOGUE.values(), ids=lambda metric: metric.name)
def test_names_labels_and_help_follow_the_rules(metric: Metric) -> None:
    assert re.fullmatch(r"backslide_[a-z][a-z0-9_]*", metric.full_name)
    assert not metric.name.endswith("_total")
    assert metric.help.endswith(".")
    assert not IDS & set(metric.labels), "ids are never labels"
    assert len(set(metric.labels)) == len(metric.labels)
    assert (metric.kind == "histogram") == bool(metric.buckets)
    assert list(metric.buckets) == sorted(set(metric.buckets))


@pytest.mark.parametrize("name", ["assemble", "sample", "judge", "record"])
def test_each_process_finds_its_meters(name: str) -> None:
    needed = importlib.import_module(f"consumers.{name}").METERS
    meters = Meters(needed, version="1", process=name)
    assert meters.registry.get_sample_value("backslide_build_info", {"version": "1", "process": name}) == 1
    assert {CATALOGUE[each] for each in needed} <= set(PIPELINE)


def test_the_supervisor_finds_its_meters() -> None:
    Meters(supervisor.METERS, version="1", process="supervisor")


def test_an_unknown_metric_is_refused() -> None:
    with pytest.raises(KeyError, match="no_such"):
        Meters(["no_such"], version="1", process="x")


def test_the_wrong_kind_is_refused() -> None:
    meters = Meters(["open_sessions"], version="1", process="x")
    with pytest.raises(TypeError, match="not a Counter"):
        meters.counter("open_sessions")


def test_two_processes_in_one_interpreter_do_not_share_counts() -> None:
    one, two = (Meters(["events_late"], version="1", process=name) for name in ("one", "two"))
    one.counter("events_late").inc()
    assert two.registry.get_sample_value("backslide_events_late_total") == 0


def test_a_forgotten_child_is_gone_and_an_unknown_one_is_fine() -> None:
    meters = Meters(["lag_seconds"], version="1", process="x")
    meters.gauge("lag_seconds", topic="a").set(3)
    meters.forget("lag_seconds", topic="b")
    assert meters.registry.get_sample_value("backslide_lag_seconds", {"topic": "a"}) == 3
    meters.forget("lag_seconds", topic="a")
    assert meters.registry.get_sample_value("backslide_lag_seconds", {"topic": "a"}) is None


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 1_000)), max_size=30))
def test_a_counter_is_the_sum_of_what_it_was_given(steps: list[tuple[str, int]]) -> None:
    meters = Meters(["dead_letters"], version="1", process="x")
    for stage, amount in steps:
        meters.counter("dead_letters", stage=stage).inc(amount)
    for stage in {stage for stage, _ in steps}:
        found = meters.registry.get_sample_value("backslide_dead_letters_total", {"stage": stage})
        assert found == sum(amount for name, amount in steps if name == stage)


def test_promtool_accepts_every_metric_of_the_catalogue(promtool: Path) -> None:
    names = [metric.name for metric in PIPELINE if metric.name != "build_info"]  # each process has that one
    meters = Meters(names, version="1", process="x")
    for metric in PIPELINE:
        labels = {label: f"some {label}" for label in metric.labels}
        if metric.kind == "counter":
            meters.counter(metric.name, **labels).inc()
        elif metric.kind == "gauge":
            meters.gauge(metric.name, **labels).set(1.5)
        else:
            meters.histogram(metric.name, **labels).observe(0.3)
    done = subprocess.run(
        [str(promtool), "check", "metrics"],
        input=generate_latest(meters.registry),
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr.decode()) == (0, "")
