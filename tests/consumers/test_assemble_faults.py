"""Stops, restarts and faults around `assemble`: nothing lost, nothing twice, and a remedy in the message."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import RecordsToDelete
from aiokafka.admin.new_partitions import NewPartitions
from aiokafka.errors import InvalidTimestampError
from aiokafka.structs import OffsetAndMetadata

from consumers.assemble import METERS, Assemble
from consumers.health import Health
from consumers.kafka import consumer
from consumers.offsets import CommitNote, encode_note
from consumers.partition import TooManyInvalid
from monitor.errors import TopicError
from monitor.events import SessionEvent, encode
from monitor.metrics import Meters
from tests.consumers.assemble_place import PARTITIONS, AssemblePlace, Worker
from tests.consumers.broker_io import until
from tests.consumers.dead_letter_desk import letters as dead_letters
from tests.consumers.dead_letter_desk import states
from tests.consumers.test_assemble_input import end, home, key_of, turn
from tests.services.kafka import KafkaBroker


def fetch(url: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(url, timeout=5.0) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def log_lines(worker: Worker) -> list[dict[str, object]]:
    """Every line of the log has to be JSON; aiokafka's included."""
    return [json.loads(line) for line in worker.log.read_text().splitlines()]


def port_of(worker: Worker) -> int:
    if not worker.log.exists():
        return 0
    found = [line["port"] for line in log_lines(worker) if line["event"] == "started"]
    return int(str(found[0])) if found else 0


def complaints(promtool: Path, metrics: bytes) -> str:
    done = subprocess.run([str(promtool), "check", "metrics"], input=metrics, capture_output=True, check=False)
    return done.stderr.decode()


async def session_counts(place: AssemblePlace) -> Counter[str]:
    return Counter(view.session_id for view in await place.views())


async def test_a4_a_stop_commits_everything_and_a_restart_says_nothing_again(
    kafka: KafkaBroker, topic_prefix: str, tmp_path: Path, promtool: Path
) -> None:
    place = AssemblePlace(kafka, topic_prefix, tmp_path, gap_s=60.0)
    await place.create()
    done, still = [f"done{number}" for number in range(40)], ["open1", "open2"]
    for name in done:
        await place.send([turn(name, 0), turn(name, 1), end(name)])
    await place.send(turn(name, 0) for name in still)
    with closing(place.worker("one")) as worker:
        await until(lambda: port_of(worker))
        base = f"http://127.0.0.1:{port_of(worker)}"
        await until(lambda: fetch(f"{base}/readyz") == (200, b"ok\n"))
        assert fetch(f"{base}/healthz") == (200, b"ok\n")

        async def complete() -> bool:
            await place.send(turn(name, 2 * round_number + 1) for name in still)
            return len(await session_counts(place)) == len(done)

        round_number = 0
        await until(complete)
        status, metrics = fetch(f"{base}/metrics")
        started = time.monotonic()
        assert await asyncio.to_thread(worker.stop) == 0
        assert time.monotonic() - started < 10.0
        errors = [line for line in log_lines(worker) if line["level"] == "error"]
        assert [line for line in errors if "aiokafka" not in str(line.get("logger"))] == []
    assert status == 200
    text = metrics.decode()
    for name in (
        'events_total{event_type="turn"}',
        'sessions_closed_total{reason="ended"} 40.0',
        "open_sessions 2.0",
    ):
        assert f"backslide_{name}" in text
    assert await asyncio.to_thread(complaints, promtool, metrics) == ""

    lengths, commits = await place.lengths(), await place.commits()
    assert commits.keys() == lengths.keys()
    open_homes = {home(name) for name in still}
    for number, (offset, note) in commits.items():
        assert note is not None
        assert (note.partitions, note.time is not None, note.truncated_until) == (PARTITIONS, True, None)
        assert offset == lengths[number] if number not in open_homes else offset < lengths[number]
    before = await session_counts(place)
    async with place.running() as running:
        await place.send(end(name) for name in still)
        await until(lambda: running.value("sessions_closed_total", reason="ended") == 2)
    assert await session_counts(place) == before + Counter(still)
    assert all(count == 1 for count in before.values())


