"""Feeds an assembler event by event, and builds short events; all times in milliseconds."""

from __future__ import annotations

from monitor.assembly import Finished, Late, Orphan, Output, Position, SafePosition, SessionAssembler
from monitor.assembly.open_session import AssemblyPolicy
from monitor.events import (
    Correction,
    Escalation,
    Event,
    Evidence,
    Feedback,
    Passage,
    Role,
    SessionEnd,
    Tick,
    Turn,
    encode,
)
from monitor.session import CloseReason, Session, session_view
from tests.unit.assembly.log import POLICY

START = 1_000_000


class Feed:
    """An assembler, and the offset of the next record.

    A record's broker timestamp is its event time unless `at` says otherwise.
    """

    def __init__(
        self,
        policy: AssemblyPolicy = POLICY,
        *,
        since: SafePosition | None = None,
        truncated: bool = False,
    ) -> None:
        if since is None:
            self.assembler = SessionAssembler(policy, 3)
        else:
            self.assembler = SessionAssembler(policy, 3, since.stream_time, since.truncated_until)
        self.offset = 0 if since is None else since.offset
        self.assembler.resume_at(self.offset, truncated=truncated)

    def __call__(self, *events: Event, at: int | None = None) -> list[Output]:
        outputs: list[Output] = []
        for event in events:
            timestamp = round(event.ts * 1000) if at is None else at
            outputs += self.assembler.on_event(event, encode(event), Position(self.offset, timestamp))
            self.offset += 1
        return outputs


def turn(
    event_id: str,
    time: int,
    session_id: str = "s1",
    *,
    tenant: str = "acme",
    turn_id: str | None = None,
    role: Role = "user",
    text: str = "x",
    index: int | None = None,
) -> Turn:
    return Turn(
        event_id=event_id,
        session_id=session_id,
        tenant=tenant,
        ts=time / 1000,
        turn_id=turn_id or f"turn-{event_id}",
        role=role,
        text=text,
        turn_index=index,
    )


def evidence(event_id: str, time: int, turn_id: str, session_id: str = "s1", text: str = "x") -> Evidence:
    return Evidence(
        event_id=event_id,
        session_id=session_id,
        tenant="acme",
        ts=time / 1000,
        turn_id=turn_id,
        passages=(Passage(id=f"passage-{event_id}", text=text),),
    )


def feedback(event_id: str, time: int, turn_id: str | None = None, session_id: str = "s1") -> Feedback:
    return Feedback(
        event_id=event_id, session_id=session_id, tenant="acme", ts=time / 1000, rating="down", turn_id=turn_id
    )


def escalation(event_id: str, time: int, turn_id: str | None = None, session_id: str = "s1") -> Escalation:
    return Escalation(event_id=event_id, session_id=session_id, tenant="acme", ts=time / 1000, turn_id=turn_id)


def correction(event_id: str, time: int, turn_id: str, session_id: str = "s1") -> Correction:
    return Correction(event_id=event_id, session_id=session_id, tenant="acme", ts=time / 1000, turn_id=turn_id)


def end(event_id: str, time: int, session_id: str = "s1") -> SessionEnd:
    return SessionEnd(event_id=event_id, session_id=session_id, tenant="acme", ts=time / 1000)


def tick(time: int) -> Tick:
    return Tick(ts=time / 1000)


def sessions(outputs: list[Output]) -> list[Session]:
    """Give the finished sessions among outputs."""
    return [session_view(output.record.content) for output in outputs if isinstance(output, Finished)]


def turns(session: Session) -> list[str]:
    return [each.turn_id.removeprefix("turn-") for each in session.turns]


def closings(outputs: list[Output]) -> list[tuple[list[str], CloseReason]]:
    """Give the turns and the reason of every finished session."""
    return [(turns(session), session.close_reason) for session in sessions(outputs)]


def addenda(outputs: list[Output]) -> list[tuple[str, int]]:
    """Give the segment and the event's offset of every addendum."""
    found = [output.addendum for output in outputs if isinstance(output, Late)]
    return [(addendum.segment, addendum.offset) for addendum in found]


def orphans(outputs: list[Output]) -> list[tuple[str, int]]:
    return [(output.kind, output.offset) for output in outputs if isinstance(output, Orphan)]
