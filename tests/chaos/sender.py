"""Sends the load of a round at its pace, until the broker has all of it, whatever happens to the broker."""

from __future__ import annotations

import asyncio
import time

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from tests.chaos.load import Load, Parcel, Truth

RETRY_S = 0.5


class Sender:
    """A producer as applications have them: it sends again what it isn't sure of, so that some comes twice."""

    def __init__(self, servers: str, topic: str, truth: Truth) -> None:
        self._topic = topic
        self._truth = truth
        self._producer = AIOKafkaProducer(
            bootstrap_servers=servers, acks="all", linger_ms=2, request_timeout_ms=60_000, retry_backoff_ms=200
        )

    async def start(self) -> None:
        """Connect."""
        await self._producer.start()

    async def stop(self) -> None:
        """Disconnect."""
        await self._producer.stop()

    async def send(self, load: Load, enough: asyncio.Event) -> None:
        """Send until there is `enough`; returns when the broker has all that was sent."""
        base = time.time()
        under_way: set[asyncio.Task[None]] = set()
        for parcel in load.parcels(base):
            early = base + parcel.at - time.time()
            if early > 0.01:
                await asyncio.sleep(early)
            if enough.is_set():
                break
            under_way.add(task := asyncio.create_task(self._deliver(parcel)))
            task.add_done_callback(under_way.discard)
        while under_way:
            await asyncio.wait(under_way)

    async def _deliver(self, parcel: Parcel) -> None:
        while True:
            try:
                await self._producer.send_and_wait(
                    self._topic, parcel.value, key=parcel.key, partition=parcel.partition
                )
            except KafkaError:
                await asyncio.sleep(RETRY_S)
            else:
                self._truth.note(parcel)
                return
