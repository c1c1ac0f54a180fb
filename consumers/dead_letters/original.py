"""The bytes that a replay sends: what was put aside, whole, as it was (J4).

A letter that holds all of its record is enough. One that was cut, or that holds a judge's answer instead of the
job, names the position of the record: it is read there, and a job that fell under retention is made again from the
stored decision.
"""

from __future__ import annotations

from typing import Any

import msgspec

from consumers.dead_letters import log
from consumers.dead_letters.reading import Letter, Place
from consumers.dead_letters.writing import MAX_KEY_BYTES, digest
from consumers.kafka import event_key, partition_for
from consumers.topics import partitions_of
from monitor.config import Settings
from monitor.errors import BackslideError, StoreError


class Irretrievable(BackslideError):
    """The record of a letter can't be replayed. The message says why, and what can be done."""


class Outgoing(msgspec.Struct, kw_only=True, frozen=True):
    """A record to send; without a `partition` the producer chooses by the key."""

    topic: str
    key: bytes | None
    value: bytes
    partition: int | None = None


class Originals:
    """Finds what letters stand for. `reader` is a started consumer without a group, free to be assigned."""

    def __init__(self, settings: Settings, reader: Any) -> None:
        self._settings = settings
        self._reader = reader
        self._counts: dict[str, int] = {}

    async def of(self, letter: Letter, value: bytes, *, to: str | None = None) -> Outgoing:
        """Give the record that a letter stands for, `value` being the letter's own bytes. Raises `Irretrievable`.

        It goes back to where it came from, or to the topic `to`: events by their key (A8), everything else into
        its partition, where the readers of a session's earlier copies look for it (A5).
        """
        source = letter.source
        if source is None:
            raise Irretrievable("not a dead letter of Backslide: it names no position to go back to; drop it")
        key = self._key(letter)
        if letter.cut or letter.reason == "invalid" or _is_cut(key):
            key, value = await self._from_log(letter, source)
        topic = to or source.topic
        if not await self._count(topic):
            raise Irretrievable(f"topic {topic} is missing; create it, or name another one with --to")
        return Outgoing(topic=topic, key=key, value=value, partition=await self._partition(source, topic, key))

    async def _from_log(self, letter: Letter, source: Place) -> tuple[bytes | None, bytes]:
        record = await log.one(self._reader, source) if await self._count(source.topic) else None
        if record is not None and (not letter.cut or digest(record.value or b"") == letter.whole):
            return record.key, record.value or b""
        job = self._stored_job(letter) if letter.reason == "invalid" else None
        if job is not None:
            return letter.key, job
        raise Irretrievable(f"its whole record is gone from {source.topic} (retention); drop it")

    def _stored_job(self, letter: Letter) -> bytes | None:
        # Slow to load, and seldom needed.
        from monitor.store import Store
        from monitor.store.connect import connect

        job_id = (letter.key or b"").decode("utf-8", "replace")
        try:
            store = Store(connect(self._settings.store.url))
            try:
                job = store.job(letter.tenant, letter.session_id, job_id)
            finally:
                store.close()
        except StoreError:
            return None
        return None if job is None else msgspec.json.encode(job)

    def _key(self, letter: Letter) -> bytes | None:
        # Of an orphan only the event is at hand, and whose it is.
        if letter.key is None and letter.session_id:
            return event_key(letter.tenant, letter.session_id)
        return letter.key

    async def _partition(self, source: Place, topic: str, key: bytes | None) -> int | None:
        count = await self._count(topic)
        if topic == source.topic and (topic != self._settings.topics.events or key is None):
            return source.partition
        return partition_for(key, count) if key is not None else None

    async def _count(self, topic: str) -> int:
        if topic not in self._counts:
            self._counts[topic] = len(await partitions_of(self._reader, topic))
        return self._counts[topic]


def _is_cut(key: bytes | None) -> bool:
    return key is not None and len(key) >= MAX_KEY_BYTES
