"""Reading parts of topics outside of any group, with one clear error when a topic or the broker is missing."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition

from consumers.dead_letters.reading import Place
from consumers.topics import partitions_of
from monitor.errors import BackslideError, TopicError

SILENCE_S: Final = 30.0


async def bounds(reader: AIOKafkaConsumer, topic: str) -> dict[TopicPartition, tuple[int, int]]:
    """Give the first offset of each partition and its end. Raises `TopicError` without the topic."""
    parts = [TopicPartition(topic, number) for number in sorted(await partitions_of(reader, topic))]
    if not parts:
        raise TopicError(f"topic {topic}: is missing; run `backslide topics create`")
    starts, ends = await reader.beginning_offsets(parts), await reader.end_offsets(parts)
    return {part: (starts[part], ends[part]) for part in parts}


async def between(
    reader: AIOKafkaConsumer, ranges: Mapping[TopicPartition, tuple[int, int]]
) -> AsyncIterator[Any]:
    """Read the records of partitions from an offset up to another one."""
    for part, (start, end) in ranges.items():
        reader.assign([part])
        reader.seek(part, start)
        heard = time.monotonic()
        while await reader.position(part) < end:
            batch = await reader.getmany(timeout_ms=1_000)
            for record in batch.get(part, ()):
                if record.offset < end:
                    yield record
            if batch:
                heard = time.monotonic()
            elif time.monotonic() - heard > SILENCE_S:
                raise BackslideError(f"topic {part.topic}: the broker has not answered for {SILENCE_S:.0f} s")


async def one(reader: AIOKafkaConsumer, place: Place) -> Any | None:
    """Give the record at a place; None when it is gone."""
    try:
        parts = await bounds(reader, place.topic)
    except TopicError:
        return None
    part = TopicPartition(place.topic, place.partition)
    start, end = parts.get(part, (0, 0))
    if not start <= place.offset < end:
        return None
    found = [record async for record in between(reader, {part: (place.offset, place.offset + 1)})]
    return found[0] if found else None
