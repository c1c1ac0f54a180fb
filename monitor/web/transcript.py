"""A session as a page shows it: turns with what the findings say of them. Pure.

A finding is one event of a verdict (`Verdict.data["events"]`, see the rubric's module). A rubric whose data has
another shape has no findings here; its data is shown as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from monitor.judgement import Verdict
from monitor.session import Session, SessionTurn
from monitor.store import StoredJudgement, StoredSession
from monitor.web.text import Piece, pieces

# The field that names a turn, and what the turn is to the finding; the worst last, as a turn takes its color.
ROLES: Final = {
    "first_right_use_turn_index": "first right use",
    "correction_turn_index": "correction",
    "over_correction_turn_index": "over-correction",
    "error_turn_index": "error",
    "reversion_turn_index": "reversion",
}


class Score(msgspec.Struct, kw_only=True, frozen=True):
    """A criterion's score, 1 to 5."""

    name: str
    value: float


class Finding(msgspec.Struct, kw_only=True, frozen=True):
    """One judged event. `turns` maps a role to a turn; `quotes` holds (turn or None, words, what they show)."""

    id: str
    mode: str
    kind: str
    claim: str
    content: str
    rationale: str
    detail: str
    scores: tuple[Score, ...]
    score: float | None
    turns: dict[str, int]
    quotes: tuple[tuple[int | None, str, str], ...]
    unobserved: bool

    @property
    def failed(self) -> bool:
        """Whether the event counts as a failure of some measure."""
        return self.mode not in {"", "none"} or bool(self.detail)


class Mark(msgspec.Struct, kw_only=True, frozen=True):
    """What a turn is to a finding."""

    finding: str
    role: str


class TurnView(msgspec.Struct, kw_only=True, frozen=True):
    """A turn with its marks; `tone` is the role of its worst mark."""

    turn: SessionTurn
    marks: tuple[Mark, ...]
    pieces: tuple[Piece, ...]

    @property
    def tone(self) -> str:
        """Give the role that colors the turn, or nothing."""
        roles = [mark.role for mark in self.marks]
        return max(roles, key=list(ROLES.values()).index, default="")


def findings(judgement: StoredJudgement) -> tuple[Finding, ...]:
    """Give the events of a verdict; nothing for other results and other rubrics."""
    if judgement.judgement is None or not isinstance(judgement.judgement.result, Verdict):
        return ()
    events = judgement.judgement.result.data.get("events")
    if not isinstance(events, list):
        return ()
    return tuple(_finding(event) for event in events if isinstance(event, dict))


def shown_judgements(session: StoredSession) -> tuple[StoredJudgement, ...]:
    """Give the judgements whose findings mark the transcript: those that count, else the newest."""
    counted = tuple(item for item in session.judgements if item.standing == "counted")
    return counted or session.judgements[-1:]


def turns(session: Session, found: Sequence[Finding]) -> tuple[TurnView, ...]:
    """Give the turns of a session, marked with findings."""
    return tuple(
        TurnView(turn=turn, marks=_marks(turn.index, found), pieces=pieces(turn.text, _quotes(turn, found)))
        for turn in session.turns
    )


def _finding(event: dict[str, Any]) -> Finding:
    scores = event.get("scores")
    score = event.get("correction_response_score")
    return Finding(
        id=_text(event, "correction_id"),
        mode=_text(event, "failure_mode"),
        kind=_text(event, "correction_type").replace("_", " "),
        claim=_text(event, "corrected_claim"),
        content=_text(event, "correction_content"),
        rationale=_text(event, "rationale"),
        detail=_text(event, "over_correction_detail"),
        scores=tuple(
            Score(name=str(name).replace("_", " "), value=value)
            for name, value in (scores.items() if isinstance(scores, dict) else ())
            if isinstance(value, int | float)
        ),
        score=score if isinstance(score, int | float) else None,
        turns={role: event[field] for field, role in ROLES.items() if isinstance(event.get(field), int)},
        quotes=tuple(_event_quotes(event)),
        unobserved=event.get("persistence_unobserved") is True,
    )


def _event_quotes(event: dict[str, Any]) -> Iterable[tuple[int | None, str, str]]:
    if acknowledged := _text(event, "acknowledgment_quote"):
        yield None, acknowledged, "acknowledgment"
    evidence = event.get("incorporation_evidence")
    for item in evidence if isinstance(evidence, list) else ():
        if isinstance(item, dict) and isinstance(item.get("turn_index"), int) and _text(item, "quote"):
            yield item["turn_index"], _text(item, "quote"), "incorporation"


def _marks(index: int, found: Sequence[Finding]) -> tuple[Mark, ...]:
    return tuple(
        Mark(finding=finding.id, role=role)
        for finding in found
        for role, turn in finding.turns.items()
        if turn == index
    )


def _quotes(turn: SessionTurn, found: Sequence[Finding]) -> dict[str, str]:
    """Collect the quotes that name this turn; an acknowledgment names none but follows its correction."""
    quotes: dict[str, str] = {}
    for finding in found:
        for place, words, shows in finding.quotes:
            after = turn.role == "assistant" and turn.index > finding.turns.get("correction", -1)
            if place == turn.index or (place is None and after):
                quotes.setdefault(words, f"{finding.id} {shows}")
    return quotes


def _text(event: dict[str, Any], name: str) -> str:
    value = event.get(name)
    return value if isinstance(value, str) else ""
