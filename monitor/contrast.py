"""Value contrast: a user states another value where one was put forward, with or without a word that says so.

"Booked for 5 pm." - "6 pm, please." has no marker word. What tells it from an answer, a choice or a new wish is what
was said before: a value in the same slot that was put forward as settled, and no question that asks for a new one.
Pure, cheap, English; `monitor.signals` counts it as a correction.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from monitor.values import STOP_WORDS, Token, class_of, same, scan


class Filler(msgspec.Struct, kw_only=True, frozen=True):
    """A value in its slot: what it says and what it is said of, e.g. `count:people` for the 4 of "4 guests"."""

    slot: str
    tokens: tuple[Token, ...]

    def agrees(self, other: Filler) -> bool:
        """Say whether both may name one thing: "Hyatt" and "Hyatt Hotel" do."""
        return any(same(one, two) for one in self.tokens for two in other.tokens if one.content and two.content)


def fillers(text: str) -> tuple[Filler, ...]:
    """Give the values of a text, each in its slot, in order."""
    return tuple(_fillers(text, scan(text)))


def contrasts(text: str, reply: str, earlier: Sequence[str] = ()) -> bool:
    """Say whether a user's turn puts another value where the reply, or what came before it, has one.

    `reply` is the assistant's last turn; `earlier` what both sides stated before it, the newest first.
    """
    text = text[:_LONGEST]
    if not _VALUE.search(text) or _ACCEPTS.search(text) or _ADDS.search(text) or _OPENS.search(reply):
        return False
    wished = [item for sentence in _sentences(text) if not _ASKS.search(sentence) for item in fillers(sentence)]
    if not wished:
        return False
    reply = reply[-_LONGEST:]
    asked = _asked(reply)
    free = [item for item in wished if not _is_asked(item, asked)]
    if not free:
        return False
    put = [item for sentence in _sentences(reply) for item in _put_forward(sentence)]
    said = fillers(reply)
    if any(_rivals(item, put, said) for item in free):
        return True
    return bool(earlier) and _amends_earlier(free, said, earlier, short=len(text) <= _SHORT)


def _amends_earlier(free: Sequence[Filler], said: Sequence[Filler], earlier: Sequence[str], *, short: bool) -> bool:
    """Compare with what was settled before the last reply: only slots that name what they are of."""
    sure = [item for item in free if item.slot.startswith(_SURE) or (short and item.slot in _TYPED)]
    for before in earlier:
        if not sure:
            return False
        stated = [item for sentence in _sentences(before[:_LONGEST]) for item in _put_forward(sentence)]
        if any(_rivals(item, stated, said) for item in sure):
            return True
        # The newest word on a slot is what counts.
        slots = {item.slot for item in stated}
        sure = [item for item in sure if item.slot not in slots]
    return False


def _rivals(item: Filler, put: Sequence[Filler], said: Sequence[Filler]) -> bool:
    """Say whether something else was put forward for the slot of an item, and the item itself wasn't named."""
    if any(item.agrees(other) for other in said):
        return False
    rivals = [other for other in put if _fits(item.slot, other.slot)]
    # Three and more are a list to choose from.
    return 0 < len(rivals) < _LIST and not any(item.agrees(other) for other in rivals)


def _fits(one: str, other: str) -> bool:
    return one == other or (one == "number" and other.startswith("count:"))


def _put_forward(sentence: str) -> tuple[Filler, ...]:
    """Give the values that a sentence puts forward as settled: no facts, no choices, nothing that it declines."""
    if not _SETTLES.search(sentence) or _DECLINES.search(sentence) or _CHOICE.search(sentence):
        return ()
    return fillers(sentence)


def _asked(reply: str) -> set[str]:
    """Give the kinds of value that a reply asks for; `any` when it can't be told which."""
    found: set[str] = set()
    for sentence in _sentences(reply):
        if _REQUESTS.search(sentence):
            kinds = {kind for kind, pattern in _KINDS.items() if pattern.search(sentence)}
            found |= kinds or {"any"}
    return found


def _is_asked(item: Filler, asked: set[str]) -> bool:
    if "any" in asked:
        return True
    return any(item.slot.startswith(prefix) for kind in asked for prefix in _ANSWERS[kind])


def _fillers(text: str, tokens: Sequence[Token]) -> Iterator[Filler]:
    skip = 0
    for at, token in enumerate(tokens):
        if at < skip:
            continue
        if token.kind in {"time", "date"}:
            yield Filler(slot=token.kind, tokens=(token,))
        elif token.kind == "number":
            yield Filler(slot=_number_slot(text, tokens, at), tokens=(token,))
        elif (kind := class_of(token)) is not None:
            yield Filler(slot=kind, tokens=(token,))
        elif token.strong:
            run = _proper_run(text, tokens, at)
            skip = at + len(run)
            slot = _name_slot(tokens, at, run)
            if slot is not None:
                yield Filler(slot=slot, tokens=tuple(run))


def _number_slot(text: str, tokens: Sequence[Token], at: int) -> str:
    token = tokens[at]
    following = [other.key for other in tokens[at + 1 : at + 3] if other.kind == "word"]
    if text[max(0, token.start - 1) : token.start] in _SIGNS or (following and following[0] in _MONEY):
        return "money"
    for key in following:
        if key in STOP_WORDS:
            break
        if key in _PEOPLE:
            return "count:people"
    near = tokens[at + 1] if at + 1 < len(tokens) else None
    if near is not None and near.kind == "word" and near.content and text[token.end : near.start].isspace():
        return f"count:{near.key}"
    return "id" if len(token.key) >= _ID else "number"


def _proper_run(text: str, tokens: Sequence[Token], at: int) -> list[Token]:
    run = [tokens[at]]
    for token in tokens[at + 1 :]:
        if not (token.strong and token.kind in {"word", "number"} and text[run[-1].end : token.start] in _GAPS):
            break
        run.append(token)
    return run


def _name_slot(tokens: Sequence[Token], at: int, run: Sequence[Token]) -> str | None:
    if run[0].key in _TITLES:
        return f"title:{run[0].key}" if len(run) > 1 else None
    for token in reversed(tokens[max(0, at - 3) : at]):
        if token.key in _PLACES:
            return f"place:{token.key}"
        if token.key not in _ARTICLES:
            break
    return "name"


def _sentences(text: str) -> Iterable[str]:
    return (match[0] for match in _SENTENCE.finditer(text))
