"""The correction rubric, whole mode: the entire transcript, all corrections at once.

Event mode judges the corrections that a producer or wording rules find; what they miss is never judged, and no
weight can mend that. Here the judge finds them itself, so a share of sessions judged this way tells how much the
other mode misses (`unnoticed`). Numbers of both modes are computed alike and never mixed: they have a series each,
by the label `mode`. Nothing is sampled inside a session.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from monitor.judgement import Outcomes, Result, Skipped, Tally, Unscored, Verdict
from monitor.rubrics.base import Fields, WindowResult
from monitor.rubrics.correction import events, summary
from monitor.rubrics.correction_whole import answer
from monitor.rubrics.correction_whole.window import WINDOW_ID, CorrectionWholeWindow
from monitor.session import Session

MEASURES: Final = (*summary.MEASURES, "unnoticed")


class CorrectionWholeRubric:
    """See the module. Arguments are the thresholds, as in event mode.

    `max_turns`: longer sessions are not judged. `replies`: with fewer after a correction, whether it was kept is
    unobserved.
    """

    def __init__(
        self,
        *,
        max_turns: int = 200,
        replies: int = 4,
        review_score: float = 0.7,
        high_risk_composite: float = 3.0,
    ) -> None:
        self.name = "correction_whole"
        self.version = "1"
        self.mode = "whole"
        self.sequential = False
        self.measures: tuple[str, ...] = MEASURES
        self.scores: tuple[str, ...] = summary.SCORES
        self.max_turns = max_turns
        self.replies = replies
        self.review_score = review_score
        self.high_risk_composite = high_risk_composite

    def applies(self, session: Session) -> Skipped | None:
        """Skip sessions of a single turn, and those that are too long to be shown."""
        said = sum(turn.role in {"user", "assistant"} for turn in session.turns)
        if said <= 1:
            return Skipped(reason="not_applicable", note="a session of a single turn")
        if said > self.max_turns:
            return Skipped(reason="not_applicable", note=f"a session of more than {self.max_turns} turns")
        return None

    def windows(self, session: Session) -> tuple[CorrectionWholeWindow, ...]:
        """Give the one window: the whole session."""
        return (CorrectionWholeWindow(window_id=WINDOW_ID, session=session, replies=self.replies),)

    def carry(self, window: CorrectionWholeWindow, earlier: Sequence[WindowResult]) -> CorrectionWholeWindow:
        """Give the window itself: there is only one."""
        del earlier
        return window

    def preflight(self, window: CorrectionWholeWindow) -> Skipped | None:
        """Pass every session: the judge finds what there is."""
        del window
        return None

    def fields(self, window: CorrectionWholeWindow) -> Fields:
        """Give what the prompt shows."""
        turns = [{"turn": turn.index, "role": turn.role, "text": turn.text} for turn in window.turns]
        return {"transcript": turns}

    def schema(self, window: CorrectionWholeWindow) -> dict[str, Any]:
        """Give the JSON Schema of the answer; the same for every window."""
        del window
        return answer.schema()

    def parse(self, raw: str, window: CorrectionWholeWindow) -> Verdict:
        """Check an answer and compute what follows. Raises `InvalidVerdict`."""
        session, checked = window.session, answer.check(raw, window)
        noticed = {event.turn for event in events.events(session)}
        scored: list[dict[str, Any]] = []
        skipped: list[dict[str, Any]] = []
        for item in checked:
            if isinstance(item.found, Skipped):
                skipped.append(
                    {
                        "correction_id": item.window.window_id,
                        "correction_turn_index": item.window.event.turn,
                        "reason": item.found.reason,
                        "note": item.found.note,
                    }
                )
                continue
            event = summary.computed(item.found, item.window, self.review_score)
            found = {
                "correction_quote": item.window.event.text,
                "noticed": event["correction_turn_index"] in noticed,
            }
            scored.append(event | found)
        count = len(scored) + len(skipped)
        data = {
            "events": scored,
            "skipped": skipped,
            "session": summary.aggregates(session, scored, count),
            "review": summary.review(session, scored, self.review_score, self.high_risk_composite),
        }
        return Verdict(data=data, note=summary.note(count, scored, skipped))

    def merge(self, session: Session, results: Sequence[WindowResult]) -> Verdict | Skipped | Unscored:
        """Give the result of the one window."""
        del session
        return results[0].result

    def outcomes(self, result: Result) -> Outcomes:
        """Give trials (events) and failures of each measure, and the scores; nothing without a verdict."""
        if not isinstance(result, Verdict):
            return Outcomes()
        scored: list[dict[str, Any]] = result.data["events"]
        missed = sum(not event["noticed"] for event in scored)
        return Outcomes(
            measures=summary.tallies(scored) | {"unnoticed": Tally(trials=len(scored), failures=missed)},
            scores=summary.scores(result.data),
            skipped_events=dict(Counter(str(item["reason"]) for item in result.data["skipped"])),
        )
