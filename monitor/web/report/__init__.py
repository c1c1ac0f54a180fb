"""Judgements as reports, by rubric."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec

from monitor.judgement import Skipped, Verdict
from monitor.session import Session
from monitor.store import StoredJudgement
from monitor.web.report import conversation, correction, hallucination, refusal
from monitor.web.report.base import Part, PassedOver, Place, Quote, Report, Tone
from monitor.web.report.reasons import skipped, unscored

Reporter: TypeAlias = Callable[[dict[str, Any], str, Session | None], Report]

REPORTS: Final[dict[str, Reporter]] = {
    "conversation": conversation.report,
    "correction": correction.report,
    "correction_whole": correction.report,
    "hallucination": hallucination.report,
    "refusal": refusal.report,
}


def report(stored: StoredJudgement, anchor: str, session: Session | None) -> Report:
    """Make the report of a judgement; `anchor` names it on its page. Data of an unknown form is shown as it is."""
    if stored.judgement is None:
        return Report(
            anchor=anchor, headline="Retention has removed its text. Its numbers still count.", tone="plain"
        )
    result = stored.judgement.result
    if not isinstance(result, Verdict):
        if isinstance(result, Skipped):
            return Report(anchor=anchor, headline=skipped(result), tone="plain")
        return Report(anchor=anchor, headline=unscored(result), tone="warn")
    if stored.rubric in REPORTS:
        try:
            return REPORTS[stored.rubric](result.data, anchor, session)
        except msgspec.ValidationError:
            pass
    return Report(
        anchor=anchor, headline="These pages don't know the form of this verdict: see its data.", tone="plain"
    )


__all__ = ["REPORTS", "Part", "PassedOver", "Place", "Quote", "Report", "Tone", "report"]
