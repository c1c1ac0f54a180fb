"""A finished session: the record on the wire, and the view that signals, rubrics and pages read.

`SessionRecord` keeps the raw bytes of the events and joins them, so that assembling never encodes a turn again.
Its `content` does not depend on where in the log the events lay; `content_hash` identifies it. `Session` is the
decoded view, with evidence joined on turn_id.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, Literal, TypeAlias, get_args

import msgspec

from monitor.events import (
    Correction,
    Escalation,
    Evidence,
    Feedback,
    Passage,
    RiskLevel,
    Role,
    SessionEnd,
    SessionEvent,
    TrafficClass,
    Turn,
)

CloseReason: TypeAlias = Literal["ended", "inactivity", "max_age", "max_turns", "max_bytes", "pinned", "truncated"]
CLOSE_REASONS = get_args(CloseReason)
# A session that we cut: its last event can't be evaluated, since what followed lies in the next segment.
CUT_REASONS = frozenset({"max_age", "max_turns", "max_bytes", "pinned", "truncated"})


class SessionContent(msgspec.Struct, kw_only=True, frozen=True):
    """What was said, as raw events: turns in final order, then the rest by time and arrival."""

    tenant: str
    session_id: str
    segment: str
    previous_segment: str | None
    close_reason: CloseReason
    events: list[msgspec.Raw]


class LogSpan(msgspec.Struct, kw_only=True, frozen=True):
    """Where a finished session lay in the log. `closed_at` is stream time in milliseconds."""

    partition: int
    first: int
    last: int
    closed_at: int


class EventIds(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """The ids of a raw event, without the rest of it."""

    type: str
    event_id: str
    turn_id: str | None = None


class SessionRecord(
    msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True, tag_field="type", tag="session"
):
    """One finished session segment, as `assemble` writes it. `content` is an encoded `SessionContent`.

    `omitted` names the events of a session that was too large to be sent whole (J5): a restart has to know their
    duplicates, and where their late evidence belongs.
    """

    content: msgspec.Raw
    span: LogSpan
    omitted: tuple[EventIds, ...] = ()


class Addendum(msgspec.Struct, kw_only=True, frozen=True, tag_field="type", tag="addendum"):
    """Late evidence, feedback or escalation for a segment that is already out (A3). `event` is a raw event."""

    tenant: str
    session_id: str
    segment: str
    event: msgspec.Raw
    partition: int
    offset: int


FinishedRecord: TypeAlias = SessionRecord | Addendum


class SessionTurn(msgspec.Struct, kw_only=True, frozen=True):
    """A turn in its place. `index` counts from 0 in final order; the producer's own is `turn.turn_index`.

    `evidence` is None without any evidence event, and empty when retrieval found nothing.
    """

    index: int
    turn_id: str
    role: Role
    text: str
    ts: float
    finish_reason: str | None
    evidence: tuple[Passage, ...] | None

    @property
    def cut_off(self) -> bool:
        """Whether the reply was cut by its model or its user, and can't be evaluated."""
        return self.finish_reason in {"length", "cancelled", "max_tokens", "content_filter", "error"}


class ExtractedCorrection(msgspec.Struct, kw_only=True, frozen=True):
    """A correction that a model found in a session: `text` are words of turn `turn`.

    `error` is the earlier turn with what is corrected, `claim` words of it, `content` what is right; None: unsaid.
    """

    turn: int
    text: str
    error: int | None = None
    claim: str | None = None
    content: str | None = None


class SessionAttributes(msgspec.Struct, kw_only=True, frozen=True):
    """Who answered and how: the first value that a turn states; risk is high if any turn says so."""

    assistant: str | None = None
    assistant_version: str | None = None
    model: str | None = None
    prompt_version: str | None = None
    channel: str | None = None
    risk_level: RiskLevel = "normal"
    traffic_class: TrafficClass = "live"


