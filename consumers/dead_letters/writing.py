"""What a dead letter looks like, and what marks one as replayed or dropped.

Both are keyed by the position of the record that was put aside: reading a record again after a crash gives the
same letter once more and not another one, and on a compacted topic a mark takes the place of its letter.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final, Literal, Protocol, TypeAlias

from aiokafka import AIOKafkaProducer

# With its headers it fits into the smallest topics.max_message_bytes.
MAX_BYTES: Final = 49_152
MAX_KEY_BYTES: Final = 1_024

Headers: TypeAlias = list[tuple[str, bytes]]
MarkKind: TypeAlias = Literal["replayed", "dropped"]


class Placed(Protocol):
    """Any consumed record: where it lay, and its bytes."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


def letter(
    record: Placed, *, stage: str, reason: str, error: str, session: tuple[str, str] | None = None
) -> tuple[bytes, bytes, Headers]:
    """Make key, value and headers of a dead letter. `session` is tenant and session_id, where they are known.

    The value is the record's, cut to 48 kB; then `length` and `blake2b` of the whole are among the headers.
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
        headers.append(("key", record.key[:MAX_KEY_BYTES]))
    if session is not None:
        names = zip(("tenant", "session_id"), session, strict=True)
        headers += [(name, text.encode("utf-8", "replace")[:MAX_KEY_BYTES]) for name, text in names]
    if len(raw) > MAX_BYTES:
        headers.append(("length", str(len(raw)).encode()))
        headers.append(("blake2b", digest(raw).encode()))
    key = f"{record.topic}/{record.partition}/{record.offset}".encode()
    return key, raw[:MAX_BYTES], headers


def mark(letter_id: str, value_digest: str, kind: MarkKind, to: str) -> tuple[bytes, bytes, Headers]:
    """Make key, value and headers of the record that marks a letter; `to` is where a replay put its record.

    It names the letter's value too: should the topic that the letter came from be made anew, the same position
    holds another record, and its letter is open.
    """
    headers: Headers = [("mark", kind.encode()), ("letter", value_digest.encode()), ("to", to.encode())]
    return letter_id.encode(), b"", headers


def digest(raw: bytes) -> str:
    """Hash bytes: 32 hex digits."""
    return hashlib.blake2b(raw, digest_size=16).hexdigest()


async def send(
    producer: AIOKafkaProducer,
    topic: str,
    record: Any,
    *,
    stage: str,
    reason: str,
    error: str,
    session: tuple[str, str] | None = None,
) -> None:
    """Put a record aside, and return when the broker has it."""
    key, value, headers = letter(record, stage=stage, reason=reason, error=error, session=session)
    await producer.send_and_wait(topic, value, key=key, headers=headers)
