"""The report of the hallucination rubric: every claim, and how those that nothing supports spread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from monitor.rubrics.hallucination.answer import UNFOUNDED
from monitor.session import Session
from monitor.web.report.base import (
    Part,
    Place,
    Quote,
    Report,
    Review,
    Tone,
    counted,
    listed,
    passages,
    words,
    worst,
)
from monitor.web.report.groundedness import chart
from monitor.web.report.propagation import Drawing, Edge, Node, draw

_STATUSES: Final[dict[str, tuple[str, Tone]]] = {
    "contradicts_evidence": ("contradicts its evidence", "bad"),
    "propagated_hallucination": ("came back unsupported", "bad"),
    "unsupported": ("unsupported", "bad"),
    "grounded": ("grounded", "good"),
}
_GAPS: Final = {
    "retrieval_empty": "retrieval found nothing",
    "retrieval_insufficient": "what was retrieved doesn't say it",
    "evidence_ignored": "the evidence was there and was ignored",
}
LINKS: Final = {"repeat": "repeats", "mutated": "changes", "built_on": "builds on"}


class Origin(msgspec.Struct, kw_only=True, frozen=True):
    """Where a claim came from, in the data."""

    turn_index: int
    claim_id: str | None = None


class Claim(msgspec.Struct, kw_only=True, frozen=True):
    """A claim, in the data."""

    turn_index: int
    claim_id: str = ""
    claim_text: str = ""
    source: str = "assistant"
    status: str = ""
    passage_id: str | None = None
    passage_label: str | None = None
    source_quote: str | None = None
    stale: bool = False
    evidence_gap: str | None = None
    gap: str | None = None
    propagated_from: Origin | None = None
    link: str | None = None
    auditor_notes: str | None = None


class Turn(msgspec.Struct, kw_only=True, frozen=True):
    """An audited turn, in the data."""

    turn_index: int
    claims: int = 0
    groundedness: float | None = None
    band: str = ""


class Whole(msgspec.Struct, kw_only=True, frozen=True):
    """The session's aggregates, in the data."""

    audited_turns: int = 0
    turns_without_evidence: int = 0
    turns_without_claims: int = 0
    claims: int = 0
    user_claims: int = 0
    stale_claims: int = 0
    groundedness: float | None = None
    failing: bool = False
    critical: bool = False
    origins: dict[str, int] = {}


class Data(msgspec.Struct, kw_only=True, frozen=True):
    """The verdict's data."""

    claims: tuple[Claim, ...] = ()
    turns: tuple[Turn, ...] = ()
    session: Whole = Whole()
    review: Review = Review()
    rationales: tuple[str, ...] = ()


class Finding(msgspec.Struct, kw_only=True, frozen=True):
    """A claim for its place beside its turn; `origin` is the finding that it came from, if that is one."""

    anchor: str
    label: str
    claim: Claim
    status: str
    tone: Tone
    gap: str
    passage: Place | None
    link: str
    origin: str | None


def report(raw: dict[str, Any], anchor: str, session: Session | None) -> Report:
    """Make the report. Raises `msgspec.ValidationError` on data of another form."""
    data = msgspec.convert(raw, Data)
    anchors = {claim.claim_id: f"{anchor}-{place}" for place, claim in enumerate(data.claims)}
    found = tuple(
        _finding(claim, f"{anchor}-{place}", anchors, session) for place, claim in enumerate(data.claims)
    )
    unfounded = tuple(finding for finding in found if _is_unfounded(finding.claim))
    parts = tuple(_part(finding) for finding in unfounded)
    return Report(
        anchor=anchor,
        headline=_headline(data, unfounded),
        tone="bad" if data.session.failing or data.session.critical else worst(part.tone for part in parts),
        template="hallucination.html",
        detail={
            "findings": found,
            "unfounded": unfounded,
            "whole": data.session,
            "turns": data.turns,
            "chart": chart((turn.turn_index, turn.groundedness, turn.claims, turn.band) for turn in data.turns),
            "drawing": _drawing(found),
            "rationales": data.rationales,
        },
        where=_where(unfounded),
        parts=parts,
        beside=tuple((finding.claim.turn_index, finding) for finding in found),
        quotes=tuple(quote for finding in found for quote in _quotes(finding)),
        doubts=tuple(_doubts(data)),
        review=data.review.reasons,
        awaiting_review=data.review.awaiting_review,
    )


def _is_unfounded(claim: Claim) -> bool:
    return claim.status in UNFOUNDED and claim.source != "user"