class Session(msgspec.Struct, kw_only=True, frozen=True):
    """The decoded view of a finished session segment.

    `extracted` is what a model found that looked for corrections, beside the producer's `corrections`; None if
    none has looked, which leaves it to wording.
    """

    tenant: str
    session_id: str
    segment: str
    previous_segment: str | None
    close_reason: CloseReason
    content_hash: str
    attributes: SessionAttributes
    turns: tuple[SessionTurn, ...]
    corrections: tuple[Correction, ...] = ()
    escalations: tuple[Escalation, ...] = ()
    feedback: tuple[Feedback, ...] = ()
    ended: bool = False
    event_ids: tuple[str, ...] = ()
    extracted: tuple[ExtractedCorrection, ...] | None = None

    @property
    def was_cut(self) -> bool:
        """Whether we closed it by size, turns or age, so that its end is not the end of the conversation."""
        return self.close_reason in CUT_REASONS

    def index_of(self, turn_id: str) -> int | None:
        """Give the index of a turn, or None when it lies in no turn of this segment."""
        return next((turn.index for turn in self.turns if turn.turn_id == turn_id), None)


_CONTENT = msgspec.json.Decoder(SessionContent)
_EVENT = msgspec.json.Decoder(SessionEvent)
_RECORD = msgspec.json.Decoder(FinishedRecord)


def decode_record(raw: bytes) -> FinishedRecord:
    """Decode a record of the sessions topic. Raises `msgspec.DecodeError` on anything else."""
    record: FinishedRecord = _RECORD.decode(raw)
    return record


def decode_content(content: bytes | msgspec.Raw) -> SessionContent:
    """Decode a record's content without decoding its events."""
    return _CONTENT.decode(content)


def content_hash(content: bytes | msgspec.Raw) -> str:
    """Hash the content of a session: 32 hex digits that identify what was said, wherever it lay in the log."""
    return hashlib.blake2b(bytes(content), digest_size=16).hexdigest()


def session_view(content: bytes | msgspec.Raw) -> Session:
    """Build the view of a session from its encoded content. Raises `msgspec.DecodeError` if it isn't one."""
    head = decode_content(content)
    events: list[SessionEvent] = [_EVENT.decode(raw) for raw in head.events]
    turns = [event for event in events if isinstance(event, Turn)]
    evidence = _evidence_by_turn(events)
    return Session(
        tenant=head.tenant,
        session_id=head.session_id,
        segment=head.segment,
        previous_segment=head.previous_segment,
        close_reason=head.close_reason,
        content_hash=content_hash(content),
        attributes=_attributes(turns),
        turns=tuple(_session_turn(index, turn, evidence) for index, turn in enumerate(turns)),
        corrections=tuple(event for event in events if isinstance(event, Correction)),
        escalations=tuple(event for event in events if isinstance(event, Escalation)),
        feedback=tuple(event for event in events if isinstance(event, Feedback)),
        ended=any(isinstance(event, SessionEnd) for event in events),
        event_ids=tuple(event.event_id for event in events),
    )


def _evidence_by_turn(events: Iterable[SessionEvent]) -> dict[str, tuple[Passage, ...]]:
    found: dict[str, tuple[Passage, ...]] = {}
    for event in events:
        if isinstance(event, Evidence):
            found[event.turn_id] = found.get(event.turn_id, ()) + event.passages
    return found


def _session_turn(index: int, turn: Turn, evidence: dict[str, tuple[Passage, ...]]) -> SessionTurn:
    return SessionTurn(
        index=index,
        turn_id=turn.turn_id,
        role=turn.role,
        text=turn.text,
        ts=turn.ts,
        finish_reason=turn.finish_reason,
        evidence=evidence.get(turn.turn_id),
    )


def _attributes(turns: list[Turn]) -> SessionAttributes:
    def first(name: str) -> Any:
        return next((value for turn in turns if (value := getattr(turn, name)) is not None), None)

    return SessionAttributes(
        assistant=first("assistant"),
        assistant_version=first("assistant_version"),
        model=first("model"),
        prompt_version=first("prompt_version"),
        channel=first("channel"),
        risk_level="high" if any(turn.risk_level == "high" for turn in turns) else "normal",
        traffic_class=turns[0].traffic_class if turns else "live",
    )
