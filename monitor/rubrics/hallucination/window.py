"""The windows of the hallucination rubric: which replies are audited, on which passages, after which claims."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from monitor.rubrics.answers import plain
from monitor.rubrics.passages import LabelledPassage, for_turn, labelled
from monitor.session import Session, SessionTurn


class OpenClaim(msgspec.Struct, kw_only=True, frozen=True):
    """An earlier claim that nothing supports: what comes back later may have its origin here."""

    claim_id: str
    turn_index: int
    claim_text: str
    status: str


class HallucinationWindow(msgspec.Struct, kw_only=True, frozen=True):
    """Some turns of a session, and the replies among them that are audited here, each in one window only.

    `passages` are those of the session up to the last audited reply. `open_claims` come from the windows before.
    `turns` begin before the audited ones, so that what they answer is seen.
    """

    window_id: str
    turns: tuple[SessionTurn, ...]
    audited: tuple[int, ...]
    passages: tuple[LabelledPassage, ...]
    open_claims: tuple[OpenClaim, ...] = ()
    high_risk: bool = False

    def turn(self, index: int) -> SessionTurn | None:
        """Give a shown turn by its index in the session, or None."""
        return next((turn for turn in self.turns if turn.index == index), None)

    def passage(self, label: str, turn: int) -> LabelledPassage | None:
        """Give a passage by its label for a claim of a turn: its own goes before an older one of the same text."""
        return for_turn(self.passages, label, turn)


def auditable(session: Session) -> list[SessionTurn]:
    """Give the assistant turns with an evidence entry; a reply that was cut off can't be audited."""
    return [turn for turn in answers(session) if turn.evidence is not None and not turn.cut_off]


def answers(session: Session) -> list[SessionTurn]:
    """Give the assistant turns that say something."""
    return [turn for turn in session.turns if turn.role == "assistant" and plain(turn.text)]


def windows(session: Session, size: int, overlap: int) -> tuple[HallucinationWindow, ...]:
    """Cut a session into windows of at most `size` assistant turns, each showing the last `overlap` before it.

    What a window shows of the one before is context: it was audited there.
    """
    said = answers(session)
    audited = {turn.index for turn in auditable(session)}
    passages = labelled(session)
    cut: list[HallucinationWindow] = []
    start = 0
    while start < len(said):
        shown = said[start : start + size]
        fresh = shown if start == 0 else shown[overlap:]
        mine = tuple(turn.index for turn in fresh if turn.index in audited)
        if mine:
            cut.append(_window(session, f"W{len(cut) + 1}", shown, mine, passages))
        if start + size >= len(said):
            break
        start += size - overlap
    return tuple(cut)


def _window(
    session: Session,
    window_id: str,
    shown: Sequence[SessionTurn],
    audited: tuple[int, ...],
    found: Sequence[LabelledPassage],
) -> HallucinationWindow:
    first, last = shown[0].index, shown[-1].index
    while first > 0 and session.turns[first - 1].role != "assistant":
        first -= 1
    return HallucinationWindow(
        window_id=window_id,
        turns=session.turns[first : last + 1],
        audited=audited,
        passages=tuple(passage for passage in found if passage.turn <= audited[-1]),
        high_risk=session.attributes.risk_level == "high",
    )
