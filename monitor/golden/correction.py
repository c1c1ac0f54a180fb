"""Golden set of the correction rubric, in either mode: what became of each correction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from monitor.golden.point import Point, paired
from monitor.golden.scale import Expected, Scale, turn_fault
from monitor.judgement import SkipReason
from monitor.rubrics.answers import contains
from monitor.rubrics.correction.answer import CRITERIA, FailureMode, Score
from monitor.rubrics.correction.events import events
from monitor.session import Session

_KEPT: Final = 4


class Event(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A correction in the user turn `turn`: graded, or `skipped` and why.

    In whole mode the judge finds the words itself: `quote` says which they are, and `superseded_by` the user turn
    that corrects the same again.
    """

    turn: int
    failure_mode: FailureMode | None = None
    acknowledgment: Score | None = None
    incorporation_accuracy: Score | None = None
    persistence: Score | None = None
    no_over_correction: Score | None = None
    reversion_turn: int | None = None
    skipped: SkipReason | None = None
    quote: str | None = None
    superseded_by: int | None = None


class ExpectedCorrections(Expected, kw_only=True, frozen=True, forbid_unknown_fields=True, tag="verdict"):
    """The corrections, in the order of their turns."""

    units: tuple[Event, ...]


def _faults(expected: ExpectedCorrections, session: Session) -> Iterator[tuple[str, str]]:
    for place, unit in enumerate(expected.units):
        field = f"units[{place}]"
        if fault := turn_fault(session, unit.turn, "user"):
            yield f"{field}.turn", fault
        elif unit.quote is not None and not contains(session.turns[unit.turn].text, unit.quote):
            yield f"{field}.quote", f'is "{unit.quote}", but turn {unit.turn} doesn\'t have these words'
        end = unit.superseded_by
        if end is not None and (fault := turn_fault(session, end, "user")):
            yield f"{field}.superseded_by", fault
        for name in ("failure_mode", *CRITERIA):
            value = getattr(unit, name)
            if (value is None) != (unit.skipped is not None):
                yield f"{field}.{name}", f"is {value}, but skipped is {unit.skipped}"
        back = unit.reversion_turn
        if (unit.failure_mode == "reverted") != (back is not None):
            yield f"{field}.reversion_turn", f"is {back}, but failure_mode is {unit.failure_mode}"
        if back is not None and (fault := turn_fault(session, back, "assistant")):
            yield f"{field}.reversion_turn", fault


def _passes(expected: ExpectedCorrections) -> bool:
    return all(
        unit.failure_mode == "none" and (unit.no_over_correction or 0) >= _KEPT
        for unit in expected.units
        if unit.skipped is None
    )


def _said_passes(data: Mapping[str, Any]) -> bool:
    return all(event["failure_mode"] == "none" and not event["over_corrected"] for event in data["events"])


def _points(expected: ExpectedCorrections, data: Mapping[str, Any], session: Session) -> Iterator[Point]:
    for unit, said in paired(expected.units, _said(data, session), lambda unit: unit.turn, lambda said: said[0]):
        place = f"turn {unit.turn if unit else said[0]}"
        yield Point(field="correction", place=place, expected=unit is not None, said=said is not None)
        if unit is not None and said is not None:
            yield from _event_points(unit, said[1], place)


def _event_points(unit: Event, said: Mapping[str, Any], place: str) -> Iterator[Point]:
    reason = said.get("reason")
    yield Point(field="skipped", place=place, expected=unit.skipped, said=reason)
    if unit.skipped is not None or reason is not None:
        return
    yield Point(field="failure_mode", place=place, expected=unit.failure_mode, said=said["failure_mode"])
    back = said["reversion_turn_index"]
    yield Point(field="reversion_turn", place=place, expected=unit.reversion_turn, said=back)
    if unit.superseded_by is not None:
        end = said["superseded_by_turn_index"]
        yield Point(field="superseded_by", place=place, expected=unit.superseded_by, said=end)
    for name in CRITERIA:
        score = said["scores"][name]
        yield Point(field=name, place=place, expected=getattr(unit, name), said=score, graded=True)


def _said(data: Mapping[str, Any], session: Session) -> list[tuple[int, Mapping[str, Any]]]:
    """Give what was judged or skipped, each with the turn of its correction, in the order of their ids."""
    turns = {event.event_id: event.turn for event in events(session)}
    found = [(event["correction_turn_index"], event) for event in data["events"]]
    # In event mode the id of a skipped correction says which event it was; in whole mode its turn stands with it.
    found += [
        (item.get("correction_turn_index", turns.get(item["correction_id"], -1)), item) for item in data["skipped"]
    ]
    return sorted(found, key=lambda item: int(item[1]["correction_id"][1:]))


CORRECTION: Final = Scale(
    expected=ExpectedCorrections, faults=_faults, passes=_passes, said_passes=_said_passes, points=_points
)
