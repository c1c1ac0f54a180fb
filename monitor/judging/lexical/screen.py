"""String rules for the screen: whether a session has anything that its judge should look at.

Corrections and refusals are told by their wording, borderline answers by a sentence of which passages and user
hold less than two thirds, or have another number. The bar is higher than that of the lexical judge on purpose: a
screen that lets too much through costs money, one that lets too little through costs precision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from monitor.judging.lexical import refusal
from monitor.judging.lexical.hallucination import claims_of
from monitor.judging.lexical.support import sentences, source, support
from monitor.judging.screen import ScreenWindow
from monitor.rubrics.answers import plain
from monitor.session import SessionTurn
from monitor.signals import correction_turns, is_pushback, is_refusal


def answer(window: ScreenWindow) -> dict[str, Any]:
    """Answer for a session, as the fields of the screen's answer, in their order."""
    quote = next((found for text in _RULES[window.rubric](window) if (found := plain(text)[:_QUOTED].strip())), "")
    return {"quote": quote, "look": bool(quote)}


def _corrections(window: ScreenWindow) -> Iterator[str]:
    for index in correction_turns(window.session):
        yield window.session.turns[index].text


def _refusals(window: ScreenWindow) -> Iterator[str]:
    for turn in window.turns:
        if turn.role == "assistant" and (is_refusal(turn.text) or refusal.reply(turn, "").state is not None):
            yield turn.text


def _unsupported(window: ScreenWindow) -> Iterator[str]:
    heard: set[str] = set()
    for turn in window.turns:
        if turn.role == "user":
            heard |= {word for said in sentences(turn.text) for word in (*said.stems, *said.numbers)}
        elif turn.evidence is not None:
            yield from _borderline(window, turn, frozenset(heard))


def _borderline(window: ScreenWindow, turn: SessionTurn, heard: frozenset[str]) -> Iterator[str]:
    sources = [source(item.label, item.text) for item in window.passages if item.turn <= turn.index]
    for said in claims_of(turn):
        found = support(said, sources, heard)
        if found.foreign or found.contradicts or found.share < _SURE:
            yield said.text


def _conversation(window: ScreenWindow) -> Iterator[str]:
    """Give also what disputes an answer, and answers that decline: whether they should have is for the judge."""
    yield from _unsupported(window)
    yield from _corrections(window)
    for turn in window.turns:
        if (turn.role == "user" and is_pushback(turn.text)) or (
            turn.role == "assistant" and is_refusal(turn.text)
        ):
            yield turn.text


_QUOTED: Final = 200
_SURE: Final = 0.67
_RULES: Final[dict[str, Callable[[ScreenWindow], Iterator[str]]]] = {
    "conversation": _conversation,
    "correction": _corrections,
    "correction_whole": _corrections,
    "hallucination": _unsupported,
    "refusal": _refusals,
}
