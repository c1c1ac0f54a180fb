"""Passages under labels of their own: a producer's ids need not be unique in a session."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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


def texts(passages: Iterable[LabelledPassage]) -> list[dict[str, str]]:
    """Give what the prompt prints of each passage: its text, or which one before it has the same (`same_as`)."""
    first: dict[str, str] = {}
    return [
        {"text": passage.text}
        if (label := first.setdefault(passage.text, passage.label)) == passage.label
        else {"same_as": label}
        for passage in passages
    ]


def for_turn(passages: Sequence[LabelledPassage], label: str, turn: int) -> LabelledPassage | None:
    """Give a passage by its label: if it is an older one whose text the turn has as well, the turn's own."""
    named = next((passage for passage in passages if passage.label == label), None)
    if named is None or named.turn >= turn:
        return named
    return next((passage for passage in passages if passage.turn == turn and passage.text == named.text), named)
