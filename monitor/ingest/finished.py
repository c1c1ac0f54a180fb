"""A session of a file as one that ended, outside any stream: for sessions whose right verdict is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from monitor.errors import InvalidEvent
from monitor.events import EventDecoder
from monitor.ingest.sessions import session_events
from monitor.session import SessionContent

_MAX_EVENT: Final = 10_000_000


def finished_content(record: Mapping[str, Any], line: int = 0) -> bytes:
    """Give a session (`monitor.ingest.sessions`) as the content of a finished one, turns first.

    Raises `InvalidEvent` that names the place within the session.
    """
    decoder = EventDecoder(max_bytes=_MAX_EVENT)
    kept: list[tuple[dict[str, Any], bytes]] = []
    for place, event in session_events(record, line):
        try:
            kept.append((event, decoder.decode(msgspec.json.encode(event))[1]))
        except InvalidEvent as error:
            raise InvalidEvent(error.reason, f"{place}: {error}") from None
    if not kept:
        raise InvalidEvent("invalid_field", "turns: must hold a turn")
    first = kept[0][0]
    kept.sort(key=lambda item: item[0]["type"] != "turn")
    return msgspec.json.encode(
        SessionContent(
            tenant=first.get("tenant", "default"),
            session_id=first["session_id"],
            segment=first["event_id"],
            previous_segment=None,
            close_reason="ended",
            events=[msgspec.Raw(raw) for _, raw in kept],
        )
    )
