"""The window of the refusal rubric: the whole session, and which of its replies are audited."""

from __future__ import annotations

import msgspec

from monitor.judgement import Skipped
from monitor.rubrics.answers import blank, plain
from monitor.session import Session, SessionTurn

WINDOW_ID = "S"


class RefusalWindow(msgspec.Struct, kw_only=True, frozen=True):
    """A session as one question. `replies` are the assistant turns to audit; `skip` says why there is none.

    `unobserved`: the session was cut by us, so what its last reply led to isn't known. `policy`: there is a policy
    that may forbid a request.
    """

    window_id: str
    turns: tuple[SessionTurn, ...]
    replies: tuple[int, ...]
    high_risk: bool
    unobserved: bool
    skip: Skipped | None = None
    policy: bool = True

    def under(self, constraints: str) -> RefusalWindow:
        """Give the window as judged under an assistant's constraints, which are its policy."""
        return msgspec.structs.replace(self, policy=not blank(constraints))

    def turn(self, index: int) -> SessionTurn | None:
        """Give a turn by its index, or None."""
        return self.turns[index] if 0 <= index < len(self.turns) else None


def window(session: Session) -> RefusalWindow:
    """Make the window of a session. A reply that was cut off, or that says nothing, can't be audited."""
    asked = next((turn.index for turn in session.turns if turn.role == "user"), len(session.turns))
    answers = [turn for turn in session.turns if turn.role == "assistant" and turn.index > asked]
    whole = [turn for turn in answers if not turn.cut_off and plain(turn.text)]
    return RefusalWindow(
        window_id=WINDOW_ID,
        turns=session.turns,
        replies=tuple(turn.index for turn in whole),
        high_risk=session.attributes.risk_level == "high",
        unobserved=session.was_cut,
        skip=None if whole else _why(answers),
    )


def _why(answers: list[SessionTurn]) -> Skipped:
    if any(turn.cut_off for turn in answers):
        return Skipped(reason="cut_off", note="every reply was cut off")
    return Skipped(reason="no_response", note="the user got no reply")