async def test_too_many_invalid_events_stop_it_and_nothing_is_lost(
    kafka: KafkaBroker, topic_prefix: str, tmp_path: Path
) -> None:
    place = AssemblePlace(kafka, topic_prefix, tmp_path, gap_s=60.0)
    await place.create()
    partition = home("s")
    values = [encode(turn("s", 0)), *[b"garbage"] * 250, encode(turn("s", 1)), encode(end("s"))]
    await place.produce((key_of("s"), value, partition) for value in values)
    for _ in range(2):  # a restart does not get further by itself
        with pytest.raises(TooManyInvalid, match=r"of the last 200 events of .*assembly.dead_letter_limit = 0.5"):
            async with place.running() as running:
                await until(running.task.done)
    assert await place.views() == []
    assert partition not in await place.commits() or (await place.commits())[partition][0] == 0
    place.values["assembly"]["dead_letter_limit"] = 1.0
    async with place.running() as running:
        await until(lambda: running.value("sessions_closed_total", reason="ended") == 1)
    (view,) = await place.views()
    assert [each.turn_id for each in view.turns] == ["s-0", "s-1"]
    # Each restart has written the first ones again: each is one letter, and stays marked if it comes once more.
    letters = await dead_letters(place.settings)
    assert {each.source.offset for each in letters if each.source} == set(range(1, 251))
    assert len(letters) == 250
    assert sum(each.copies for each in letters) == len(await place.letters())
    assert await states(place.settings) == {"open": 250}


async def test_a8_a_changed_partition_count_stops_it_with_the_remedy(
    kafka: KafkaBroker, topic_prefix: str, tmp_path: Path
) -> None:
    place = AssemblePlace(kafka, topic_prefix, tmp_path, gap_s=60.0)
    await place.create()
    await place.send(turn(f"s{number}", 0) for number in range(20))
    assemble = Assemble(place.settings, Meters(METERS, version="0", process="assemble"), Health(time.monotonic))
    await assemble.start()
    running = asyncio.create_task(assemble.run(asyncio.Event()))
    try:
        await until(lambda: has_committed(place))
        async with place.admin() as client:
            await client.create_partitions({place.settings.topics.events: NewPartitions(PARTITIONS + 1)})
        await assemble._consumer._client.force_metadata_update()  # else it is seen within 30 s
        with pytest.raises(TopicError, match=r"has 5 partitions, had 4;.* move to a new topic"):
            await asyncio.wait_for(running, 20.0)
    finally:
        running.cancel()
        await assemble.close()
    # At a restart, with and without the check at the start.
    with pytest.raises(TopicError, match=r"has 5 partitions, the settings say 4; .*move to a new topic"):
        async with place.running():
            pass
    place.values["topics"]["check"] = False
    with pytest.raises(TopicError, match=r"had 4 partitions at the last commit, has 5 now; .*move to a new topic"):
        async with place.running():
            pass


async def has_committed(place: AssemblePlace) -> bool:
    return len(await place.commits()) == PARTITIONS


async def test_a9_a_commit_below_the_log_start_is_counted_and_marks_sessions_as_truncated(
    kafka: KafkaBroker, topic_prefix: str, tmp_path: Path
) -> None:
    place = AssemblePlace(kafka, topic_prefix, tmp_path, gap_s=60.0)
    await place.create()
    number = home("old")
    names = [name for name in (f"n{index}" for index in range(200)) if home(name) == number][:3]
    await place.send([turn("old", 0), turn("old", 1)])
    async with place.running():
        await until(lambda: has_committed(place))
    committed = await place.commits()
    assert committed[number][0] == 0  # pinned by the open session
    async with place.admin() as client:
        tp = TopicPartition(place.settings.topics.events, number)
        await client.delete_records({tp: RecordsToDelete((await place.lengths())[number])})
    async with place.running() as running:  # nothing comes: nothing is committed, or the gap would be forgotten
        assert running.value("commits_below_log_start_total") == 1
        await asyncio.sleep(0.6)
    assert (await place.commits())[number] == committed[number]
    async with place.running() as running:
        assert running.value("commits_below_log_start_total") == 1
        await place.send([turn(names[0], 0), end(names[0])])
        await until(lambda: running.value("sessions_closed_total", reason="truncated") == 1)
    async with place.running() as running:  # still within one maximum age of the gap
        assert running.value("commits_below_log_start_total") == 0
        await place.send([turn(names[1], 0), end(names[1])])
        await until(lambda: running.value("sessions_closed_total", reason="truncated") == 1)
    assert {view.session_id: view.close_reason for view in await place.views()} == {
        names[0]: "truncated",
        names[1]: "truncated",
    }


