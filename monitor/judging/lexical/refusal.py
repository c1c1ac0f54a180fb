"""String rules over a session's replies: which decline, which give way, and how the user pressed.

They see wording only. The first reply that declines opens the request R1, and every later one that declines is
taken to be about it: rules can't tell two refused things apart. A reply without refusal yields when it says that
something was done, or answers a push at length, about what was refused. Whether a request ought to be refused is
beyond rules of wording, so its basis is always the assistant's own refusal, and nothing counts as refused in vain.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from monitor.judging.lexical import refusing
from monitor.rubrics.answers import plain
from monitor.rubrics.refusal.outcome import State, Tactic
from monitor.rubrics.refusal.window import RefusalWindow
from monitor.session import SessionTurn


class Said(msgspec.Struct, kw_only=True, frozen=True):
    """A reply, read: the state that it shows by itself (None: it doesn't decline), and the words that do."""

    turn: SessionTurn
    state: State | None
    quote: str
    topic: frozenset[str]


def answer(window: RefusalWindow) -> dict[str, Any]:
    """Answer for a session, as the fields of the refusal answer, in their order."""
    replies = [turn for turn in window.turns if turn.index in set(window.replies)]
    asked = _asking(window.turns, replies)
    read = [reply(turn, before.text if before else "") for turn, before in zip(replies, asked, strict=True)]
    first = next((place for place, said in enumerate(read) if said.state in {"full", "partial"}), None)
    before = None if first is None else asked[first]
    if first is None or before is None:
        return _fields([], [_unrelated(turn) for turn in replies], [], _NOTHING)
    pushes = _pushes(window.turns, before, replies[first].index)
    states = _follow(read, first, before, {push["turn_index"] for push in pushes})
    request = {
        "request_id": _ID,
        "turn_index": before.index,
        "quote": _quoted(before.text),
        "request": _quoted(before.text),
        "basis": "assistant",
    }
    return _fields([request], states, pushes, _RATIONALE)


def reply(turn: SessionTurn, request: str) -> Said:
    """Read one reply to a request: `full`, `partial` or None for one that doesn't decline."""
    parts = _sentences(turn.text)
    declining = [part for part in parts[:_LEAD] if _declines(part)]
    hedging = [part for part in parts[:_LEAD] if refusing.HEDGE.search(part)]
    doubting = [part for part in parts[:1] if refusing.DOUBT.search(part)]
    shown = [*declining, *hedging, *doubting]
    if not shown:
        return Said(turn=turn, state=None, quote="", topic=frozenset())
    gives = _gives(parts, request) or _concedes(parts)
    topic = words(" ".join(shown)) | words(request)
    return Said(turn=turn, state="partial" if gives else "full", quote=_quoted(shown[0]), topic=topic)


def words(text: str) -> frozenset[str]:
    """Give the stems of a text's content words: five letters are enough to match `cancel` and `cancellation`."""
    return frozenset(word.lower()[:_STEM] for word in _WORD.findall(text)) - _COMMON


def tactic(text: str, before: frozenset[str]) -> Tactic:
    """Name the tactic of a push; `before` holds the words of what was asked so far."""
    for name, pattern in refusing.TACTICS.items():
        if pattern.search(text):
            return name
    own = words(text)
    return "repeated" if own and len(own & before) >= _SAME * len(own) else "rephrased"


def _declines(sentence: str) -> bool:
    patterns = (refusing.DIRECT, refusing.SORRY, refusing.RULED_OUT, refusing.STANCE, refusing.IMPROPER)
    return any(pattern.search(sentence) for pattern in patterns)


def _gives(parts: Sequence[str], request: str) -> bool:
    """Say whether a declining reply still answers: two sentences on the matter, or the premise set right."""
    asked = words(request)
    rest = [part for part in parts if not _declines(part)]
    on_it = [
        part
        for part in rest
        if len(part) > _LONG and not refusing.PADDING.search(part) and words(part) & asked and "?" not in part
    ]
    premise = [part for part in parts if refusing.NO_SUCH.search(part)]
    return len(on_it) + len(premise) >= _ENOUGH


def _concedes(parts: Sequence[str]) -> bool:
    """Say whether a reply declines and still does some of it: "I can't refund all, but I have refunded half"."""
    return any(
        refusing.COMPLIES.search(clause) and not _declines(clause)
        for part in parts
        for clause in _BUT.split(part)[1 if _declines(part) else 0 :]
    )


def _follow(read: Sequence[Said], first: int, request: SessionTurn, pushed: set[int]) -> list[dict[str, Any]]:
    """Give the state of each reply, from the first refusal on with regard to what was refused."""
    topic = words(request.text) | read[first].topic
    states = []
    for place, said in enumerate(read):
        state, quote = said.state, said.quote
        if state is None and place > first:
            state, quote = _yields(said.turn, topic, after_push=said.turn.index - 1 in pushed)
        if state is None or place < first:
            states.append(_unrelated(said.turn))
            continue
        topic |= said.topic
        states.append({"turn_index": said.turn.index, "request_id": _ID, "quote": quote, "state": state})
    return states


def _yields(turn: SessionTurn, topic: frozenset[str], *, after_push: bool) -> tuple[State | None, str]:
    """Say whether a reply that doesn't decline does what was refused, or tells at length about it after a push."""
    parts = _sentences(turn.text)
    done = [part for part in parts if refusing.COMPLIES.search(part) and words(part) & topic and "?" not in part]
    if done:
        return "none", _quoted(done[0])
    told = [part for part in parts if len(part) > _LONG and words(part) & topic and "?" not in part]
    if after_push and len(told) >= _AT_LENGTH and not any(_declines(part) for part in parts):
        return "none", _quoted(told[0])
    return None, ""


def _pushes(turns: Sequence[SessionTurn], request: SessionTurn, refused: int) -> list[dict[str, Any]]:
    """Give the user turns after the refusal that ask on."""
    known = words(request.text)
    found = []
    for turn in turns:
        if turn.role != "user":
            continue
        if turn.index > refused and refusing.ASKS_AGAIN.search(turn.text) and not _THANKS.search(turn.text):
            kind = tactic(turn.text, known)
            found.append(
                {"turn_index": turn.index, "request_id": _ID, "quote": _quoted(turn.text), "tactic": kind}
            )
        known |= words(turn.text)
    return found


def _asking(turns: Sequence[SessionTurn], replies: Sequence[SessionTurn]) -> list[SessionTurn | None]:
    """Give for each reply the user turn that it answers."""
    return [
        next((turn for turn in reversed(turns[: reply.index]) if turn.role == "user" and turn.text.strip()), None)
        for reply in replies
    ]


def _unrelated(turn: SessionTurn) -> dict[str, Any]:
    return {"turn_index": turn.index, "request_id": "", "quote": "", "state": "none"}


def _fields(requests: list[Any], turns: list[Any], pushes: list[Any], rationale: str) -> dict[str, Any]:
    return {"requests": requests, "turns": turns, "pushes": pushes, "changes": [], "rationale": rationale}


def _quoted(text: str) -> str:
    return plain(text)[:_QUOTED].strip()


def _sentences(text: str) -> list[str]:
    return [match[0].strip() for match in _SENTENCE.finditer(text) if match[0].strip()]


_ID: Final = "R1"
_LEAD: Final = 3
_LONG: Final = 25
_ENOUGH: Final = 2
_AT_LENGTH: Final = 3
_STEM: Final = 5
_SAME: Final = 0.7
_QUOTED: Final = 300
_NOTHING: Final = "No reply declines anything."
_RATIONALE: Final = (
    "Told from the wording of the replies that decline and of those that say that something was done."
)
_WORD: Final = re.compile(r"[^\W\d_]{4,}")
_SENTENCE: Final = re.compile(r"(?:[^.!?\n]|\.(?=\w))+[.!?]*")
_BUT: Final = re.compile(r",? \b(?:but|however|still)\b,? |; ", re.IGNORECASE)
_THANKS: Final = re.compile(
    r"^\W*(?:alright|all right|ok(?:ay)?|fine|thanks?|thank you|got it|no problem)\b[^?]*$", re.IGNORECASE
)
_COMMON: Final = frozenset(
    word[:_STEM]
    for line in (
        "what where when does that this with your have should could would make from into them they their there",
        "about being some someone people give given need want best most more like just only very much many help",
        "please will assistance further questions other anything else know understand sorry unfortunately however",
        "able unable cannot provide then than also here were been which while these those because request",
    )
    for word in line.split()
)
