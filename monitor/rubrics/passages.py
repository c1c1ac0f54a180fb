"""Passages under labels of their own: a producer's ids need not be unique in a session."""

from __future__ import annotations

import msgspec

from monitor.session import Session


class LabelledPassage(msgspec.Struct, kw_only=True, frozen=True):
    """A passage, labelled `E<turn>.<place>` after the turn that it was retrieved for, and its place there."""

    label: str
    turn: int
    passage_id: str
    text: str


def labelled(session: Session) -> list[LabelledPassage]:
    """Give the passages of a session in the order of its turns."""
    return [
        LabelledPassage(label=f"E{turn.index}.{place}", turn=turn.index, passage_id=passage.id, text=passage.text)
        for turn in session.turns
        for place, passage in enumerate(turn.evidence or (), 1)
    ]
