"""The window around a correction: what is shown to a judge.

A window holds the turn with the error, the correction, the next assistant turns, and later assistant turns that
name the old or the new value; a later correction of the same thing ends it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from monitor.judgement import Skipped
from monitor.rubrics.answers import plain
from monitor.rubrics.change import Part, read
from monitor.rubrics.correction.events import CorrectionEvent, Reading, changed
from monitor.session import SessionTurn
from monitor.values import holds, names


class CorrectionWindow(msgspec.Struct, kw_only=True, frozen=True):
    """What one question to the judge shows. `turns` keep their session indices, in order.

    `replies` are the assistant turns after the correction that can be evaluated; `unobserved` says that fewer
    than wanted were there to see. `skip` says why the window must not be sent.
    """

    window_id: str
    event: CorrectionEvent
    turns: tuple[SessionTurn, ...]
    replies: tuple[int, ...]
    unobserved: bool
    superseded_by: int | None = None
    skip: Skipped | None = None

    def turn(self, index: int) -> SessionTurn | None:
        """Give a shown turn by its session index, or None."""
        return next((turn for turn in self.turns if turn.index == index), None)


def window(
    chat: Reading, found: Sequence[CorrectionEvent], event: CorrectionEvent, replies: int
) -> CorrectionWindow:
    """Build the window of one of the session's events; `replies` is how many assistant turns it follows up."""
    if event.problem is not None:
        turns = () if event.turn < 0 else (chat.turns[event.turn],)
        return _window(event, turns, (), skip=Skipped(reason="misaligned", note=event.problem))
    end = _superseded_by(chat, found, event)
    after = chat.turns[event.turn + 1 : end]
    near = _near(after, replies)
    later = _later(chat, event, after[len(near) :])
    shown = (*_before(chat, event), chat.turns[event.turn], *near, *later)
    # A blank reply says nothing that could be judged or quoted.
    answers = [turn for turn in (*near, *later) if turn.role == "assistant" and plain(turn.text)]
    return _window(
        event,
        shown,
        tuple(turn.index for turn in answers if not turn.cut_off),
        unobserved=sum(turn.role == "assistant" for turn in near) < replies,
        superseded_by=end,
        skip=_skip(chat, found, event, answers, end),
    )


def change(shown: CorrectionWindow) -> tuple[Part, ...]:
    """Give what a window's correction changes, by string rules."""
    replies = [read(turn.text) for turn in shown.turns if turn.index in shown.replies]
    wrong = None if shown.event.error is None else shown.turn(shown.event.error)
    return changed(shown.event, None if wrong is None else read(wrong.text), replies)


def corrects(shown: CorrectionWindow, index: int) -> bool:
    """Say whether a turn is the one that the event corrects, or says the same wrong thing.

    What was wrong often stands in several turns, and a judge may name another one of them than the producer.
    """
    if index == shown.event.error:
        return True
    named = None if shown.event.error is None else shown.turn(shown.event.error)
    other = shown.turn(index)
    if named is None or other is None:
        return False
    wrong, said = read(named.text).tokens, read(other.text).tokens
    olds = [part.old for part in change(shown) if part.old is not None and names(wrong, part.old)]
    claimed = [token for token in read(shown.event.claim or "").tokens if token.content and holds(wrong, token)]
    repeats = bool(claimed) and all(holds(said, token) for token in claimed)
    return repeats or any(names(said, old) for old in olds)


def _window(
    event: CorrectionEvent,
    turns: Sequence[SessionTurn],
    replies: tuple[int, ...],
    *,
    unobserved: bool = True,
    superseded_by: int | None = None,
    skip: Skipped | None = None,
) -> CorrectionWindow:
    return CorrectionWindow(
        window_id=event.event_id,
        event=event,
        turns=tuple(turn for turn in turns if turn.role in {"user", "assistant"}),
        replies=replies,
        unobserved=unobserved,
        superseded_by=superseded_by,
        skip=skip,
    )


def _before(chat: Reading, event: CorrectionEvent) -> tuple[SessionTurn, ...]:
    first = max(0, event.turn - _CONTEXT)
    near = chat.turns[first : event.turn]
    return (chat.turns[event.error], *near) if event.error is not None and event.error < first else near


def _near(after: Sequence[SessionTurn], replies: int) -> tuple[SessionTurn, ...]:
    seen = 0
    for position, turn in enumerate(after, 1):
        seen += turn.role == "assistant"
        if seen == replies:
            return tuple(after[:position])
    return tuple(after)


def _later(chat: Reading, event: CorrectionEvent, rest: Sequence[SessionTurn]) -> tuple[SessionTurn, ...]:
    """Give later assistant turns that name the old or the new value, each with the user turn that it answers."""
    if not rest:
        return ()
    parts = chat.parts(event, chat.turns[event.turn + 1 : rest[0].index])
    values = [value for part in parts for value in (part.new, part.old) if value]
    wanted: list[SessionTurn] = []
    asked: SessionTurn | None = None
    for turn in rest:
        if turn.role == "user":
            asked = turn
        elif turn.role == "assistant" and any(names(chat.text(turn.index).tokens, value) for value in values):
            wanted += [turn] if asked is None else [asked, turn]
            asked = None
    return tuple(wanted)


def _superseded_by(chat: Reading, found: Sequence[CorrectionEvent], event: CorrectionEvent) -> int | None:
    """Find the turn of the next correction that changes the same thing again."""
    later = [other for other in found if other.turn > event.turn and other.problem is None]
    mine = _changes(chat, event) if later else ()
    for other in later:
        if _TAKES_BACK.search(other.text):
            return other.turn
        if any(_replaces(two, one) for two in _changes(chat, other) for one in mine):
            return other.turn
    return None


def _changes(chat: Reading, event: CorrectionEvent) -> tuple[Part, ...]:
    return chat.parts(event, _near(chat.turns[event.turn + 1 :], _FEW))


def _replaces(two: Part, one: Part) -> bool:
    """Say whether a second change replaces the first: gives up what it touched, for something else."""
    if two.old is None or names(two.new.tokens, one.new):
        return False
    return names(two.old.tokens, one.new) or (one.old is not None and names(two.old.tokens, one.old))


def _skip(
    chat: Reading,
    found: Sequence[CorrectionEvent],
    event: CorrectionEvent,
    answers: Sequence[SessionTurn],
    end: int | None,
) -> Skipped | None:
    if chat.session.was_cut and event.turn == found[-1].turn:
        return Skipped(reason="cut_off", note="the last correction of a session that was cut here")
    if not answers:
        if end is not None:
            return Skipped(reason="superseded", note=f"turn {end} corrects the same before any reply")
        return Skipped(reason="no_response", note="no reply after the correction")
    if answers[0].cut_off:
        return Skipped(reason="cut_off", note=f"the reply in turn {answers[0].index} was cut off")
    return None


_CONTEXT: Final = 2
_FEW: Final = 2
_TAKES_BACK: Final = re.compile(
    r"\b(?:keep|leave|go back to|stick with|back to) (?:it|the (?:original|old|first|previous))\b"
    r"|\bas (?:it|they) (?:was|were)(?: before)?\b|\bi was right (?:the first time|before)\b",
    re.IGNORECASE,
)
