"""Labelled sessions from a folder, as the judge process would meet them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from monitor.decision import Job, job_id
from monitor.ingest.finished import finished_content
from monitor.session import Session, content_hash, session_view


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
    content = finished_content(record, line)
    return Row(session=session_view(content), content=msgspec.Raw(content), human=record.get("human", {}))
