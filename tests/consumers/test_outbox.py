"""The outbox on a real broker: order, acknowledgements, stubs, failures, and nobody waiting for ever (A7, J5)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import MessageSizeTooLargeError, ProducerClosed

from consumers.kafka import producer
from consumers.outbox import Outbox, Outgoing
from tests.consumers.assemble_place import AssemblePlace
from tests.consumers.broker_io import until
from tests.services.kafka import KafkaBroker


class Stage:
    """A topic, a producer and an outbox on it, and what the outbox complained of."""

    def __init__(self, place: AssemblePlace) -> None:
        self.place = place
        self.topic = place.settings.topics.sessions
        self.errors: list[BaseException] = []
        self.acknowledged: list[tuple[int, int]] = []
        self.producer: AIOKafkaProducer = producer(place.settings)

    def outbox(self, limit: int = 2_000, limit_bytes: int = 1_000_000) -> Outbox:
        return Outbox(self.producer, self.errors.append, limit, limit_bytes)

    def outgoing(self, number: int, size: int = 10, **more: Any) -> Outgoing:
        return Outgoing(
            topic=self.topic,
            value=f"{number}:".encode().ljust(size, b"x"),
            key=b"k",
            partition=1,
            acknowledged=lambda offset: self.acknowledged.append((number, offset)),
            **more,
        )

    async def written(self) -> list[int]:
        return [int(record.value.partition(b":")[0]) for record in await self.place.read(self.topic)]


@pytest.fixture
async def stage(kafka: KafkaBroker, topic_prefix: str, tmp_path: Path) -> AsyncIterator[Stage]:
    place = AssemblePlace(kafka, topic_prefix, tmp_path)
    await place.create()
    stage = Stage(place)
    first = stage.producer
    await first.start()
    yield stage
    await first.stop()
    await stage.producer.stop()


async def test_a7_what_is_put_is_written_in_order_and_told_its_offset(stage: Stage) -> None:
    outbox = stage.outbox()
    for number in range(500):
        outbox.put(stage.outgoing(number))
    assert len(outbox) == 500
    assert await outbox.drain()
    assert len(outbox) == 0
    outbox.close()
    assert await stage.written() == list(range(500))
    assert stage.acknowledged == [(number, number) for number in range(500)]
    assert stage.errors == []


async def test_a7_drain_waits_for_what_was_put_before_it_and_for_no_more(stage: Stage) -> None:
    outbox = stage.outbox()
    outbox.put(stage.outgoing(0))
    draining = asyncio.create_task(outbox.drain())
    await asyncio.sleep(0)
    putting = True

    async def put_on() -> None:
        while putting:
            outbox.put(stage.outgoing(1))
            await asyncio.sleep(0.001)

    more = asyncio.create_task(put_on())
    assert await asyncio.wait_for(draining, 5.0)
    assert stage.acknowledged[0] == (0, 0)
    putting = False
    await more
    outbox.close()


@pytest.mark.parametrize("refused_by", ["client", "broker"])
async def test_j5_a_record_that_is_too_large_is_replaced_by_its_stub(stage: Stage, refused_by: str) -> None:
    values = stage.place.values
    values["assembly"].update(max_bytes=10_000, max_event_bytes=10_000)
    values["topics"]["max_message_bytes"] = 70_000
    if refused_by == "broker":
        await stage.place.configure(stage.topic, max_message_bytes="60000")
        values["topics"]["max_message_bytes"] = 200_000
    stage.producer = producer(stage.place.settings)
    await stage.producer.start()
    outbox = stage.outbox()
    for number, size in enumerate([10, 80_000, 50_000, 75_000, 10]):
        stub = stage.outgoing(100 + number)
        outbox.put(stage.outgoing(number, size, stub=lambda stub=stub: stub))
    assert await asyncio.wait_for(outbox.drain(), 10.0)
    outbox.close()
    assert sorted(await stage.written()) == [0, 2, 4, 101, 103]
    assert sorted(number for number, _ in stage.acknowledged) == [0, 2, 4, 101, 103]
    assert stage.errors == []


async def test_small_records_are_never_refused_for_the_batch_they_are_in(stage: Stage) -> None:
    values = stage.place.values
    values["assembly"].update(max_bytes=10_000, max_event_bytes=10_000)
    values["topics"]["max_message_bytes"] = 70_000
    await stage.place.configure(stage.topic, max_message_bytes="70000")
    stage.producer = producer(stage.place.settings)
    await stage.producer.start()
    outbox = stage.outbox()
    for number in range(100):
        outbox.put(stage.outgoing(number, 5_000))
    assert await asyncio.wait_for(outbox.drain(), 10.0)
    outbox.close()
    assert await stage.written() == list(range(100))


async def test_a_record_too_large_without_a_stub_is_a_failure(stage: Stage) -> None:
    outbox = stage.outbox()
    outbox.put(stage.outgoing(0, stage.place.settings.topics.max_message_bytes + 1))
    outbox.put(stage.outgoing(1))
    await until(lambda: stage.errors, 10.0, 0.02)
    assert isinstance(stage.errors[0], MessageSizeTooLargeError)
    draining = asyncio.create_task(outbox.drain())
    await until(lambda: stage.acknowledged == [(1, 0)], 10.0, 0.02)
    assert not draining.done(), "what failed is not drained: nothing past it may be committed"
    outbox.close()
    assert await asyncio.wait_for(draining, 1.0) is False


async def test_a_failing_producer_is_reported(stage: Stage) -> None:
    outbox = stage.outbox()
    outbox.put(stage.outgoing(0))
    await outbox.drain()
    await stage.producer.stop()
    outbox.put(stage.outgoing(1))
    await until(lambda: stage.errors, 10.0, 0.02)
    assert isinstance(stage.errors[0], ProducerClosed)
    outbox.close()


async def test_a6_closing_frees_whoever_waits(stage: Stage) -> None:
    """A partition that is taken away must neither hold up the reading loop nor the commits of the others."""
    outbox = stage.outbox(limit=1)
    await stage.producer.stop()  # nothing will be acknowledged any more
    outbox.put(stage.outgoing(0))
    draining, room = asyncio.create_task(outbox.drain()), asyncio.create_task(outbox.room(60.0))
    await asyncio.sleep(0.1)
    assert not draining.done()
    assert not room.done()
    outbox.close()
    assert await asyncio.wait_for(draining, 1.0) is False
    assert await asyncio.wait_for(room, 1.0) is True
    assert await outbox.drain() is False


async def test_room_is_bounded_in_time_and_comes_back(stage: Stage) -> None:
    outbox = stage.outbox(limit=10)
    for number in range(10):
        outbox.put(stage.outgoing(number))
    assert await outbox.room(0.0) is False
    await until(lambda: outbox.room(1.0), 5.0, 0.0)
    assert await outbox.drain()
    assert await outbox.room(0.0) is True
    outbox.close()


async def test_few_large_records_fill_the_outbox_like_many_small_ones(stage: Stage) -> None:
    outbox = stage.outbox(limit_bytes=1_000_000)
    outbox.put(stage.outgoing(0, size=600_000))
    assert await outbox.room(0.0) is True
    outbox.put(stage.outgoing(1, size=600_000))
    assert await outbox.room(0.0) is False
    assert await outbox.drain()
    assert await outbox.room(0.0) is True
    outbox.close()
