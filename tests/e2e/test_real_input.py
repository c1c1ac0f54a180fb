"""The same sessions as a file through `replay` and as events through a real Kafka: byte for byte the same."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from monitor.decision import Decision, decode_decision
from monitor.events import EventDecoder, Tick, encode
from monitor.ingest import EventFile, by_time
from monitor.judgement import Judgement, decode_judgement
from monitor.replay import run_replay
from monitor.session import LogSpan, SessionRecord
from tests.consumers.assemble_place import PARTITIONS
from tests.consumers.broker_io import until
from tests.e2e.pipeline import Pipeline, settled
from tests.services.kafka import KafkaBroker

NOWHERE = LogSpan(partition=0, first=0, last=0, closed_at=0)


def told(decision: Decision) -> bytes:
    """Encode a decision without where in the log its session lay."""
    return msgspec.json.encode(msgspec.structs.replace(decision, span=NOWHERE))


def answered(judgement: Judgement) -> bytes:
    """Encode a judgement without when it was made, and how long that took."""
    attempts = [msgspec.structs.replace(attempt, duration_ms=0) for attempt in judgement.attempts]
    return msgspec.json.encode(msgspec.structs.replace(judgement, attempts=attempts, started_at=0, finished_at=0))


async def test_a_file_and_a_broker_give_the_same_sessions_decisions_and_verdicts(
    kafka: KafkaBroker, topic_prefix: str, tmp_path: Path, shared_data: Path
) -> None:
    file = shared_data / "star_base_traffic.jsonl"
    # The sessions are years old: their own gaps close them, and at the end a tick dated an hour ahead does.
    times = {"gap_s": 900.0, "grace_s": 60.0, "max_age_s": 14_400.0, "memory_s": 3_600.0}
    times |= {"tick_interval_s": 600.0, "allowed_skew_s": 7_200.0}
    pipeline = Pipeline(kafka, topic_prefix, tmp_path, **times)
    observed: list[Any] = []
    summary = await run_replay(file, pipeline.settings, observe=observed.append)
    assert summary.finished == sum(1 for _ in file.open()) > 0

    await pipeline.create()
    decoder = EventDecoder()
    records = []
    for raw in by_time(EventFile(file)):
        event, _ = decoder.decode(raw)
        assert not isinstance(event, Tick)
        records.append((f"{event.tenant}/{event.session_id}".encode(), raw, None))
    with closing(pipeline.run_all()) as worker:
        await pipeline.produce(records)
        tick = encode(Tick(ts=time.time() + 3_600))
        await pipeline.produce((None, tick, partition) for partition in range(PARTITIONS))
        with closing(pipeline.store()) as store:
            await until(lambda: settled(store, summary.finished), 90, 0.5)
        assert await asyncio.to_thread(worker.stop, 30.0) == 0

    decisions = [item for item in observed if isinstance(item, Decision)]
    through_kafka = [decode_decision(r.value) for r in await pipeline.read(pipeline.settings.topics.decisions)]
    assert {told(item) for item in through_kafka if isinstance(item, Decision)} == set(map(told, decisions))
    finished = [record for record in await pipeline.finished() if isinstance(record, SessionRecord)]
    contents = {bytes(record.content) for record in finished}
    assert len(contents) == summary.finished
    assert contents >= {bytes(item.content) for item in decisions if item.content is not None}
    judgements = {answered(item) for item in observed if isinstance(item, Judgement)}
    judged = [decode_judgement(r.value) for r in await pipeline.read(pipeline.settings.topics.judgements)]
    assert {answered(item) for item in judged if item.run == "live"} == judgements
    assert judgements


async def test_replay_prints_a_summary(shared_data: Path) -> None:
    import sys

    child = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "consumers", "replay", str(shared_data / "star_base_traffic.jsonl"), "--json"),
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await child.communicate()
    assert child.returncode == 0
    summary = json.loads(out)
    assert summary["finished"] > 0
    assert {stratum["name"] for stratum in summary["strata"]} == {"escalated", "corrected", "base"}
    assert sum(stratum["verdicts"] for stratum in summary["strata"]) > 0
