"""The window of whole mode: the entire transcript, and the part of it in which one correction can be followed."""

from __future__ import annotations

import msgspec

from monitor.judgement import Skipped
from monitor.rubrics.answers import plain
from monitor.rubrics.correction.events import CorrectionEvent
from monitor.rubrics.correction.window import CorrectionWindow
from monitor.session import Session, SessionTurn

WINDOW_ID = "W"


class CorrectionWholeWindow(msgspec.Struct, kw_only=True, frozen=True):
    """A session as one question. `replies`: with fewer after a correction, its persistence is unobserved."""

    window_id: str
    session: Session
    replies: int

    @property
    def turns(self) -> tuple[SessionTurn, ...]:
        """The turns that are shown: what user and assistant said."""
        return tuple(turn for turn in self.session.turns if turn.role in {"user", "assistant"})

    def followed(self, event: CorrectionEvent, superseded_by: int | None, *, last: bool) -> CorrectionWindow:
        """Give the window of one correction: to the end, or to the turn that supersedes it.

        `last`: it is the session's last one, which can't be judged where we cut the session.
        """
        end = len(self.session.turns) if superseded_by is None else superseded_by
        after = [turn for turn in self.turns if event.turn < turn.index < end]
        answers = [turn for turn in after if turn.role == "assistant" and plain(turn.text)]
        return CorrectionWindow(
            window_id=event.event_id,
            event=event,
            turns=self.turns,
            replies=tuple(turn.index for turn in answers if not turn.cut_off),
            unobserved=len(answers) < self.replies,
            superseded_by=superseded_by,
            skip=self._skip(answers, superseded_by, last=last),
        )

    def _skip(self, answers: list[SessionTurn], superseded_by: int | None, *, last: bool) -> Skipped | None:
        if self.session.was_cut and last:
            return Skipped(reason="cut_off", note="the last correction of a session that was cut here")
        if not answers:
            if superseded_by is not None:
                return Skipped(
                    reason="superseded", note=f"turn {superseded_by} corrects the same before any reply"
                )
            return Skipped(reason="no_response", note="no reply after the correction")
        if answers[0].cut_off:
            return Skipped(reason="cut_off", note=f"the reply in turn {answers[0].index} was cut off")
        return None
