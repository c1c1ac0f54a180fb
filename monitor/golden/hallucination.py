"""Golden set of the hallucination rubric: the status of claims, where they come from, which replies are sound."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from monitor.golden.point import Point
from monitor.golden.scale import Expected, Scale, turn_fault
from monitor.rubrics.answers import contains, plain
from monitor.rubrics.hallucination.answer import UNFOUNDED, Status
from monitor.session import Session

_WORD: Final = re.compile(r"\w+")
_HALF: Final = 0.5


class ClaimUnit(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A claim, in words of its turn. `origin_turn` is where a propagated one comes from."""

    turn: int
    claim: str
    status: Status
    origin_turn: int | None = None


class ExpectedClaims(Expected, kw_only=True, frozen=True, forbid_unknown_fields=True, tag="verdict"):
    """The claims that matter; a judge may cut its claims otherwise."""

    units: tuple[ClaimUnit, ...]


def _faults(expected: ExpectedClaims, session: Session) -> Iterator[tuple[str, str]]:
    for place, unit in enumerate(expected.units):
        field = f"units[{place}]"
        if fault := turn_fault(session, unit.turn, "assistant"):
            yield f"{field}.turn", fault
        elif not contains(session.turns[unit.turn].text, unit.claim):
            yield f"{field}.claim", f'is "{unit.claim}", but turn {unit.turn} doesn\'t have these words'
        origin = unit.origin_turn
        if (unit.status == "propagated_hallucination") != (origin is not None):
            yield f"{field}.origin_turn", f"is {origin}, but the status is {unit.status}"
        if origin is not None and not 0 <= origin < unit.turn:
            yield f"{field}.origin_turn", f"is {origin}, but an origin is before turn {unit.turn}"


def _passes(expected: ExpectedClaims) -> bool:
    return not any(unit.status in UNFOUNDED for unit in expected.units)


def _said_passes(data: Mapping[str, Any]) -> bool:
    return not any(_unfounded(claim) for claim in data["claims"])


def _points(expected: ExpectedClaims, data: Mapping[str, Any], _session: Session) -> Iterator[Point]:
    claims: Sequence[Mapping[str, Any]] = data["claims"]
    for unit in expected.units:
        place, said = f'turn {unit.turn}, "{unit.claim}"', _nearest(unit, claims)
        yield Point(field="claim", place=place, expected=True, said=said is not None)
        if said is None:
            continue
        status = said["status"] if said["source"] == "assistant" else "said_by_the_user"
        yield Point(field="status", place=place, expected=unit.status, said=status)
        if unit.origin_turn is not None:
            turn = said["propagated_from"]["turn_index"] if said["propagated_from"] else None
            yield Point(field="origin_turn", place=place, expected=unit.origin_turn, said=turn)
    # Claims can be cut in many ways; whether a reply has an unfounded one doesn't depend on the cuts.
    for turn in (turn["turn_index"] for turn in data["turns"]):
        wrong = any(unit.turn == turn and unit.status in UNFOUNDED for unit in expected.units)
        found = any(claim["turn_index"] == turn and _unfounded(claim) for claim in claims)
        yield Point(field="unfounded_reply", place=f"turn {turn}", expected=wrong, said=found)


def _nearest(unit: ClaimUnit, claims: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Find the claim of the turn that has most of the words of the expected one, at least half of them."""
    wanted = _words(unit.claim)
    here = [claim for claim in claims if claim["turn_index"] == unit.turn]
    shares = [len(wanted & _words(claim["claim_text"])) / len(wanted) for claim in here]
    best = max(shares, default=0.0)
    # Of two that have as many of them the shorter is more to the point.
    fitting = [claim for claim, share in zip(here, shares, strict=True) if share == best]
    return min(fitting, key=lambda claim: len(claim["claim_text"])) if best >= _HALF else None


def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(plain(text).casefold()))


def _unfounded(claim: Mapping[str, Any]) -> bool:
    return claim["source"] == "assistant" and claim["status"] in UNFOUNDED


HALLUCINATION: Final = Scale(
    expected=ExpectedClaims, faults=_faults, passes=_passes, said_passes=_said_passes, points=_points
)
