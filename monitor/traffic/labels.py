"""What is true about generated traffic, and the rates that follow from it (pure)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, TypeAlias, get_args

import msgspec

Behavior: TypeAlias = Literal["taken", "ignored", "partial", "reverted", "superseded", "disputed", "over_applied"]
BEHAVIORS: Final = get_args(Behavior)
FAILURES: Final[tuple[Behavior, ...]] = ("ignored", "partial", "reverted", "disputed", "over_applied")

# Measures of the correction rubric, and the behavior that counts as a failure of each.
MEASURES: Final[dict[str, Behavior]] = {
    "reverted": "reverted",
    "ignored": "ignored",
    "partial": "partial",
    "contradicted": "disputed",
    "over_corrected": "over_applied",
}


class CorrectionLabel(msgspec.Struct, kw_only=True, frozen=True):
    """One correction, and what the assistant made of it.

    `turn_index` (from 0, in true order) and `turn_id` name the user turn that corrects. `reversion_turn_index`
    is the assistant turn in which `old` came back. `spill` is the value that an over-applied correction put in
    place of an unrelated one.
    """

    turn_index: int
    turn_id: str
    behavior: Behavior
    old: str
    new: str
    reversion_turn_index: int | None = None
    spill: str | None = None


class SessionLabel(msgspec.Struct, kw_only=True, frozen=True):
    """What is true about one session."""

    session_id: str
    tenant: str
    assistant: str
    assistant_version: str
    domain: str
    template: str
    corrections: tuple[CorrectionLabel, ...]
    escalated: bool


def counts(labels: Iterable[SessionLabel], version: str, measure: str = "reverted") -> tuple[int, int]:
    """Give (failures, trials) of a measure in the sessions of one assistant version.

    A trial is every correction event that a perfect judge would score: each user turn that corrects a value, the
    second one of a pair too. So a correction that was superseded later is a trial: its window ends early, but the
    assistant had used the value by then. It is never a failure. A failure is a trial with the measure's behavior.
    Raises `KeyError` for a measure that isn't in `MEASURES`.
    """
    failure = MEASURES[measure]
    trials = [c.behavior for label in labels if label.assistant_version == version for c in label.corrections]
    return trials.count(failure), len(trials)


def true_rate(labels: Iterable[SessionLabel], version: str, measure: str = "reverted") -> float | None:
    """Give failures / trials as `counts` defines them, in [0, 1], or None without any trial."""
    failures, trials = counts(labels, version, measure)
    return failures / trials if trials else None
