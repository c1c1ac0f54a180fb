"""Records as a consumer gives them."""

from __future__ import annotations

from typing import Any

import msgspec

from consumers.dead_letters import letter


class Record(msgspec.Struct, kw_only=True):
    topic: str = "backslide.dead-letters"
    partition: int = 0
    offset: int = 0
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, Any], ...] = ()
    timestamp: int = 1_700_000_000_000


def letter_record(
    value: bytes,
    *,
    stage: str = "assemble",
    reason: str = "undecodable",
    topic: str = "chat.events",
    offset: int = 7,
    key: bytes | None = None,
    session: tuple[str, str] | None = None,
    timestamp: int = 1_700_000_000_000,
) -> Record:
    """Give the dead letter of a record of partition 3, as its reader sees it."""
    record = Record(topic=topic, partition=3, offset=offset, key=key, value=value)
    own, kept, headers = letter(record, stage=stage, reason=reason, error="no JSON", session=session)
    return Record(key=own, value=kept, headers=tuple(headers), timestamp=timestamp)
