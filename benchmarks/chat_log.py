"""A log of chats for benchmarks: sessions of eight turns and an end, many of them open at once, in time order."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Final

import msgspec
from aiokafka import AIOKafkaProducer

from consumers.kafka import event_key, partition_for, producer
from monitor.config import Settings
from monitor.events import SessionEnd, Turn, encode

TURNS: Final = 8
TURN_S: Final = 35.0
END_S: Final = 5.0
BATCH_BYTES: Final = 65_536
WORDS: Final = (
    "the order was placed on Monday and it has not arrived yet so please tell me where it is now because your "
    "page says delivered but nobody here has seen a parcel and the neighbors did not get it either thank you"
)


class ChatLog(msgspec.Struct, kw_only=True, frozen=True):
    """What to write: `events` in all, turns of about `turn_bytes`, `open_sessions` open at any time.

    `ended`: each session says that it is over, so that it closes `grace_s` after that; else none of them closes.
    """

    events: int
    open_sessions: int
    turn_bytes: int = 650
    grace_s: float = 60.0
    ended: bool = True
    seed: int = 1

    @property
    def sessions(self) -> int:
        """How many sessions begin; the last ones are cut off by the end of the log."""
        return self.events // (TURNS + self.ended)

    @property
    def seconds(self) -> float:
        """Event time from the first to the last beginning of a session."""
        life = (TURNS - 1) * TURN_S + END_S + self.grace_s
        return self.sessions * life / self.open_sessions

    def places(self) -> Iterator[tuple[float, int, int]]:
        """Give (seconds since the start, session, index of the event in it) of every event in time order."""
        every = self.seconds / self.sessions
        found = [
            (session * every + min(index, TURNS - 1) * TURN_S + (END_S if index == TURNS else 0.0), session, index)
            for session in range(self.sessions)
            for index in range(TURNS + self.ended)
        ]
        return iter(sorted(found))


async def write(settings: Settings, log: ChatLog) -> int:
    """Write a log into the source topic, event times ending now. Gives the mean size of an event in bytes."""
    sender = producer(settings)
    await sender.start()
    try:
        return await _send(sender, settings, log)
    finally:
        await sender.stop()


async def _send(sender: AIOKafkaProducer, settings: Settings, log: ChatLog) -> int:
    topic, partitions = settings.topics.events, settings.topics.event_partitions
    draw = random.Random(log.seed)
    texts = [_text(draw, log.turn_bytes - 243) for _ in range(500)]
    base = time.time() - log.seconds - (TURNS + 2) * TURN_S
    builders = {number: sender.create_batch() for number in range(partitions)}
    total = 0
    for at, session, index in log.places():
        session_id = f"chat-{session:08d}"
        key = event_key("acme", session_id)
        value = event(session_id, index, base + at, texts[draw.randrange(len(texts))])
        total += len(value)
        partition = partition_for(key, partitions)
        builders[partition].append(key=key, value=value, timestamp=None)
        if builders[partition].size() > BATCH_BYTES:
            await sender.send_batch(builders[partition], topic, partition=partition)
            builders[partition] = sender.create_batch()
    for partition, builder in builders.items():
        if builder.record_count():
            await sender.send_batch(builder, topic, partition=partition)
    await sender.flush()
    return round(total / (log.sessions * (TURNS + log.ended)))


def event(session_id: str, index: int, ts: float, text: str) -> bytes:
    """Encode an event of a session: a turn, or its end at index `TURNS`."""
    event_id = f"{session_id}-event-{index}"
    if index == TURNS:
        return encode(SessionEnd(event_id=event_id, session_id=session_id, tenant="acme", ts=ts, reason="closed"))
    return encode(
        Turn(
            event_id=event_id,
            session_id=session_id,
            tenant="acme",
            ts=ts,
            turn_id=f"{session_id}-turn-{index}",
            turn_index=index,
            role="assistant" if index % 2 else "user",
            text=text,
            assistant="helpdesk",
            assistant_version="2026.11",
        )
    )


def _text(draw: random.Random, size: int) -> str:
    words = " ".join(draw.choices(WORDS.split(), k=size // 4))[:size]
    # One text in ten isn't ASCII, so that the path for such text is measured, too.
    return words.replace("a", "\u00e4", 5) if draw.random() < 0.1 else words
