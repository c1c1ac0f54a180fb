"""What is done with dead letters: reading them, sending their records back, marking them.

A replay sends a record, waits for the broker, and only then marks its letter. Killed in between, it sends a few
records once more the next time, and what is read twice counts once: an event is known by its id, a session gives
the same decision, a job's second verdict is not counted (J4, R1).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from consumers.dead_letters import log
from consumers.dead_letters.filters import Filter
from consumers.dead_letters.original import Irretrievable, Originals, Outgoing
from consumers.dead_letters.reading import Letter, Letters
from consumers.dead_letters.writing import MarkKind, mark
from consumers.kafka import TOO_LARGE, consumer, producer
from monitor.config import Settings

# So many are sent before they are marked: what a kill may send twice.
WINDOW: Final = 100
REPLAYED_FROM: Final = "replayed-from"


class Done(msgspec.Struct, kw_only=True, frozen=True):
    """What became of one letter: where its record went, or the problem that kept it."""

    id: str
    to: str = ""
    problem: str = ""


class Desk:
    """Works on the topic of dead letters; see `open_desk`."""

    def __init__(
        self, settings: Settings, reader: AIOKafkaConsumer, others: AIOKafkaConsumer, writer: AIOKafkaProducer
    ) -> None:
        self._topic = settings.topics.dead_letters
        self._reader = reader
        self._writer = writer
        self._originals = Originals(settings, others)

    async def letters(self, wanted: Filter) -> list[Letter]:
        """Give the letters that match, the oldest first. Raises `TopicError` without the topic."""
        found = Letters(wanted.matches)
        async for record in log.between(self._reader, await log.bounds(self._reader, self._topic)):
            found.take(record)
        return [letter for letter in found.all() if wanted.state in {None, letter.state}]

    async def record(self, letter: Letter) -> Any:
        """Give the record of a letter. Raises `Irretrievable` when it went meanwhile."""
        async for _, record in self._with_records([letter]):
            return record
        raise Irretrievable(f"{letter.id}: the letter has just fallen under retention")

    async def original(self, letter: Letter) -> bytes:
        """Give the bytes that a replay of a letter sends. Raises `Irretrievable`."""
        record = await self.record(letter)
        return (await self._originals.of(letter, record.value or b"")).value

    async def replay(
        self,
        letters: Iterable[Letter],
        tell: Callable[[Done], None],
        *,
        to: str | None = None,
        value: bytes | None = None,
        dry_run: bool = False,
    ) -> None:
        """Send the records of letters back, or to the topic `to`, and mark the letters.

        `value` goes instead of what was put aside. `tell` hears of each letter once it is marked. A `dry_run`
        does all but sending.
        """
        batch: list[tuple[Letter, Outgoing]] = []
        async for letter, record in self._with_records(letters):
            try:
                outgoing = await self._originals.of(letter, record.value or b"", to=to)
            except Irretrievable as error:
                tell(Done(id=letter.id, problem=str(error)))
                continue
            batch.append((letter, outgoing if value is None else msgspec.structs.replace(outgoing, value=value)))
            if len(batch) == WINDOW:
                await self._send(batch, tell, dry_run=dry_run)
                batch.clear()
        await self._send(batch, tell, dry_run=dry_run)

    async def drop(self, letters: Iterable[Letter], tell: Callable[[Done], None], *, dry_run: bool) -> None:
        """Mark letters as dropped; their records stay until retention takes them."""
        for letter in letters:
            if not dry_run:
                await self._mark(letter, "dropped", "")
            tell(Done(id=letter.id))

    async def _send(
        self, batch: list[tuple[Letter, Outgoing]], tell: Callable[[Done], None], *, dry_run: bool
    ) -> None:
        sends = [self._send_one(letter, outgoing, dry_run=dry_run) for letter, outgoing in batch]
        # All of them, even when one fails: what the broker has is to be marked.
        results = await asyncio.gather(*sends, return_exceptions=True)
        for result in results:
            if isinstance(result, Done):
                tell(result)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _send_one(self, letter: Letter, outgoing: Outgoing, *, dry_run: bool) -> Done:
        if dry_run:
            place = outgoing.topic if outgoing.partition is None else f"{outgoing.topic}/{outgoing.partition}"
            return Done(id=letter.id, to=place)
        try:
            sent = await self._writer.send_and_wait(
                outgoing.topic,
                outgoing.value,
                key=outgoing.key,
                partition=outgoing.partition,
                headers=[(REPLAYED_FROM, letter.id.encode())],
            )
        except TOO_LARGE:
            size = len(outgoing.value)
            return Done(id=letter.id, problem=f"{size} bytes are too large for the broker or the client's limit")
        place = f"{sent.topic}/{sent.partition}/{sent.offset}"
        await self._mark(letter, "replayed", place)
        return Done(id=letter.id, to=place)

    async def _mark(self, letter: Letter, kind: MarkKind, to: str) -> None:
        key, value, headers = mark(letter.id, letter.digest, kind, to)
        await self._writer.send_and_wait(
            self._topic, value, key=key, headers=headers, partition=letter.place.partition
        )

    async def _with_records(self, letters: Iterable[Letter]) -> AsyncIterator[tuple[Letter, Any]]:
        """Read letters once more, now with their bytes, in one go through the topic."""
        wanted = {(letter.place.partition, letter.place.offset): letter for letter in letters}
        ranges: dict[TopicPartition, tuple[int, int]] = {}
        for partition, offset in wanted:
            part = TopicPartition(self._topic, partition)
            start, end = ranges.get(part, (offset, offset + 1))
            ranges[part] = min(start, offset), max(end, offset + 1)
        async for record in log.between(self._reader, ranges):
            letter = wanted.get((record.partition, record.offset))
            if letter is not None:
                yield letter, record


@asynccontextmanager
async def open_desk(settings: Settings) -> AsyncIterator[Desk]:
    """Connect, and disconnect at the end. Raises `KafkaError` when the broker can't be reached."""
    topics = settings.topics
    readers = [consumer(settings, None, auto_offset_reset="earliest") for _ in range(2)]
    # What is put aside for its size may be an event that is larger than any record of ours.
    writer = producer(settings, largest=max(topics.max_message_bytes, topics.max_event_message_bytes))
    clients = [*readers, writer]
    try:
        for client in clients:
            await client.start()
        yield Desk(settings, readers[0], readers[1], writer)
    finally:
        for client in clients:
            await client.stop()