async def test_a_commit_beyond_the_end_of_the_log_is_refused_with_the_remedy(
    kafka: KafkaBroker, topic_prefix: str, tmp_path: Path
) -> None:
    place = AssemblePlace(kafka, topic_prefix, tmp_path)
    await place.create()
    tp = TopicPartition(place.settings.topics.events, 0)
    member = consumer(place.settings, "assemble")
    await member.start()
    member.assign([tp])
    note = encode_note(CommitNote(time=1, partitions=PARTITIONS, bound=0))
    await member.commit({tp: OffsetAndMetadata(1_000, note)})
    await member.stop()
    with pytest.raises(
        TopicError, match=r"partition 0 ends at 0, before the last commit at 1000: was the topic made"
    ):
        async with place.running():
            pass


async def test_a_missing_topic_is_one_clear_error(kafka: KafkaBroker, topic_prefix: str, tmp_path: Path) -> None:
    place = AssemblePlace(kafka, topic_prefix, tmp_path)
    with closing(place.worker("one")) as worker:
        assert await asyncio.to_thread(worker.wait, 30.0) == 1
        lines = log_lines(worker)
    (error,) = [line for line in lines if line["level"] == "error"]
    for name in (place.settings.topics.events, place.settings.topics.sessions, place.settings.topics.dead_letters):
        assert f"topic {name}: is missing; run `backslide topics create`" in str(error["error"])
    assert "Traceback" not in worker.log.read_text()
    # Without the check at the start as well.
    place.values["topics"]["check"] = False
    with pytest.raises(TopicError, match="is missing; run `backslide topics create`"):
        async with place.running():
            pass


async def test_a7_a_finished_session_that_is_refused_ends_it_before_any_commit_passes_it(
    kafka: KafkaBroker, topic_prefix: str, tmp_path: Path
) -> None:
    place = AssemblePlace(kafka, topic_prefix, tmp_path)
    await place.create()
    sessions = place.settings.topics.sessions
    await place.configure(sessions, message_timestamp_before_max_ms="0")  # any time is too old
    await place.send([turn("s", 0), turn("s", 1), end("s")])
    with pytest.raises(InvalidTimestampError):
        async with place.running() as running:
            await until(running.task.done, 20.0)
    commits = await place.commits()
    assert home("s") not in commits or commits[home("s")][0] == 0
    await place.configure(sessions, message_timestamp_before_max_ms=str(2**63 - 1))
    async with place.running() as running:
        await until(lambda: running.value("sessions_closed_total", reason="ended") == 1)
    assert await session_counts(place) == {"s": 1}
    assert (await place.commits())[home("s")][0] >= 3


def talk(sessions: int) -> Iterator[SessionEvent]:
    """Twenty sessions at a time, each turn of theirs twice now and then, each ended."""
    for start in range(0, sessions, 20):
        for index in range(6):
            for number in range(start, start + 20):
                yield turn(f"s{number}", index)
                if (number + index) % 50 == 0:
                    yield turn(f"s{number}", index)
        for number in range(start, start + 20):
            yield end(f"s{number}")


async def test_an_outage_of_the_broker_loses_nothing_and_a_stop_in_it_is_bounded(
    fresh_kafka: Callable[..., KafkaBroker], topic_prefix: str, tmp_path: Path
) -> None:
    broker = fresh_kafka(heap="256m")
    # A gap longer than the outage: to the log, a producer that was cut off looks like silence.
    place = AssemblePlace(broker, topic_prefix, tmp_path, gap_s=60.0)
    await place.create()
    sending = asyncio.create_task(place.send(talk(400), rate=240))
    workers = [place.worker("one")]

    async def complete() -> bool:
        if not workers[-1].alive:  # a supervisor would do so
            workers.append(place.worker(f"again{len(workers)}"))
        return len(await session_counts(place)) == 400

    try:
        await until(lambda: port_of(workers[0]))
        await asyncio.sleep(4.0)
        await asyncio.to_thread(broker.kill)
        await asyncio.sleep(20.0)
        await asyncio.to_thread(broker.start)
        await sending
        await until(complete, 60.0, 1.0)
        for view in await place.views():
            assert [each.turn_id for each in view.turns] == [f"{view.session_id}-{index}" for index in range(6)]
        await until(lambda: workers[-1].alive and port_of(workers[-1]))
        await asyncio.to_thread(broker.kill)
        await asyncio.sleep(1.0)
        started = time.monotonic()
        await asyncio.to_thread(workers[-1].stop, 10.0)
        print(
            f"{len(workers) - 1} restarts; stopped {time.monotonic() - started:.1f} s after a SIGTERM in an outage"
        )
        lines = sum(len(worker.log.read_text().splitlines()) for worker in workers)
        assert lines < 400 + 200, "an outage of seconds must not flood the log"
    finally:
        sending.cancel()
        for worker in workers:
            worker.close()
