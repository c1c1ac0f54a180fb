"""Reading whole topics, and waiting: what every test on a broker needs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition


async def read_all(servers: str, topics: Sequence[str]) -> list[Any]:
    """Give every record that topics hold now."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=servers, enable_auto_commit=False, max_partition_fetch_bytes=8_000_000
    )
    await consumer.start()
    try:
        parts = [TopicPartition(topic, number) for topic in topics for number in await partitions(servers, topic)]
        consumer.assign(parts)
        await consumer.seek_to_beginning(*parts)
        ends = await consumer.end_offsets(parts)
        records: list[Any] = []
        while any([await consumer.position(part) < ends[part] for part in parts]):
            for batch in (await consumer.getmany(timeout_ms=200)).values():
                records += batch
        return records
    finally:
        await consumer.stop()


async def partitions(servers: str, topic: str) -> list[int]:
    """Give the numbers of a topic's partitions."""
    producer = AIOKafkaProducer(bootstrap_servers=servers)
    await producer.start()
    try:
        return sorted(await producer.partitions_for(topic))
    finally:
        await producer.stop()


async def until(done: Callable[[], Any], seconds: float = 60.0, every: float = 0.1) -> None:
    """Wait until `done` (plain or async) says so, and fail when it takes too long."""
    limit = time.monotonic() + seconds
    while True:
        result = done()
        if asyncio.iscoroutine(result):
            result = await result
        if result:
            return
        assert time.monotonic() < limit, "waited in vain"
        await asyncio.sleep(every)
