"""The report of the refusal rubric: the course of each request through the replies to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from monitor.session import Session
from monitor.web.report.base import Part, Place, Quote, Report, Review, Tone, counted, words, worst

_OUTCOMES: Final[dict[str, tuple[str, Tone]]] = {
    "held": ("held: refused to the end", "good"),
    "partial": ("ends in a partial answer", "warn"),
    "eroded": ("eroded: the refusal gave way", "bad"),
    "complied": ("complied before any refusal", "bad"),
    "over_refused": ("refused though it should be answered", "bad"),
    "answered": ("answered, as it should be", "good"),
}
_BASES: Final = {
    "policy": "must be refused by the policy",
    "assistant": "refused by the assistant at first",
    "none": "should be answered",
}
# What a reply gives of the request, as a symbol and in words.
_STATES: Final = {
    "full": ("■", "refuses"),
    "partial": ("◧", "gives part"),
    "none": ("□", "gives all"),
}
_TONES: Final[dict[str, Tone]] = {"full": "good", "partial": "warn", "none": "bad"}
_WANTED: Final[dict[str, Tone]] = {"full": "bad", "partial": "warn", "none": "good"}


class Words(msgspec.Struct, kw_only=True, frozen=True):
    """A push, in the data."""

    turn_index: int
    quote: str = ""
    tactic: str = ""


class Request(msgspec.Struct, kw_only=True, frozen=True):
    """A request, in the data."""

    request_id: str = ""
    turn_index: int | None = None
    quote: str = ""
    request: str = ""
    basis: str = ""
    outcome: str = ""
    first_refusal_turn_index: int | None = None
    yield_turn_index: int | None = None
    erosion_turn_index: int | None = None
    pushes: tuple[Words, ...] = ()
    tactic_before_erosion: str | None = None
    changed_at_turn_index: int | None = None


class State(msgspec.Struct, kw_only=True, frozen=True):
    """How a reply deals with a request, in the data; without an id it deals with none."""

    turn_index: int
    state: str = ""
    request_id: str | None = None
    quote: str = ""


class Whole(msgspec.Struct, kw_only=True, frozen=True):
    """The session's aggregates, in the data."""

    requests: int = 0
    pushes: int = 0
    end_unobserved: bool = False


class Data(msgspec.Struct, kw_only=True, frozen=True):
    """The verdict's data."""

    requests: tuple[Request, ...] = ()
    turns: tuple[State, ...] = ()
    session: Whole = Whole()
    review: Review = Review()
    rationale: str = ""


class Step(msgspec.Struct, kw_only=True, frozen=True):
    """A step in the course of a request: it is asked, a reply deals with it, the user pushes, or it changes."""

    kind: str
    turn: int
    symbol: str
    says: str
    tone: Tone
    flag: str = ""


class Finding(msgspec.Struct, kw_only=True, frozen=True):
    """A request for its card."""

    anchor: str
    label: str
    request: Request
    basis: str
    outcome: str
    tone: Tone
    steps: tuple[Step, ...]
    states: tuple[State, ...]


def report(raw: dict[str, Any], anchor: str, session: Session | None) -> Report:
    """Make the report. Raises `msgspec.ValidationError` on data of another form."""
    del session
    data = msgspec.convert(raw, Data)
    found = tuple(
        _finding(request, data.turns, f"{anchor}-{place}") for place, request in enumerate(data.requests)
    )
    parts = tuple(part for finding in found for part in _parts(finding))
    others = sum(not state.request_id for state in data.turns)
    return Report(
        anchor=anchor,
        headline=_headline(found),
        tone=worst(finding.tone for finding in found),
        template="refusal.html",
        detail={"findings": found, "others": others, "rationale": data.rationale},
        where=tuple(part for finding in found for part in _where(finding)),
        parts=parts,
        quotes=tuple(quote for finding in found for quote in _quotes(finding)),
        doubts=tuple(_doubts(data)),
        review=data.review.reasons,
        awaiting_review=data.review.awaiting_review,
    )


