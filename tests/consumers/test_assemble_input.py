"""What producers may send: good, bad, misplaced, late, large; nothing of it is lost, nothing stops the others."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
from aiokafka import AIOKafkaProducer

from consumers.dead_letters import MAX_BYTES
from consumers.kafka import event_key, partition_for
from monitor.events import Feedback, Role, SessionEnd, SessionEvent, Turn, encode
from monitor.session import Addendum, SessionRecord, decode_content, session_view
from tests.consumers.assemble_place import PARTITIONS, AssemblePlace
from tests.consumers.broker_io import until
from tests.services.kafka import KafkaBroker


def turn(session_id: str, index: int, text: str = "hello", ts: float | None = None) -> Turn:
    role: Role = "user" if index % 2 == 0 else "assistant"
    return Turn(
        event_id=f"{session_id}-{index}",
        session_id=session_id,
        ts=ts or time.time(),
        turn_id=f"{session_id}-{index}",
        turn_index=index,
        role=role,
        text=text,
    )


def end(session_id: str) -> SessionEnd:
    return SessionEnd(event_id=f"{session_id}-end", session_id=session_id, ts=time.time())


def feedback(session_id: str, event_id: str) -> Feedback:
    return Feedback(event_id=event_id, session_id=session_id, ts=time.time(), rating="down")


def key_of(session_id: str) -> bytes:
    return event_key("default", session_id)


def home(session_id: str) -> int:
    return partition_for(key_of(session_id), PARTITIONS)


def changed(**fields: Any) -> bytes:
    """Give a turn's JSON with fields replaced; None takes a field away."""
    values = json.loads(encode(turn("bad", 0))) | fields
    return json.dumps({name: value for name, value in values.items() if value is not None}).encode()


BAD: list[tuple[bytes | None, str]] = [
    (None, "undecodable"),
    (b"", "undecodable"),
    (b"\xff\xfe\x00 bytes", "undecodable"),
    (b'{"type":"turn","event_id":', "undecodable"),
    (b"[" * 5_000, "invalid_field"),
    (changed(extra="deep").replace(b'"deep"', b"[" * 5_000 + b"]" * 5_000), "undecodable"),
    (b'"text"', "invalid_field"),
    (changed(type="mystery"), "unknown_type"),
    (changed(type=None), "invalid_field"),
    (changed(event_id=None), "invalid_field"),
    (changed(session_id=""), "invalid_field"),
    (changed(role="robot"), "invalid_field"),
    (changed(turn_index="three"), "invalid_field"),
    (changed(ts=-1), "invalid_field"),
    (changed(text="x" * 5_000_000), "too_large"),
]


async def test_bad_events_are_put_aside_and_the_partition_goes_on(
    kafka: KafkaBroker, topic_prefix: str, tmp_path: Path
) -> None:
    place = AssemblePlace(kafka, topic_prefix, tmp_path)
    await place.create()
    partition, key = home("good"), key_of("good")
    odd = [
        encode(turn("good", 1)).replace(b"hello", b"raw \x00 and \x1b inside"),
        encode(turn("good", 2)).replace(b"hello", rb"null \u0000 and lone \ud800 inside"),
    ]
    values = [encode(turn("good", 0)), *(value for value, _ in BAD), *odd, encode(end("good"))]
    await place.produce((key, value, partition) for value in values)
    async with place.running() as running:
        await until(lambda: running.value("sessions_closed_total", reason="ended"))
        assert running.total("events_invalid") == Counter(reason for _, reason in BAD)
        assert running.value("dead_letters_total", stage="assemble") == len(BAD)
        assert not running.task.done()
    (view,) = await place.views()
    assert [each.turn_id for each in view.turns] == ["good-0", "good-1", "good-2"]
    assert [each.text for each in view.turns[1:]] == ["raw \0 and \x1b inside", "null \0 and lone \ufffd inside"]

    letters = await place.letters()
    assert len(letters) == len(BAD)
    by_offset = {int(headers["offset"]): (headers, letter_key, value) for headers, letter_key, value in letters}
    for offset, (value, reason) in enumerate(BAD, 1):
        headers, letter_key, kept = by_offset[offset]
        raw = value or b""
        assert (headers["reason"], headers["stage"]) == (reason, "assemble")
        assert (headers["topic"], headers["partition"]) == (place.settings.topics.events, str(partition))
        assert (headers["key"].encode(), headers["error"] != "") == (key, True)
        assert letter_key == f"{headers['topic']}/{partition}/{offset}".encode()
        assert kept == raw[:MAX_BYTES]
        if len(raw) > MAX_BYTES:
            assert headers["length"] == str(len(raw))
            assert headers["blake2b"] == hashlib.blake2b(raw, digest_size=16).hexdigest()
        else:
            assert "length" not in headers
    assert (await place.commits())[partition][0] >= len(values)


async def test_a8_events_in_wrong_partitions_end_up_in_one_right_session(
    kafka: KafkaBroker, topic_prefix: str, tmp_path: Path
) -> None:
    place = AssemblePlace(kafka, topic_prefix, tmp_path, gap_s=2.0)
    await place.create()
    rng = random.Random(8)
    names = [f"s{number}" for number in range(60)]
    events = [turn(name, index) for index in range(4) for name in names]
    placed = [(event, rng.randrange(PARTITIONS)) for event in events]
    wrong = sum(partition != home(event.session_id) for event, partition in placed)
    await place.produce((key_of(event.session_id), encode(event), partition) for event, partition in placed)
    async with place.running() as running:
        await until(lambda: running.value("sessions_closed_total", reason="inactivity") == len(names))
        assert running.value("events_rerouted_total") == wrong
        assert set(running.total("events_invalid").values()) == {0.0}
        assert running.value("events_duplicate_total") == 0
    assert wrong > 100
    found = {}
    for record in await place.read(place.settings.topics.sessions):
        content = decode_content(msgspec.json.decode(record.value, type=SessionRecord).content)
        assert record.partition == home(content.session_id)
        assert record.key == key_of(content.session_id)
        assert content.session_id not in found, "torn apart"
        view = session_view(msgspec.json.encode(content))
        found[content.session_id] = [each.turn_id for each in view.turns]
    assert found == {name: [f"{name}-{index}" for index in range(4)] for name in names}


