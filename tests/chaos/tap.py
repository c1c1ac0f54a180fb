"""Reads whole topics as they grow, from the beginning, beside the processes and around the proxy."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition

FETCH: Final = 16_777_216


class Tap:
    """Gives every record of some topics to `take`, in order within a partition."""

    def __init__(self, servers: str, partitions: Iterable[TopicPartition], take: Callable[[Any], None]) -> None:
        self._partitions = list(partitions)
        self._take = take
        self._reader: Any = AIOKafkaConsumer(
            bootstrap_servers=servers,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_bytes=FETCH,
            max_partition_fetch_bytes=FETCH // 4,
            fetch_max_wait_ms=100,
        )

    async def start(self) -> None:
        """Connect."""
        await self._reader.start()
        self._reader.assign(self._partitions)
        await self._reader.seek_to_beginning(*self._partitions)

    async def stop(self) -> None:
        """Disconnect."""
        await self._reader.stop()

    async def ends(self) -> dict[TopicPartition, int]:
        """Give where the partitions end now."""
        found: dict[TopicPartition, int] = await self._reader.end_offsets(self._partitions)
        return found

    async def catch_up(self) -> None:
        """Read everything that is there now."""
        ends = await self.ends()
        while any([await self._reader.position(place) < end for place, end in ends.items()]):
            for records in (await self._reader.getmany(timeout_ms=200)).values():
                for record in records:
                    self._take(record)