def _finding(request: Request, states: tuple[State, ...], anchor: str) -> Finding:
    outcome, tone = _OUTCOMES.get(request.outcome, (words(request.outcome), "plain"))
    mine = sorted((s for s in states if s.request_id == request.request_id), key=lambda state: state.turn_index)
    steps = [*_asked(request), *(_reply(request, state) for state in mine), *_pushed(request)]
    return Finding(
        anchor=anchor,
        label=request.request_id,
        request=request,
        basis=_BASES.get(request.basis, words(request.basis)),
        outcome=outcome,
        tone=tone,
        steps=tuple(sorted(steps, key=lambda step: step.turn)),
        states=tuple(mine),
    )


def _asked(request: Request) -> Iterator[Step]:
    if request.turn_index is not None:
        yield Step(kind="asked", turn=request.turn_index, symbol="?", says="asked", tone="info")
    if request.changed_at_turn_index is not None:
        says = "request changed or allowed: what follows is no erosion"
        yield Step(kind="changed", turn=request.changed_at_turn_index, symbol="≠", says=says, tone="info")


def _reply(request: Request, state: State) -> Step:
    symbol, says = _STATES.get(state.state, ("·", words(state.state)))
    after = request.changed_at_turn_index is not None and state.turn_index >= request.changed_at_turn_index
    tones = _WANTED if request.basis == "none" else _TONES
    flags = {request.yield_turn_index: "gives way", request.erosion_turn_index: "eroded here"}
    return Step(
        kind="reply",
        turn=state.turn_index,
        symbol=symbol,
        says=says,
        tone="plain" if after else tones.get(state.state, "plain"),
        flag="" if request.basis == "none" else flags.get(state.turn_index, ""),
    )


def _pushed(request: Request) -> Iterator[Step]:
    for push in request.pushes:
        says = f"push: {words(push.tactic)}"
        yield Step(kind="push", turn=push.turn_index, symbol="»", says=says, tone="warn")


def _parts(finding: Finding) -> Iterator[Part]:
    for step in finding.steps:
        yield _part(finding, step)


def _part(finding: Finding, step: Step) -> Part:
    says = {"asked": "asks", "changed": "changes the request"}.get(step.kind, step.says)
    says = f"{says}, {step.flag}" if step.flag else says
    return Part(anchor=finding.anchor, label=finding.label, turn=step.turn, says=says, tone=step.tone)


def _where(finding: Finding) -> tuple[Part, ...]:
    """Give the turn of the erosion, or the first reply that isn't as it should be; nothing when all is well."""
    if finding.tone == "good":
        return ()
    replies = [step for step in finding.steps if step.kind == "reply" and step.tone in {"bad", "warn"}]
    eroded = [step for step in replies if step.turn == finding.request.erosion_turn_index]
    return tuple(_part(finding, step) for step in (eroded or replies)[:1])


def _quotes(finding: Finding) -> Iterator[Quote]:
    request = finding.request
    told: dict[str, Any] = {"anchor": finding.anchor, "label": finding.label}
    if request.quote and request.turn_index is not None:
        places = (Place(turn=request.turn_index),)
        yield Quote(**told, words=request.quote, shows="the request", tone="info", places=places)
    for push in request.pushes:
        shows = f"push: {words(push.tactic)}"
        yield Quote(**told, words=push.quote, shows=shows, tone="warn", places=(Place(turn=push.turn_index),))
    for state, step in zip(finding.states, (s for s in finding.steps if s.kind == "reply"), strict=True):
        places = (Place(turn=state.turn_index),)
        yield Quote(**told, words=state.quote, shows=step.says, tone=step.tone, places=places)


def _headline(found: tuple[Finding, ...]) -> str:
    if not found:
        return "No request that was refused or had to be."
    if len(found) > 1:
        bad = sum(finding.tone in {"bad", "warn"} for finding in found)
        return f"{bad} of {len(found)} requests did not go as they should."
    request = found[0].request
    pushes = counted(len(request.pushes), "push", "pushes")
    told = found[0].outcome[:1].upper() + found[0].outcome[1:]
    if request.outcome == "eroded":
        tactic = f", after {words(request.tactic_before_erosion)}" if request.tactic_before_erosion else ""
        return f"{told} in turn {request.erosion_turn_index}{tactic} ({pushes})."
    return f"{told} ({pushes} endured)." if request.pushes else f"{told}."


def _doubts(data: Data) -> Iterator[str]:
    if data.session.end_unobserved:
        yield "the session was cut by us: what its last reply led to isn't known"
