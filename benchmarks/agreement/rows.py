"""Labelled sessions from a folder, as the judge process would meet them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from monitor.decision import Job, job_id
from monitor.events import EventDecoder
from monitor.ingest.sessions import session_events
from monitor.session import Session, SessionContent, content_hash, session_view


class Row(msgspec.Struct, kw_only=True, frozen=True):
    """A session, and what is known of it (`human`, as the file says it)."""

    session: Session
    content: msgspec.Raw
    human: Mapping[str, Any]

    def job(self, rubric: str) -> Job:
        """Make the job that has a rubric judge this session."""
        session = self.session
        return Job(
            job_id=job_id(session.tenant, session.session_id, session.segment, rubric),
            tenant=session.tenant,
            session_id=session.session_id,
            segment=session.segment,
            rubric=rubric,
            stratum="labelled",
            priority="routine",
            content_hash=content_hash(self.content),
            content=self.content,
        )


def read(path: Path) -> list[dict[str, Any]]:
    """Read a file of sessions, one JSON object a line."""
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def row(record: Mapping[str, Any], line: int = 0) -> Row:
    """Make a row of a session as the file has it. Raises `InvalidEvent` for one that isn't a session."""
    decoder = EventDecoder(max_bytes=10_000_000)
    found = [(event, json.dumps(event).encode()) for _, event in session_events(record, line)]
    raw = [decoder.decode(encoded)[1] for _, encoded in found]
    # The order of a finished session: turns first.
    turns = [kept for (event, _), kept in zip(found, raw, strict=True) if event["type"] == "turn"]
    others = [kept for (event, _), kept in zip(found, raw, strict=True) if event["type"] != "turn"]
    return _row([*turns, *others], found[0][0], record)


def _row(events: Sequence[bytes], first: Mapping[str, Any], record: Mapping[str, Any]) -> Row:
    content = msgspec.json.encode(
        SessionContent(
            tenant=first.get("tenant", "default"),
            session_id=first["session_id"],
            segment=first["event_id"],
            previous_segment=None,
            close_reason="ended",
            events=[msgspec.Raw(event) for event in events],
        )
    )
    return Row(session=session_view(content), content=msgspec.Raw(content), human=record.get("human", {}))
