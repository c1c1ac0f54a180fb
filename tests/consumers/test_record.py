"""The recorder on a real Kafka and SQLite (R1, R3, J4; section 7): what comes out never depends on how it came."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiokafka import ConsumerRebalanceListener, TopicPartition
from pydantic import SecretStr

from consumers import record as record_process
from consumers.dead_letters import MAX_BYTES
from consumers.health import Health
from consumers.kafka import consumer, producer
from consumers.record import METERS, Recorder, rubric_counts, serve
from monitor.config import JudgeSettings
from monitor.judging.open import judge_name, open_judge
from monitor.metrics import CATALOGUE, Meters
from monitor.rubrics import RUBRICS
from monitor.store import Store, TotalKey
from tests.consumers.record_place import Place, content, counted, direct, records, shuffled
from tests.services.kafka import KafkaBroker
from tests.unit.store.builders import decision, judgement, policy


async def until(done: Callable[[], Any], seconds: float = 60.0) -> None:
    limit = time.monotonic() + seconds
    while True:
        result = done()
        if asyncio.iscoroutine(result):
            result = await result
        if result:
            return
        assert time.monotonic() < limit, "waited in vain"
        await asyncio.sleep(0.05)


@pytest.fixture
async def place(kafka: KafkaBroker, topic_prefix: str, tmp_path: Path) -> Place:
    made = Place(kafka, topic_prefix, tmp_path)
    await made.create()
    return made


async def test_r1_any_order_and_duplicates_give_what_the_store_gives(place: Place, tmp_path: Path) -> None:
    made = records(600)
    mixed = shuffled(made)
    await place.write(mixed)
    async with place.recorder() as (meters, health):
        await until(lambda: place.has_committed(len(mixed)))
        await until(
            lambda: (
                counted(meters, "lag_seconds", topic=place.settings.topics.judgements) == 0
                and counted(meters, "lag_seconds", topic=place.settings.topics.decisions) == 0
            )
        )
        assert health.is_ready == (True, "")
        assert counted(meters, "store_up") == 1
        assert time.time() - counted(meters, "last_recorded_timestamp_seconds") < 60
        kinds = ("policy", "decision", "addendum", "judgement", "duplicate")
        taken = {kind: counted(meters, "recorded_total", kind=kind) for kind in kinds}
    sums, rows = direct(tmp_path / "direct.sqlite", made)
    assert place.content() == (sums, rows)
    # R2, and that there was something to be wrong about.
    assert sums[TotalKey("sessions_overlapping")] > 0
    standings = Counter(standing for _, standing in rows["judgements"])
    assert standings["superseded"] > 0
    assert taken["decision"] == len(rows["decisions"])
    assert taken["judgement"] == len(rows["judgements"])
    assert taken["addendum"] == len(rows["addenda"])
    assert sum(taken.values()) == len(mixed)
    assert taken["duplicate"] == len(mixed) - len(made)


async def test_r3_a_policy_gives_zero_totals_of_each_measure_and_score(place: Place) -> None:
    await place.write([policy("base")])
    async with place.recorder():
        await until(lambda: place.has_committed(1))
    sums, _ = place.content()
    assert set(sums.values()) == {0}
    assert {key.measure for key in sums if key.name == "judged_trials"} == set(RUBRICS["correction"].measures)
    assert {key.judge for key in sums if key.name == "judged_trials"} == {"lexical"}
    scores = {f"{key.name}:{key.measure}".rstrip(":") for key in sums if CATALOGUE[key.name].kind == "histogram"}
    assert scores == set(RUBRICS["correction"].scores)


async def test_a_hard_cancel_in_the_middle_counts_nothing_twice(place: Place, tmp_path: Path) -> None:
    made = records(1_000)
    mixed = shuffled(made)
    await place.write(mixed)
    for wanted in (50, 300, 500):
        meters = Meters(METERS, version="test", process="record")
        health = Health(time.monotonic)
        task = asyncio.create_task(serve(place.settings, meters, asyncio.Event(), health))
        await until(lambda wanted=wanted: _rows(place.file) >= wanted or task.done())  # type: ignore[misc]  # noqa: B023
        assert not task.done()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    assert await place.committed() < len(mixed)
    async with place.recorder():
        await until(lambda: place.has_committed(len(mixed)))
    assert place.content() == direct(tmp_path / "direct.sqlite", made)


async def test_sigkill_again_and_again_beside_a_second_recorder(place: Place, tmp_path: Path) -> None:
    """Two processes share the partitions and the store; one is killed three times, which is a rebalance each."""
    made = records(1_500)
    mixed = shuffled(made)
    await place.write(mixed[:1_500])
    beside = place.process("beside")
    children = [place.process("first")]
    for number, wanted in enumerate((100, 300, 450)):
        await until(lambda wanted=wanted: _rows(place.file) >= wanted)  # type: ignore[misc]
        await asyncio.to_thread(children[-1].kill)
        children.append(place.process(f"again{number}"))
        await place.write(mixed[1_500 + number * 100 : 1_600 + number * 100])
    await place.write(mixed[1_800:])
    await until(lambda: place.has_committed(len(mixed)))
    for child in (beside, children[-1]):
        assert child.alive, child.tail()
        started = time.monotonic()
        await asyncio.to_thread(child.stop)
        assert time.monotonic() - started < 10
    assert place.content() == direct(tmp_path / "direct.sqlite", made)
    assert await place.letters() == []


async def test_a_store_that_is_locked_is_waited_for(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_process, "SLOW_S", 1.0)
    made = records(100)
    async with place.recorder() as (meters, health):
        await until(lambda: health.is_ready[0])
        with place.locked():
            await place.write(made)
            await until(lambda: not health.is_ready[0])
            assert "waiting for the store" in health.is_ready[1]
            assert counted(meters, "store_up") == 0
            assert health.is_alive[0]
            assert await place.committed() == 0
            await until(lambda: _lag(place, meters) > 2)
        await until(lambda: place.has_committed(len(made)))
        await until(lambda: health.is_ready == (True, ""))
        assert counted(meters, "store_up") == 1
    assert place.content() == direct(tmp_path / "direct.sqlite", made)


async def test_a_store_that_fails_is_tried_again_with_the_same_batch(place: Place, tmp_path: Path) -> None:
    made = records(100)
    await place.write(made[:50])
    async with place.recorder() as (meters, health):
        await until(lambda: place.has_committed(50))
        with place.broken():
            await place.write(made[50:])
            await until(lambda: not health.is_ready[0])
            assert "no such table: meta" in health.is_ready[1]
            assert counted(meters, "store_up") == 0
            await asyncio.sleep(2)
            assert await place.committed() == 50
        await until(lambda: place.has_committed(len(made)))
        assert health.is_ready == (True, "")
        assert counted(meters, "store_up") == 1
    assert place.content() == direct(tmp_path / "direct.sqlite", made)


async def test_a_store_that_is_not_there_at_the_start_is_waited_for(
    kafka: KafkaBroker, topic_prefix: str, tmp_path: Path
) -> None:
    (tmp_path / "in-the-way").write_text("no folder")
    place = Place(kafka, topic_prefix, tmp_path, **{"store.url": f"sqlite:///{tmp_path}/in-the-way/store.sqlite"})
    await place.create()
    await place.write(records(20))
    async with place.recorder() as (_, health):
        await until(lambda: "can't create its folder" in health.is_ready[1])
        (tmp_path / "in-the-way").unlink()
        await until(lambda: place.has_committed(len(records(20))))
    sums, rows = content(tmp_path / "in-the-way" / "store.sqlite")
    assert (sums, rows) == direct(tmp_path / "direct.sqlite", records(20))


async def test_a_stop_does_not_wait_for_the_store(place: Place, tmp_path: Path) -> None:
    """The process leaves within 10 s (checked by `recorder`) though the transaction can't begin."""
    made = records(50)
    with ExitStack() as stack:
        async with place.recorder() as (_, health):
            await until(lambda: health.is_ready[0])
            stack.enter_context(place.locked())
            await place.write(made)
            await asyncio.sleep(2)
        assert await place.committed() == 0
    async with place.recorder():
        await until(lambda: place.has_committed(len(made)))
    assert place.content() == direct(tmp_path / "direct.sqlite", made)


