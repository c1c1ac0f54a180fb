"""The judge's answer in whole mode: what it found, what it quotes, and its grade of each correction (J2).

Three flat lists, joined by `correction_id`: `corrections` says what was corrected, `evidence` quotes the replies,
and `grades` says what became of each. So evidence comes before the verdict, and no list stands inside another.
Each correction is checked as in event mode, against the part of the transcript in which it can be followed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec

from monitor.errors import InvalidVerdict
from monitor.judgement import Skipped
from monitor.rubrics.answers import decode, object_schema, plain, refuse, verbatim
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
    """One correction: the words that correct, and what they correct."""

    correction_id: str
    correction_turn_index: int
    correction_quote: str
    targets_turn: TurnOrNone
    corrected_claim: str
    correction_content: str
    correction_type: CorrectionType
    superseded_by_turn_index: TurnOrNone


class Evidence(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Words of a reply that show what became of one correction."""

    correction_id: str
    turn_index: int
    quote: str


class Grade(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """What became of one correction."""

    correction_id: str
    acknowledgment_quote: str
    first_right_use_turn_index: TurnOrNone
    reversion_turn_index: TurnOrNone
    over_correction_detail: str
    over_correction_turn_index: TurnOrNone
    acknowledgment: Score
    incorporation_accuracy: Score
    persistence: Score
    no_over_correction: Score
    failure_mode: FailureMode
    rationale: Annotated[str, msgspec.Meta(max_length=600)]


class CorrectionWholeAnswer(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """What the judge writes, in this order."""

    corrections: list[FoundCorrection]
    evidence: list[Evidence]
    grades: list[Grade]


class Checked(msgspec.Struct, kw_only=True, frozen=True):
    """One correction with its window, and its data or why it can't be judged."""

    window: CorrectionWindow
    found: dict[str, Any] | Skipped


def schema() -> dict[str, Any]:
    """Give the JSON Schema of the answer."""
    number = {"type": "integer"}
    known = single.schema()["properties"] | {
        "correction_quote": {"type": "string"},
        "quote": {"type": "string"},
        "superseded_by_turn_index": number,
        "turn_index": number,
    }

    def rows(kind: type[msgspec.Struct]) -> dict[str, Any]:
        return {
            "type": "array",
            "items": object_schema({name: known[name] for name in kind.__struct_fields__}),
        }

    return object_schema({"corrections": rows(FoundCorrection), "evidence": rows(Evidence), "grades": rows(Grade)})


def check(raw: str, window: CorrectionWholeWindow) -> list[Checked]:
    """Check an answer against the transcript. Raises `InvalidVerdict`."""
    given = decode(raw, CorrectionWholeAnswer, enums=("correction_type", "failure_mode"))
    _distinct(given.corrections)
    last = max((item.correction_turn_index for item in given.corrections), default=-1)
    windows = {
        item.correction_id: _window(item, f"corrections[{place}]", window, last)
        for place, item in enumerate(given.corrections)
    }
    _known("evidence", given.evidence, windows)
    _known("grades", given.grades, windows)
    _quotes(given.evidence, windows)
    return [_graded(item, windows[item.correction_id], given) for item in given.corrections]


def _distinct(given: Sequence[FoundCorrection]) -> None:
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


def _window(item: FoundCorrection, field: str, whole: CorrectionWholeWindow, last: int) -> CorrectionWindow:
    _located(item, field, whole)
    event = CorrectionEvent(
        event_id=item.correction_id, turn=item.correction_turn_index, text=item.correction_quote, error=None
    )
    end = None if item.superseded_by_turn_index < 0 else item.superseded_by_turn_index
    return whole.followed(event, end, last=event.turn == last)


def _located(item: FoundCorrection, field: str, whole: CorrectionWholeWindow) -> None:
    shown = {turn.index: turn for turn in whole.turns}
    turn = shown.get(item.correction_turn_index)
    if turn is None or turn.role != "user":
        rule = "it must be a turn of the user"
        refuse(f"{field}.correction_turn_index", item.correction_turn_index, rule)
    verbatim(f"{field}.correction_quote", item.correction_quote, turn.text, turn.index)
    target = item.targets_turn
    if target >= 0 and (target not in shown or target >= turn.index):
        refuse(f"{field}.targets_turn", target, f"it must be -1 or a shown turn before turn {turn.index}")
    end = item.superseded_by_turn_index
    if end >= 0 and (end not in shown or shown[end].role != "user" or end <= turn.index):
        rule = f"it must be -1 or a turn of the user after turn {turn.index}"
        refuse(f"{field}.superseded_by_turn_index", end, rule)


def _known(name: str, rows: Sequence[Evidence | Grade], windows: Mapping[str, CorrectionWindow]) -> None:
    graded: set[str] = set()
    for place, row in enumerate(rows):
        if row.correction_id not in windows:
            rule = f"corrections has only {', '.join(windows) or 'nothing'}"
            refuse(f"{name}[{place}].correction_id", row.correction_id, rule)
        if isinstance(row, Grade) and row.correction_id in graded:
            refuse(f"{name}[{place}].correction_id", row.correction_id, "that correction has a grade already")
        graded.add(row.correction_id)


def _quotes(evidence: Sequence[Evidence], windows: Mapping[str, CorrectionWindow]) -> None:
    for place, item in enumerate(evidence):
        window, field = windows[item.correction_id], f"evidence[{place}]"
        turn = window.turn(item.turn_index)
        if turn is None or turn.role != "assistant" or not _followed(turn.index, window):
            rule = f"it must be one of the replies to {item.correction_id}, {list(window.replies)}"
            refuse(f"{field}.turn_index", item.turn_index, rule)
        verbatim(f"{field}.quote", item.quote, turn.text, item.turn_index)


def _followed(turn: int, window: CorrectionWindow) -> bool:
    """Say whether a turn may be quoted: a reply; where none can be judged, any answer after the correction."""
    return turn in window.replies if window.skip is None else turn > window.event.turn


def _graded(item: FoundCorrection, window: CorrectionWindow, given: CorrectionWholeAnswer) -> Checked:
    if window.skip is not None:
        return Checked(window=window, found=window.skip)
    grades = {grade.correction_id: place for place, grade in enumerate(given.grades)}
    if item.correction_id not in grades:
        refuse("grades", list(grades), f"{item.correction_id} has replies, so it needs a grade")
    quotes = [
        Quote(turn_index=row.turn_index, quote=row.quote)
        for row in given.evidence
        if row.correction_id == item.correction_id
    ]
    place = grades[item.correction_id]
    try:
        found = single.audited(_as_single(item, given.grades[place], quotes, window), window)
    except InvalidVerdict as error:
        raise _renamed(error, place, item.correction_id) from None
    return Checked(window=window, found=found)


def _renamed(error: InvalidVerdict, place: int, correction_id: str) -> InvalidVerdict:
    """Name the field as this answer has it: a grade's, or the quotes of a correction."""
    field, _, rest = str(error).partition(" ")
    quotes = field.startswith("incorporation_evidence")
    where = f"evidence[{correction_id}]" if quotes else f"grades[{place}].{field}"
    return InvalidVerdict(f"{where} {rest.replace('incorporation_evidence', 'evidence')}")


def _as_single(
    item: FoundCorrection, grade: Grade, quotes: list[Quote], window: CorrectionWindow
) -> CorrectionAnswer:
    given = msgspec.structs.asdict(item) | msgspec.structs.asdict(grade)
    shared = {name: given[name] for name in CorrectionAnswer.__struct_fields__ if name in given}
    answer = CorrectionAnswer(
        is_correction=True, incorporation_check_turns=[], incorporation_evidence=quotes, **shared
    )
    if not answer.says_what_is_right:
        return answer
    return msgspec.structs.replace(answer, incorporation_check_turns=list(window.replies))
