"""The judge's answer on one correction: its shape, and every check of it against the window (J2).

The shape is flat, every field is required, evidence comes before the verdict, and sentinels stand for "none"
(-1 for a turn, "" for a text), since grammars of providers handle unions badly. `check` maps them to None.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args

import msgspec

from monitor.judgement import Skipped
from monitor.rubrics.answers import blank, contains, decode, object_schema, refuse, shown, verbatim
from monitor.rubrics.correction.window import CorrectionWindow, corrects

CorrectionType: TypeAlias = Literal[
    "factual_correction", "preference_change", "constraint_update", "retraction", "instruction_override"
]
FailureMode: TypeAlias = Literal["contradicted", "ignored", "reverted", "partial", "none"]
Score: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=5)]
TurnOrNone: TypeAlias = Annotated[int, msgspec.Meta(ge=-1)]

CRITERIA: Final = ("acknowledgment", "incorporation_accuracy", "persistence", "no_over_correction")
FAILURE_MODES: Final = get_args(FailureMode)
CORRECTION_TYPES: Final = get_args(CorrectionType)


class Quote(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Words of a turn."""

    turn_index: int
    quote: str


class CorrectionAnswer(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """What the judge writes, in this order."""

    is_correction: bool
    targets_turn: TurnOrNone
    correction_id: str
    correction_turn_index: int
    corrected_claim: str
    correction_content: str
    correction_type: CorrectionType
    acknowledgment_quote: str
    incorporation_check_turns: list[int]
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
    rationale: Annotated[str, msgspec.Meta(max_length=600)]

    @property
    def says_what_is_right(self) -> bool:
        """Say whether replies can be held against it: a new value, or a retraction, which needs none."""
        return self.correction_type == "retraction" or not blank(self.correction_content)


def schema() -> dict[str, Any]:
    """Give the JSON Schema of the answer: no references, no unions, no bounds that a grammar can't keep."""
    text, number = {"type": "string"}, {"type": "integer"}
    score = {"type": "integer", "enum": [1, 2, 3, 4, 5]}
    special: dict[str, dict[str, Any]] = {
        "is_correction": {"type": "boolean"},
        "correction_type": {"type": "string", "enum": list(CORRECTION_TYPES)},
        "failure_mode": {"type": "string", "enum": list(FAILURE_MODES)},
        "incorporation_check_turns": {"type": "array", "items": number},
        "incorporation_evidence": {"type": "array", "items": object_schema({"turn_index": number, "quote": text})},
    }
    properties: dict[str, dict[str, Any]] = {}
    for name in CorrectionAnswer.__struct_fields__:
        plain_ = number if name.endswith(("_index", "targets_turn")) else text
        properties[name] = special.get(name, score if name in CRITERIA else plain_)
    return object_schema(properties)


def check(raw: str, window: CorrectionWindow) -> dict[str, Any] | Skipped:
    """Check an answer against its window and give the verdict's data. Raises `InvalidVerdict`.

    `Skipped(misaligned)` when the judge sees no correction, or one of something else than the producer named: of
    another turn that doesn't say the same;
    `Skipped(not_applicable)` when the correction doesn't say what is right and is no retraction.
    """
    given = decode(raw, CorrectionAnswer, enums=("correction_type", "failure_mode"))
    _identity(given, window)
    _target(given, window)
    if not given.is_correction:
        _rationale(given, window)
        _hold(given, _NO_CORRECTION, "where there is no correction")
        return Skipped(
            reason="misaligned", note=f"turn {window.event.turn} is not a correction: {given.rationale}"
        )
    if window.event.error_named and not corrects(window, given.targets_turn):
        note = f"corrects turn {given.targets_turn}, not turn {window.event.error} as its producer says"
        return Skipped(reason="misaligned", note=note)
    return audited(given, window)


def audited(given: CorrectionAnswer, window: CorrectionWindow) -> dict[str, Any] | Skipped:
    """Check what an answer says of its replies, and give the data of the event. Raises `InvalidVerdict`."""
    _rationale(given, window)
    if not given.says_what_is_right:
        _hold(given, _SAYS_NOTHING, "where the user doesn't say what is right")
        return Skipped(reason="not_applicable", note=f"turn {window.event.turn} doesn't say what is right")
    for rule in _RULES:
        rule(given, window)
    return _data(given)


def _identity(given: CorrectionAnswer, window: CorrectionWindow) -> None:
    if given.correction_id != window.window_id:
        refuse("correction_id", given.correction_id, f'the event in question is "{window.window_id}"')
    if given.correction_turn_index != window.event.turn:
        refuse(
            "correction_turn_index", given.correction_turn_index, f"the correction is in turn {window.event.turn}"
        )


def _target(given: CorrectionAnswer, window: CorrectionWindow) -> None:
    turn = given.targets_turn
    if turn >= 0 and (window.turn(turn) is None or turn >= window.event.turn):
        refuse("targets_turn", turn, f"it must be -1 or a shown turn before turn {window.event.turn}")


def _hold(given: CorrectionAnswer, nothing: Sequence[tuple[str, object]], where: str) -> None:
    """Hold an answer that judges no reply to that: what it found in replies may not be passed over in silence.

    Scores aren't read: a scale has no value for "nothing to judge".
    """
    for field, none in nothing:
        if getattr(given, field) != none:
            refuse(field, msgspec.to_builtins(getattr(given, field)), f"{where} it must be {shown(none)}")


def _acknowledged(given: CorrectionAnswer, window: CorrectionWindow) -> None:
    quote = given.acknowledgment_quote
    answers = [turn.text for turn in window.turns if turn.role == "assistant" and turn.index > window.event.turn]
    if quote and not any(contains(text, quote) for text in answers):
        refuse("acknowledgment_quote", quote, "no assistant turn after the correction has these words")
    if not quote and given.acknowledgment == 5:  # noqa: PLR2004 - the top of the scale
        refuse("acknowledgment", 5, "only an acknowledgment that can be quoted earns it")


def _check_turns(given: CorrectionAnswer, window: CorrectionWindow) -> None:
    if sorted(given.incorporation_check_turns) != sorted(window.replies):
        rule = f"it must hold each of the replies {list(window.replies)} exactly once"
        refuse("incorporation_check_turns", given.incorporation_check_turns, rule)


def _evidence(given: CorrectionAnswer, window: CorrectionWindow) -> None:
    for position, item in enumerate(given.incorporation_evidence):
        field = f"incorporation_evidence[{position}]"
        turn = window.turn(item.turn_index)
        if turn is None or item.turn_index not in window.replies:
            refuse(f"{field}.turn_index", item.turn_index, f"it must be one of the replies {list(window.replies)}")
        verbatim(f"{field}.quote", item.quote, turn.text, item.turn_index)
    if not given.incorporation_evidence:
        refuse("incorporation_evidence", [], "at least one reply must be quoted")


def _turns_are_quoted(given: CorrectionAnswer, window: CorrectionWindow) -> None:
    quoted = {item.turn_index for item in given.incorporation_evidence}
    for field in ("first_right_use_turn_index", "reversion_turn_index", "over_correction_turn_index"):
        turn = getattr(given, field)
        if turn >= 0 and turn not in window.replies:
            refuse(field, turn, f"it must be -1 or one of the replies {list(window.replies)}")
        if turn >= 0 and turn not in quoted:
            refuse(field, turn, "no evidence is quoted from that turn")


def _reversion(given: CorrectionAnswer, _window: CorrectionWindow) -> None:
    first, back = given.first_right_use_turn_index, given.reversion_turn_index
    if (given.failure_mode == "reverted") != (back >= 0):
        refuse(
            "reversion_turn_index",
            back,
            f'failure_mode is "{given.failure_mode}", and only "reverted" has such a turn',
        )
    if back >= 0 and (first < 0 or back <= first):
        refuse("reversion_turn_index", back, f"it must be later than the first right use, which is {first}")


def _mode(given: CorrectionAnswer, _window: CorrectionWindow) -> None:
    used = given.first_right_use_turn_index
    if given.failure_mode == "none":
        for field in ("incorporation_accuracy", "persistence"):
            if getattr(given, field) < 4:  # noqa: PLR2004 - 4 and 5 are right
                refuse(field, getattr(given, field), 'failure_mode "none" needs 4 or 5')
    if given.failure_mode == "ignored":
        if given.incorporation_accuracy > 2:  # noqa: PLR2004 - 1 and 2 are wrong
            refuse("incorporation_accuracy", given.incorporation_accuracy, 'failure_mode "ignored" allows 1 or 2')
        if used >= 0:
            refuse("first_right_use_turn_index", used, 'failure_mode "ignored" means that there is none: -1')
    if given.failure_mode == "partial" and given.incorporation_accuracy == 5:  # noqa: PLR2004 - all right
        refuse("incorporation_accuracy", 5, 'failure_mode "partial" allows 4 at most')
    if given.failure_mode in {"none", "partial"} and used < 0:
        rule = f'failure_mode "{given.failure_mode}" needs the first reply that follows the correction'
        partly = ", if only in part" if given.failure_mode == "partial" else ""
        refuse("first_right_use_turn_index", used, rule + partly)


def _over_correction(given: CorrectionAnswer, _window: CorrectionWindow) -> None:
    detail, turn, score = given.over_correction_detail, given.over_correction_turn_index, given.no_over_correction
    if blank(detail) != (turn < 0):
        refuse(
            "over_correction_turn_index",
            turn,
            "it must be a turn if over_correction_detail says something, else -1",
        )
    if turn >= 0 and score == 5:  # noqa: PLR2004 - the top of the scale
        refuse("no_over_correction", score, "an over-correction is described, so 5 is too much")
    if turn < 0 and score <= 3:  # noqa: PLR2004 - the middle of the scale
        refuse("no_over_correction", score, "3 or less needs over_correction_detail and its turn")


def _rationale(given: CorrectionAnswer, _window: CorrectionWindow) -> None:
    if blank(given.rationale):
        refuse("rationale", given.rationale, "it must be one sentence")


_RULES: Final[tuple[Callable[[CorrectionAnswer, CorrectionWindow], None], ...]] = (
    _acknowledged,
    _check_turns,
    _evidence,
    _turns_are_quoted,
    _reversion,
    _mode,
    _over_correction,
)


_SAYS_NOTHING: Final[tuple[tuple[str, object], ...]] = (
    ("acknowledgment_quote", ""),
    ("incorporation_check_turns", []),
    ("incorporation_evidence", []),
    ("first_right_use_turn_index", -1),
    ("reversion_turn_index", -1),
    ("over_correction_detail", ""),
    ("over_correction_turn_index", -1),
    ("failure_mode", "none"),
)
_NO_CORRECTION: Final[tuple[tuple[str, object], ...]] = (
    ("targets_turn", -1),
    ("corrected_claim", ""),
    ("correction_content", ""),
    *_SAYS_NOTHING,
)


def _data(given: CorrectionAnswer) -> dict[str, Any]:
    return {
        "correction_id": given.correction_id,
        "correction_turn_index": given.correction_turn_index,
        "error_turn_index": _turn(given.targets_turn),
        "corrected_claim": given.corrected_claim,
        "correction_content": given.correction_content,
        "correction_type": given.correction_type,
        "scores": {name: getattr(given, name) for name in CRITERIA},
        "acknowledgment_quote": given.acknowledgment_quote or None,
        "incorporation_check_turns": given.incorporation_check_turns,
        "incorporation_evidence": [
            {"turn_index": item.turn_index, "quote": item.quote} for item in given.incorporation_evidence
        ],
        "first_right_use_turn_index": _turn(given.first_right_use_turn_index),
        "reversion_turn_index": _turn(given.reversion_turn_index),
        "over_correction_detail": None
        if blank(given.over_correction_detail)
        else given.over_correction_detail.strip(),
        "over_correction_turn_index": _turn(given.over_correction_turn_index),
        "failure_mode": given.failure_mode,
        "rationale": given.rationale,
    }


def _turn(index: int) -> int | None:
    return None if index < 0 else index