async def test_waiting_for_the_store_keeps_the_place_in_the_group(place: Place) -> None:
    """With a max.poll.interval of 1 s and a store locked for 5 s no partition is taken away."""
    reader = consumer(place.settings, "record", auto_offset_reset="earliest", max_poll_interval_ms=1_000)
    writer = producer(place.settings)
    meters = Meters(METERS, version="test", process="record")
    opening = partial(Store.open, place.settings.store.url, rubrics=rubric_counts(RUBRICS))
    recorder = Recorder(
        place.settings,
        meters,
        open_store=opening,
        reader=reader,
        writer=writer,
        health=Health(time.monotonic),
    )
    given = _Given(recorder)
    topics = place.settings.topics
    reader.subscribe([topics.decisions, topics.judgements], listener=given)
    stop = asyncio.Event()
    await writer.start()
    await reader.start()
    task = asyncio.create_task(recorder.run(stop))
    try:
        await until(lambda: given.times == 1 and place.file.exists())
        made = records(30)
        with place.locked():
            await place.write(made)
            await asyncio.sleep(5)
        await until(lambda: place.has_committed(len(made)))
        assert given.times == 1
        assert counted(meters, "commits_failed_total") == 0
    finally:
        stop.set()
        await task
        await reader.stop()
        await writer.stop()