def _finding(claim: Claim, anchor: str, anchors: dict[str, str], session: Session | None) -> Finding:
    status, tone = _STATUSES.get(claim.status, (words(claim.status), "plain"))
    if claim.source == "user":
        status, tone = "said by the user of their own case", "plain"
    origin = claim.propagated_from.claim_id if claim.propagated_from else None
    return Finding(
        anchor=anchor,
        label=claim.claim_id,
        claim=claim,
        status=status,
        tone="warn" if claim.stale and tone == "good" else tone,
        gap=_GAPS.get(claim.gap or "", words(claim.gap or "")),
        passage=_passage(claim, session),
        link=LINKS.get(claim.link or "", words(claim.link or "")),
        origin=anchors.get(origin) if origin else None,
    )


def _passage(claim: Claim, session: Session | None) -> Place | None:
    """Read a label (`E<turn>.<place>`, counted from 1); older data names the passage by its id only."""
    turn, _, place = (claim.passage_label or "").removeprefix("E").partition(".")
    if turn.isdecimal() and place.isdecimal():
        return Place(turn=int(turn), passage=int(place) - 1)
    return next(iter(passages(session, claim.turn_index, claim.passage_id)), None)


def _part(finding: Finding) -> Part:
    return Part(
        anchor=finding.anchor,
        label=finding.label,
        turn=finding.claim.turn_index,
        says=finding.status,
        tone=finding.tone,
    )


def _where(unfounded: Sequence[Finding]) -> tuple[Part, ...]:
    """Give each turn with an unfounded claim once, with how many it has of which kind."""
    turns: dict[int, list[Finding]] = {}
    for finding in unfounded:
        turns.setdefault(finding.claim.turn_index, []).append(finding)
    return tuple(
        Part(anchor=mine[0].anchor, label=mine[0].label, turn=turn, says=_kinds(mine), tone="bad")
        for turn, mine in sorted(turns.items())
    )


def _kinds(findings: Sequence[Finding]) -> str:
    counts = Counter(finding.status for finding in findings)
    return listed([f"{counts[status]} {status}" for status, _ in _STATUSES.values() if counts[status]])


def _quotes(finding: Finding) -> Iterator[Quote]:
    claim = finding.claim
    told: dict[str, Any] = {"anchor": finding.anchor, "label": finding.label, "tone": finding.tone}
    yield Quote(**told, words=claim.claim_text, shows=finding.status, places=(Place(turn=claim.turn_index),))
    if claim.source_quote and finding.passage:
        shows = "what contradicts it" if claim.status == "contradicts_evidence" else "what it rests on"
        yield Quote(**told, words=claim.source_quote, shows=shows, places=(finding.passage,))


def _drawing(found: Sequence[Finding]) -> Drawing | None:
    """Draw what came back: an origin that was never audited stands for its turn."""
    known = {finding.label: finding for finding in found}
    nodes: dict[str, Node] = {}
    edges: list[Edge] = []
    for finding in found:
        if (origin := finding.claim.propagated_from) is None:
            continue
        key = origin.claim_id or f"turn {origin.turn_index}"
        nodes.setdefault(key, _origin_node(key, origin, known.get(origin.claim_id or "")))
        nodes[finding.label] = _node(finding.label, finding)
        edges.append(Edge(start=key, end=finding.label, kind=_kind(finding.claim.link), says=finding.link))
    return draw(tuple(nodes.values()), edges) if edges else None


def _kind(link: str | None) -> str:
    return link if link in LINKS else ""


def _origin_node(key: str, origin: Origin, finding: Finding | None) -> Node:
    if finding is not None:
        return _node(key, finding)
    text = "this turn was not audited" if origin.claim_id is None else "this claim isn't in the verdict"
    return Node(key=key, turn=origin.turn_index, text=text, says="origin", tone="plain", anchor=None)


def _node(key: str, finding: Finding) -> Node:
    origin = finding.claim.propagated_from
    says = f"{finding.link} {origin.claim_id or f'turn {origin.turn_index}'}" if origin else finding.status
    return Node(
        key=key,
        turn=finding.claim.turn_index,
        text=finding.claim.claim_text,
        says=says,
        tone=finding.tone,
        anchor=finding.anchor,
    )


def _headline(data: Data, unfounded: Sequence[Finding]) -> str:
    whole = data.session
    if whole.groundedness is None:
        return "No factual claim in this session."
    if not unfounded:
        return f"All {counted(whole.claims, 'claim')} of the assistant rest on evidence."
    failing = "; the session fails" if whole.failing else ""
    return f"Of {counted(whole.claims, 'claim')}, {_kinds(unfounded)}{failing}."


def _doubts(data: Data) -> Iterator[str]:
    whole = data.session
    if whole.turns_without_evidence:
        blind = counted(whole.turns_without_evidence, "reply", "replies")
        yield f"{blind} without an evidence entry: not audited, and not passed"
    if whole.stale_claims:
        yield f"{counted(whole.stale_claims, 'claim')} supported by an older turn's evidence only"
    if whole.user_claims:
        yield f"{counted(whole.user_claims, 'claim')} of the user's own case left out of the figures"
