"""The notes on batches as a topic: one partition, read from its beginning by every judge process.

A note counts when it has come back from the broker, behind all that others wrote before it: so everybody sees the
same first claim on a question.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec
import structlog
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from consumers import kafka
from monitor.config import Settings
from monitor.judging.batch_book import BatchBook, Note

RETRY_S: Final = 1.0
_POLL_MS: Final = 200
_NOTE = msgspec.json.Decoder(Note)


class BatchNotes:
    """Reads and writes the notes. `start` it before anything looks at `book`; `run` keeps it up to date."""

    def __init__(self, settings: Settings, producer: AIOKafkaProducer) -> None:
        self.book = BatchBook()
        self._partition = TopicPartition(settings.topics.batches, 0)
        self._producer = producer
        self._consumer: AIOKafkaConsumer = kafka.consumer(settings, None, auto_offset_reset="earliest")
        self._position = 0
        self._read = asyncio.Condition()
        self._log = structlog.get_logger().bind(process="judge")

    async def start(self) -> None:
        """Read all notes that there are. Raises `KafkaError`."""
        await self._consumer.start()
        self._consumer.assign([self._partition])
        await self._consumer.seek_to_beginning(self._partition)
        end = (await self._consumer.end_offsets([self._partition]))[self._partition]
        while await self._consumer.position(self._partition) < end:
            await self._take()

    async def run(self) -> None:
        """Read notes as they come, until canceled."""
        while True:
            await self._take()

    async def write(self, note: Note) -> None:
        """Write a note, and return when `book` has it. Raises `KafkaError` for what no waiting mends."""
        value = msgspec.json.encode(note)
        offset = await self._sent(value)
        async with self._read:
            await self._read.wait_for(lambda: self._position > offset)

    async def stop(self) -> None:
        """Release the connection."""
        await self._consumer.stop()

    async def _take(self) -> None:
        batches = await self._consumer.getmany(self._partition, timeout_ms=_POLL_MS)
        for record in batches.get(self._partition, ()):
            self._apply(record)
        async with self._read:
            self._position = await self._consumer.position(self._partition)
            self._read.notify_all()

    def _apply(self, record: Any) -> None:
        try:
            self.book.apply(_NOTE.decode(record.value or b""))
        except msgspec.DecodeError as error:
            self._log.warning("unreadable_batch_note", offset=record.offset, error=type(error).__name__)

    async def _sent(self, value: bytes) -> int:
        while True:
            try:
                sent = await self._producer.send_and_wait(self._partition.topic, value, partition=0)
            except KafkaError as error:
                if not kafka.is_passing(error):
                    raise
                self._log.warning("send_again", error=type(error).__name__)
                await asyncio.sleep(RETRY_S)
            else:
                return int(sent.offset)
