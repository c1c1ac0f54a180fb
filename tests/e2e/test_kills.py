"""DESIGN section 7: one SIGKILL of each process, and rows, totals, /metrics and the generator's truth agree."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import closing
from pathlib import Path

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from consumers.app import PROCESSES
from monitor.decision import Decision, decode_decision, repeat_id
from monitor.judgement import decode_judgement
from monitor.judging.repeat import repeated
from monitor.rubrics import RUBRICS
from monitor.store import Store
from monitor.traffic import TrafficGenerator, TrafficPlan
from tests.consumers.broker_io import until
from tests.e2e.pipeline import Pipeline, kill_each, settled, sum_of
from tests.services.kafka import KafkaBroker

SESSIONS = 2_000


async def test_a_kill_of_each_process_loses_nothing_and_counts_nothing_twice(
    kafka: KafkaBroker, topic_prefix: str, tmp_path: Path
) -> None:
    # Ticks carry wall-clock time, so they have to wait for longer than a busy machine delays the sender.
    pipeline = Pipeline(kafka, topic_prefix, tmp_path, gap_s=12.0, grace_s=2.0, tick_interval_s=5.0)
    pipeline.values["judge"] = {"repeat_share": 0.2}
    await pipeline.create()
    traffic = TrafficGenerator(3, TrafficPlan(sessions=SESSIONS, duration_s=30.0, feedback_delay_s=4.0))
    labels = {(label.tenant, label.session_id): label for label in traffic.labels()}
    with closing(pipeline.run_all()) as worker:
        sending = asyncio.create_task(pipeline.send_traffic(traffic))
        await kill_each(worker, PROCESSES, every=5.0)
        await sending
        with closing(pipeline.store()) as store:
            await until(lambda: settled(store, len(labels)), 90, 1.0)
            await check(pipeline, traffic, store, set(labels))
        assert await asyncio.to_thread(worker.stop, 30.0) == 0


async def check(
    pipeline: Pipeline, traffic: TrafficGenerator, store: Store, sessions: set[tuple[str, str]]
) -> None:
    decisions = await decided(pipeline)
    # The generator's truth: every session once, with every turn that was sent.
    assert Counter((tenant, session_id) for tenant, session_id, _ in decisions) == Counter(sessions)
    sent: dict[tuple[str, str], set[str]] = {}
    for delivery in traffic.deliveries(0.0):
        if delivery.event["type"] == "turn":
            sent.setdefault(delivery.key, set()).add(delivery.event["turn_id"])
    assert {(d.tenant, d.session_id): d.turns for d in decisions.values()} == {
        key: len(turns) for key, turns in sent.items()
    }
    # Jobs, judgements and rows: R1, R2.
    listed = {ref.job_id for decision in decisions.values() for ref in decision.jobs}
    share = pipeline.settings.judge.repeat_share
    repeats = {repeat_id(job_id) for job_id in listed if repeated(job_id, share)}
    pairs = len(repeats) * len(RUBRICS["correction"].measures)
    assert repeats
    await until(lambda: sum_of(store.totals(), "judge_repeats") == pairs, 30, 0.5)
    judged = {
        record.value: decode_judgement(record.value).job_id
        for record in await pipeline.read(pipeline.settings.topics.judgements)
    }
    assert set(judged.values()) == listed | repeats
    # A judge that is killed between its answer and its commit answers again: kept, and not counted.
    again = len(judged) - len(listed) - len(repeats)
    await until(lambda: sum_of(store.totals(), "judgements_superseded") == again, 30, 0.5)
    totals = store.totals()
    by_name: Counter[str] = Counter()
    for key, value in totals.sums.items():
        by_name[key.name] += value
    assert by_name["jobs_listed"] == len(listed)
    assert by_name["verdicts"] + by_name["skipped"] + by_name["unscored"] == len(listed)
    assert by_name["sessions_overlapping"] == 0
    # Totals equal what the rows give (R3), and the page of metrics equals the totals (R4).
    shown = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(pipeline.metrics())
        for sample in family.samples
        if sample.name in {"backslide_sessions_finished_total", "backslide_judged_failures_total"}
    }
    store.rebuild_totals()
    assert dict(store.totals().sums) == dict(totals.sums)
    for name in ("sessions_finished", "judged_failures"):
        wanted = sum(value for key, value in totals.sums.items() if key.name == name)
        assert sum(
            value for (shown_name, _), value in shown.items() if shown_name == f"backslide_{name}_total"
        ) == (wanted)


async def decided(pipeline: Pipeline) -> dict[tuple[str, str, str], Decision]:
    """All decisions by segment; copies have to be byte-equal."""
    found: dict[tuple[str, str, str], Decision] = {}
    for record in await pipeline.read(pipeline.settings.topics.decisions):
        decision = decode_decision(record.value)
        if isinstance(decision, Decision):
            key = (decision.tenant, decision.session_id, decision.segment)
            other = found.setdefault(key, decision)
            assert msgspec.json.encode(other) == msgspec.json.encode(decision)
    return found
