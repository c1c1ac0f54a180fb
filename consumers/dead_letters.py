"""Dead letters: what a stage could not take in, with its raw bytes, its error and its position.

They are keyed by position, so that a replay overwrites rather than multiplies them in the eyes of a reader.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final, Protocol

from aiokafka import AIOKafkaProducer

MAX_BYTES: Final = 65_536

Headers = list[tuple[str, bytes]]


class Placed(Protocol):
    """Any consumed record: where it lay, and its bytes."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


def letter(record: Placed, *, stage: str, reason: str, error: str) -> tuple[bytes, bytes, Headers]:
    """Make key, value and headers of a dead letter.

    The value is the record's, cut to 64 kB; then `length` and `blake2b` of the whole are among the headers.
    """
    raw = record.value or b""
    headers: Headers = [
        ("stage", stage.encode()),
        ("reason", reason.encode()),
        ("error", error.encode("utf-8", "replace")[:2_048]),
        ("topic", record.topic.encode()),
        ("partition", str(record.partition).encode()),
        ("offset", str(record.offset).encode()),
    ]
    if record.key is not None:
        headers.append(("key", record.key[:1_024]))
    if len(raw) > MAX_BYTES:
        headers.append(("length", str(len(raw)).encode()))
        headers.append(("blake2b", hashlib.blake2b(raw, digest_size=16).hexdigest().encode()))
    key = f"{record.topic}/{record.partition}/{record.offset}".encode()
    return key, raw[:MAX_BYTES], headers


async def send(
    producer: AIOKafkaProducer, topic: str, record: Any, *, stage: str, reason: str, error: str
) -> None:
    """Put a record aside, and return when the broker has it."""
    key, value, headers = letter(record, stage=stage, reason=reason, error=error)
    await producer.send_and_wait(topic, value, key=key, headers=headers)