async def test_a_broker_that_goes_and_comes_back_is_waited_for(
    fresh_kafka: Callable[[], KafkaBroker], topic_prefix: str, tmp_path: Path
) -> None:
    """And the stop comes within 10 s (checked by `recorder`) while it is gone."""
    broker = await asyncio.to_thread(fresh_kafka)
    place = Place(broker, topic_prefix, tmp_path)
    await place.create()
    made = records(300)
    mixed = shuffled(made)
    await place.write(mixed[:400])
    async with place.recorder() as (meters, health):
        await until(lambda: _rows(place.file) >= 50)
        await asyncio.to_thread(broker.kill)
        await asyncio.sleep(2)
        await asyncio.to_thread(broker.start)
        await place.write(mixed[400:])
        await until(lambda: place.has_committed(len(mixed)))
        assert health.is_alive[0]
        assert counted(meters, "store_up") == 1
        await asyncio.to_thread(broker.kill)
    assert place.content() == direct(tmp_path / "direct.sqlite", made)


async def test_what_cannot_be_taken_in_becomes_a_dead_letter(place: Place) -> None:
    topics = place.settings.topics
    too_light = decision("s-light", weight16=1)
    bad_print = decision("s-print", fingerprints=["not hex"])
    broken: list[tuple[str, bytes, bytes | None]] = [
        (topics.decisions, b"a", b"not json at all"),
        (topics.decisions, b"b", b'{"type":"mystery"}'),
        (topics.judgements, b"c", b"\xff\xfe"),
        (topics.judgements, b"d", None),
        (topics.judgements, b"e", msgspec.json.encode(decision("wrong topic"))),
        (topics.decisions, b"f", b"[" * 100_000),
        (topics.decisions, b"g", msgspec.json.encode(too_light)),
        (topics.decisions, b"h", msgspec.json.encode(bad_print)),
    ]
    await place.write([decision("before"), judgement("before")])
    await place.write_raw(broken)
    await place.write([decision("after"), judgement("after")])
    async with place.recorder() as (meters, health):
        await until(lambda: place.has_committed(len(broken) + 4))
        assert counted(meters, "dead_letters_total", stage="record") == len(broken)
        assert health.is_ready == (True, "")
    letters = {letter["key"]: letter for letter in await place.letters()}
    assert len(letters) == len(broken)  # keyed by position
    by_value = {(letter["topic"], letter["value"]): letter for letter in letters.values()}
    for topic, _, value in broken:
        letter = by_value[topic, (value or b"")[:MAX_BYTES]]
        assert letter["stage"] == "record"
        assert letter["reason"] == ("rejected" if value and b'"s-' in value else "undecodable")
        assert letter["error"]
        assert f"{letter['topic']}/{letter['partition']}/{letter['offset']}".encode() in letters
    sums, rows = place.content()
    assert {name for name, *_ in rows["decisions"]} == {"before", "after"}
    assert sums[TotalKey("verdicts", "correction", stratum="base")] == 2


@pytest.mark.parametrize("model", ["lexical", "anthropic:claude-haiku-5-5"])
async def test_the_judge_is_known_by_the_name_it_gives_itself(model: str) -> None:
    settings = JudgeSettings(model=model, api_key=SecretStr("k"))
    judge = open_judge(settings)
    assert judge_name(JudgeSettings(model=model)) == judge.name
    await judge.aclose()


def _lag(place: Place, meters: Meters) -> float:
    topics = place.settings.topics
    return max(counted(meters, "lag_seconds", topic=topic) for topic in (topics.decisions, topics.judgements))


def _rows(file: Path) -> int:
    if not file.exists():
        return 0
    with closing(sqlite3.connect(file)) as connection:
        try:
            (count,) = connection.execute("SELECT count(*) FROM decisions").fetchone()
        except sqlite3.OperationalError:
            return 0  # the tables are being made
        return int(count)


class _Given(ConsumerRebalanceListener):  # type: ignore[misc] # aiokafka has no types
    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.times = 0

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        pass

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self.times += 1
        self._recorder.assigned(assigned)
