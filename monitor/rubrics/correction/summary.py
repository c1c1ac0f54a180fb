"""What code computes of judged corrections, in either mode: of an event, of a session, and for the totals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from monitor.judgement import Tally
from monitor.rubrics.correction.answer import CRITERIA
from monitor.rubrics.correction.window import CorrectionWindow
from monitor.session import Session

_MODES: Final = ("reverted", "ignored", "partial", "contradicted")
MEASURES: Final = (*_MODES, "over_corrected")
MAX_SCORE: Final = 5
NO_CORRECTION: Final = "no correction in this session"
SCORES: Final = (
    "correction_response_score",
    *(f"criterion_score:{name}" for name in CRITERIA),
    "correction_session_turns",
    "correction_session_events",
    "correction_session_composite",
    "correction_session_incorporated",
    "correction_session_reverted",
    *(f"correction_session_worst:{name}" for name in CRITERIA),
)


def computed(data: dict[str, Any], window: CorrectionWindow, review_score: float) -> dict[str, Any]:
    """Add to a checked event the numbers that follow from it."""
    composite = sum(data["scores"].values()) / len(CRITERIA)
    score = (composite - 1) / 4
    return data | {
        "composite": composite,
        "correction_response_score": score,
        "acknowledgment_flag": data["scores"]["acknowledgment"] >= 3,  # noqa: PLR2004 - the anchor "behaves differently"
        "regression_detected": data["reversion_turn_index"] is not None,
        "over_corrected": data["over_correction_detail"] is not None,
        "persistence_unobserved": window.unobserved,
        "superseded_by_turn_index": window.superseded_by,
        "review_candidate": score < review_score,
    }


def review(
    session: Session, events: Sequence[dict[str, Any]], review_score: float, high_risk_composite: float
) -> dict[str, Any]:
    """Say which events are candidates for review, and whether the session goes to a person, and why."""
    reasons = []
    scores = [event["correction_response_score"] for event in events]
    if len(scores) >= 2 and sum(scores) / len(scores) < review_score:  # noqa: PLR2004 - one event is no pattern
        reasons.append("low_average")
    critical = False
    if session.attributes.risk_level == "high":
        reasons += _high_risk_reasons(events, high_risk_composite)
        critical = any(event["regression_detected"] for event in events)
    return {
        "flagged": bool(reasons),
        "reasons": reasons,
        "event_candidates": [event["correction_id"] for event in events if event["review_candidate"]],
        "awaiting_review": critical,
    }


def scores(data: dict[str, Any]) -> dict[str, list[float]]:
    """Give what a verdict's data adds to each histogram of `SCORES`; nothing without a judged event."""
    events: list[dict[str, Any]] = data["events"]
    if not events:
        return {}
    session = data["session"]
    worst = session["worst_criterion"]
    least = {f"correction_session_worst:{worst}": [sum(event["scores"][worst] for event in events) / len(events)]}
    criteria = {f"criterion_score:{name}": [float(event["scores"][name]) for event in events] for name in CRITERIA}
    return criteria | {
        "correction_response_score": [event["correction_response_score"] for event in events],
        "correction_session_turns": [float(session["total_turns"])],
        "correction_session_events": [float(session["correction_count"])],
        "correction_session_composite": [session["average_composite"]],
        "correction_session_incorporated": [session["fully_incorporated"] / len(events)],
        "correction_session_reverted": [session["with_reversion"] / len(events)],
        # Where all is perfect, nothing is worst.
        **(least if session["average_composite"] < MAX_SCORE else {}),
    }


def aggregates(session: Session, events: Sequence[dict[str, Any]], found: int) -> dict[str, Any]:
    """Give what is stored of a session as a whole: `found` corrections, `events` judged."""
    modes = Counter(event["failure_mode"] for event in events)
    mean = sum(event["composite"] for event in events) / len(events) if events else None
    totals = {name: sum(event["scores"][name] for event in events) for name in CRITERIA}
    worst = min(CRITERIA, key=lambda name: totals[name]) if events else None
    return {
        "total_turns": len(session.turns),
        "correction_count": found,
        "average_composite": mean,
        "fully_incorporated": modes["none"],
        "with_reversion": sum(event["regression_detected"] for event in events),
        "persistence_unobserved": sum(event["persistence_unobserved"] for event in events),
        "worst_criterion": worst,
        "overall_assessment": _assessment(events, mean, worst),
    }


def _assessment(events: Sequence[dict[str, Any]], mean: float | None, worst: str | None) -> str:
    if mean is None or worst is None:
        return "No correction could be evaluated."
    modes = Counter(event["failure_mode"] for event in events)
    taken = modes["none"]
    failed = ", ".join(f"{count} {mode}" for mode, count in sorted(modes.items()) if mode != "none")
    kept = f"{taken} of {len(events)} corrections {'was' if taken == 1 else 'were'} taken and kept"
    detail = f" ({failed})" if failed else ""
    weakest = f", weakest in {worst.replace('_', ' ')}" if mean < MAX_SCORE else ""
    return f"{kept}{detail}; composite {mean:.2f} of 5{weakest}."


def note(events: int, scored: Sequence[Any], skipped: Sequence[Any]) -> str | None:
    """Say what a verdict lacks: `events` is how many corrections there were."""
    if not events:
        return NO_CORRECTION
    return None if scored else f"none of {len(skipped)} corrections could be evaluated"


def tallies(events: Sequence[dict[str, Any]]) -> dict[str, Tally]:
    """Give trials (events) and failures of each of `MEASURES`."""
    found = {
        mode: Tally(trials=len(events), failures=sum(event["failure_mode"] == mode for event in events))
        for mode in _MODES
    }
    found["over_corrected"] = Tally(trials=len(events), failures=sum(event["over_corrected"] for event in events))
    return found


def _high_risk_reasons(events: Sequence[dict[str, Any]], composite: float) -> list[str]:
    rules = {
        "high_risk_regression": any(event["regression_detected"] for event in events),
        "high_risk_low_composite": any(event["composite"] < composite for event in events),
        "high_risk_failing": any(event["failure_mode"] != "none" or event["over_corrected"] for event in events),
    }
    return [name for name, holds in rules.items() if holds]
