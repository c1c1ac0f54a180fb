"""What a rubric's golden set grades: the shape of an expectation, and how a verdict is held against it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from monitor.golden.point import Point
from monitor.judgement import SkipReason
from monitor.session import Session


class NotJudged(
    msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="skipped"
):
    """Expected is that the rubric doesn't concern the conversation."""

    reason: SkipReason


class Expected(
    msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="verdict"
):
    """Expected is a verdict; each rubric adds its units. `passes`: nothing in it fails."""

    passes: bool = msgspec.field(name="pass")


class Scale(msgspec.Struct, kw_only=True, frozen=True):
    """How one rubric is compared.

    `expected` is its type of `Expected`. `faults` tells what of an expectation doesn't fit its session, as field
    and sentence; `passes` whether its units pass. `said_passes` and `points` read the data of a verdict.
    """

    expected: type[Expected]
    faults: Callable[[Any, Session], Iterable[tuple[str, str]]]
    passes: Callable[[Any], bool]
    said_passes: Callable[[Mapping[str, Any]], bool]
    points: Callable[[Any, Mapping[str, Any], Session], Iterable[Point]]


def turn_fault(session: Session, index: int, role: str) -> str | None:
    """Say what is wrong with a turn that an expectation names, or None."""
    if not 0 <= index < len(session.turns):
        return f"is {index}, but the session has turns 0 to {len(session.turns) - 1}"
    if session.turns[index].role != role:
        return f"is {index}, but that turn is the {session.turns[index].role}'s, not the {role}'s"
    return None
