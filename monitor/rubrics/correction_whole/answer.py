"""The judge's answer in whole mode: a list of corrections, each checked as in event mode against its part (J2)."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from monitor.errors import InvalidVerdict
from monitor.judgement import Skipped
from monitor.rubrics.answers import contains, decode, object_schema, plain, refuse
from monitor.rubrics.correction import answer as single
from monitor.rubrics.correction.answer import (
    CorrectionAnswer,
    CorrectionType,
    FailureMode,
    Quote,
    Score,
    TurnOrNone,
)
from monitor.rubrics.correction.events import CorrectionEvent
from monitor.rubrics.correction.window import CorrectionWindow
from monitor.rubrics.correction_whole.window import CorrectionWholeWindow


class FoundCorrection(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """One correction as the judge writes it, in this order: as in event mode, with the words that correct."""

    correction_id: str
    correction_turn_index: int
    correction_quote: str
    targets_turn: TurnOrNone
    corrected_claim: str
    correction_content: str
    correction_type: CorrectionType
    superseded_by_turn_index: TurnOrNone
    acknowledgment_quote: str
    incorporation_evidence: list[Quote]
    first_right_use_turn_index: TurnOrNone
    reversion_turn_index: TurnOrNone
    over_correction_detail: str
    over_correction_turn_index: TurnOrNone
    acknowledgment: Score
    incorporation_accuracy: Score
    persistence: Score
    no_over_correction: Score
    failure_mode: FailureMode
    rationale: str


class CorrectionWholeAnswer(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """What the judge writes."""

    corrections: list[FoundCorrection]


class Checked(msgspec.Struct, kw_only=True, frozen=True):
    """One correction with its window, and its data or why it can't be judged."""

    window: CorrectionWindow
    found: dict[str, Any] | Skipped


def schema() -> dict[str, Any]:
    """Give the JSON Schema of the answer."""
    known = single.schema()["properties"]
    own = {"correction_quote": {"type": "string"}, "superseded_by_turn_index": {"type": "integer"}}
    item = {name: own.get(name) or known[name] for name in FoundCorrection.__struct_fields__}
    corrections = {"type": "array", "items": object_schema(item)}
    return object_schema({"corrections": corrections})


def check(raw: str, window: CorrectionWholeWindow) -> list[Checked]:
    """Check an answer against the transcript. Raises `InvalidVerdict`."""
    given = decode(raw, CorrectionWholeAnswer, enums=("correction_type", "failure_mode")).corrections
    last = max((item.correction_turn_index for item in given), default=-1)
    _distinct(given)
    return [_checked(item, place, window, last) for place, item in enumerate(given)]


def _distinct(given: list[FoundCorrection]) -> None:
    seen: set[tuple[int, str]] = set()
    before = -1
    for place, item in enumerate(given):
        field = f"corrections[{place}]"
        if item.correction_id != f"C{place + 1}":
            refuse(f"{field}.correction_id", item.correction_id, f'it must be "C{place + 1}"')
        if item.correction_turn_index < before:
            rule = "corrections stand in the order of their turns"
            refuse(f"{field}.correction_turn_index", item.correction_turn_index, rule)
        key = (item.correction_turn_index, plain(item.correction_quote))
        if key in seen:
            refuse(f"{field}.correction_quote", item.correction_quote, "another correction has the same words")
        seen.add(key)
        before = item.correction_turn_index


def _checked(item: FoundCorrection, place: int, whole: CorrectionWholeWindow, last: int) -> Checked:
    try:
        _located(item, whole)
        event = CorrectionEvent(
            event_id=item.correction_id, turn=item.correction_turn_index, text=item.correction_quote, error=None
        )
        end = None if item.superseded_by_turn_index < 0 else item.superseded_by_turn_index
        window = whole.followed(event, end, last=event.turn == last)
        given = _as_single(item, window)
        single.target(given, window)
        return Checked(window=window, found=window.skip or single.audited(given, window))
    except InvalidVerdict as error:
        raise InvalidVerdict(f"corrections[{place}].{error}") from None


def _located(item: FoundCorrection, whole: CorrectionWholeWindow) -> None:
    turns = {turn.index: turn for turn in whole.turns if turn.role == "user"}
    turn = turns.get(item.correction_turn_index)
    if turn is None:
        refuse("correction_turn_index", item.correction_turn_index, "it must be a turn of the user")
    if not contains(turn.text, item.correction_quote):
        refuse("correction_quote", item.correction_quote, f"turn {turn.index} doesn't have these words")
    end = item.superseded_by_turn_index
    if end >= 0 and (end not in turns or end <= turn.index):
        refuse("superseded_by_turn_index", end, f"it must be -1 or a turn of the user after turn {turn.index}")


def _as_single(item: FoundCorrection, window: CorrectionWindow) -> CorrectionAnswer:
    shared = {name: getattr(item, name) for name in _SHARED}
    return CorrectionAnswer(is_correction=True, incorporation_check_turns=list(window.replies), **shared)


_SHARED: Final = tuple(
    name for name in CorrectionAnswer.__struct_fields__ if name in set(FoundCorrection.__struct_fields__)
)
