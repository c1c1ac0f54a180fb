"""What the questions asked before the judging have in common: one window, and nothing that counts. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from monitor.judgement import Outcomes, Result, Skipped, Unscored, Verdict
from monitor.rubrics.base import WindowResult
from monitor.session import Session, SessionTurn


class Question:
    """A question about a whole session, as a rubric; a subclass says what is asked and reads the answer.

    It has the name of the rubric that it is asked for.
    """

    def __init__(self, rubric: str, mode: str) -> None:
        self.name = rubric
        self.version = "1"
        self.mode = mode
        self.sequential = False
        self.measures: tuple[str, ...] = ()
        self.scores: tuple[str, ...] = ()

    def applies(self, session: Session) -> Skipped | None:
        """Let every session through: the rubric itself has said that it concerns it."""
        del session
        return None

    def carry(self, window: Any, earlier: Sequence[WindowResult]) -> Any:
        """Give the window itself: there is only one."""
        del earlier
        return window

    def preflight(self, window: Any) -> Skipped | None:
        """Let every window through."""
        del window
        return None

    def merge(self, session: Session, results: Sequence[WindowResult]) -> Verdict | Skipped | Unscored:
        """Give the result of the one window."""
        del session
        return results[0].result

    def outcomes(self, result: Result) -> Outcomes:
        """Count nothing: the rubric counts."""
        del result
        return Outcomes()


def spoken(session: Session) -> tuple[SessionTurn, ...]:
    """Give the turns of user and assistant."""
    return tuple(turn for turn in session.turns if turn.role in {"user", "assistant"})


def told(turns: Sequence[SessionTurn]) -> list[dict[str, Any]]:
    """Give turns as a prompt shows them."""
    return [{"turn": turn.index, "role": turn.role, "text": turn.text} for turn in turns]