async def test_a1_a3_ticks_close_what_is_idle_and_stragglers_find_their_session(
    kafka: KafkaBroker, topic_prefix: str, tmp_path: Path
) -> None:
    place = AssemblePlace(kafka, topic_prefix, tmp_path, gap_s=1.5)
    await place.create()
    busy, sent = home("early"), [turn("early", 0), turn("early", 1)]
    await place.send(sent)
    async with place.running() as running:
        # The last session of every partition closes by ticks alone.
        await until(lambda: running.value("sessions_closed_total", reason="inactivity") == 1)
        assert running.value("events_total", event_type="tick") >= 2
        late: list[SessionEvent] = [feedback("early", "late"), feedback("early", "late")]
        await place.send([*late, feedback("ghost", "orphan"), turn("early", 1)])
        await until(lambda: running.value("events_orphaned_total", event_type="feedback") == 1)
        await until(lambda: running.value("events_duplicate_total") == 2)
        assert running.value("events_late_total") == 1
        await until(lambda: running.value("open_sessions") == 0)
        quiet = await place.lengths()
        await asyncio.sleep(1.5)
        assert await place.lengths() == quiet, "a partition without open sessions gets no ticks"
        assert {number for number, length in quiet.items() if length} == {busy, home("ghost")}
    session, addendum = await place.finished()
    assert isinstance(session, SessionRecord)
    assert isinstance(addendum, Addendum)
    assert (addendum.session_id, addendum.segment) == ("early", "early-0")
    assert bytes(addendum.event) == encode(late[0])
    ((headers, _, value),) = await place.letters()
    assert headers["reason"] == "orphan"
    assert (headers["topic"], int(headers["partition"])) == (place.settings.topics.events, home("ghost"))
    assert msgspec.json.decode(value, type=Feedback).event_id == "orphan"


async def test_j5_a_session_too_large_for_its_topic_goes_on_as_a_stub(
    kafka: KafkaBroker, topic_prefix: str, tmp_path: Path
) -> None:
    place = AssemblePlace(kafka, topic_prefix, tmp_path)
    await place.create()
    await place.configure(place.settings.topics.sessions, max_message_bytes="20000")
    place.values["topics"]["check"] = False
    small, large = "small", next(f"l{number}" for number in range(99) if home(f"l{number}") == home("small"))
    await place.send([turn(large, 0, "x" * 30_000), end(large)])
    await asyncio.sleep(1.0)
    await place.send([turn(small, 0), end(small)])
    async with place.running() as running:
        await until(lambda: running.value("sessions_closed_total", reason="ended") == 2)
    found = {}
    for record in await place.finished():
        assert isinstance(record, SessionRecord)
        content = decode_content(record.content)
        found[content.session_id] = (content.segment, len(content.events), record.span.first <= record.span.last)
    assert found == {large: (f"{large}-0", 0, True), small: (f"{small}-0", 2, True)}


async def test_a10_transaction_markers_at_the_end_of_the_log_are_no_lag(
    kafka: KafkaBroker, topic_prefix: str, tmp_path: Path
) -> None:
    place = AssemblePlace(kafka, topic_prefix, tmp_path, stall_timeout_s=1.0, gap_s=2.5)
    await place.create()
    producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap, transactional_id=f"{topic_prefix}tx")
    await producer.start()
    try:
        async with producer.transaction():
            for index in range(2):
                await producer.send(
                    place.settings.topics.events, encode(turn("s", index)), key=key_of("s"), partition=home("s")
                )
    finally:
        await producer.stop()
    assert (await place.lengths())[home("s")] == 3  # two turns and the marker
    async with place.running() as running:
        await until(lambda: running.value("sessions_closed_total", reason="inactivity") == 1)
        await asyncio.sleep(1.5)
        assert not running.task.done()
        assert running.value("lag_seconds", topic=place.settings.topics.events) == 0.0


async def test_a1_a_pause_of_a_producer_that_is_an_hour_behind_closes_nothing(
    kafka: KafkaBroker, topic_prefix: str, tmp_path: Path
) -> None:
    """Ticks go on from the log's own time; dated by the wall clock, the first would close the session."""
    place = AssemblePlace(kafka, topic_prefix, tmp_path, gap_s=5.0, tick_interval_s=0.2)
    await place.create()
    behind = time.time() - 3_600
    async with place.running() as running:
        await place.send([turn("late", 0, ts=behind)])
        await until(lambda: running.value("events_total", event_type="tick"))
        await asyncio.sleep(0.6)
        assert running.value("open_sessions") == 1
        await place.send([turn("late", 1, ts=behind + 2)])
        started = time.monotonic()
        await until(lambda: running.value("sessions_closed_total", reason="inactivity") == 1)
        assert time.monotonic() - started > 2.0, "it closes after its gap of silence, and no sooner"
    (view,) = await place.views()
    assert [each.turn_id for each in view.turns] == ["late-0", "late-1"]
