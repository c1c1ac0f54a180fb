"""Corrections in a session, and the window around each one that is shown to a judge.

Candidate events come from the producer's correction events if the session has any, else from wording
(`monitor.signals`). A window holds the turn with the error, the correction, the next assistant turns, and later
assistant turns that name the old or the new value; a later correction of the same thing ends it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from monitor.events import Correction
from monitor.judgement import Skipped
from monitor.rubrics.answers import contains, plain
from monitor.rubrics.change import SENTENCES, Part, Text, parts, read
from monitor.rubrics.values import Token, holds, names
from monitor.session import Session, SessionTurn
from monitor.signals import correction_turns, looks_like_correction


class CorrectionEvent(msgspec.Struct, kw_only=True, frozen=True):
    """One candidate event. `turn` is -1 when the producer named a turn that isn't in the session.

    `text` is the part of the turn that corrects. `error` is the turn with what is corrected: the one that the
    producer named (`error_named`), else the nearest one that fits, else None.
    """

    event_id: str
    turn: int
    text: str
    error: int | None
    error_named: bool = False
    claim: str | None = None
    content: str | None = None
    problem: str | None = None


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


def events(session: Session) -> tuple[CorrectionEvent, ...]:
    """Give all candidate events of a session, C1, C2, ... in the order of their turns."""
    if session.corrections:
        found = [_produced(session, event) for event in session.corrections]
        found.sort(key=lambda event: event.turn)
    else:
        found = [event for index in correction_turns(session) for event in _worded(session, index)]
    return tuple(msgspec.structs.replace(event, event_id=f"C{i}") for i, event in enumerate(found, 1))


def sample(session: Session, found: Sequence[CorrectionEvent], limit: int) -> tuple[CorrectionEvent, ...]:
    """Pick at most `limit` events by a coin that depends on nothing but the session and the event.

    A simple random sample without replacement: each event is in it with probability `limit / len(found)`.
    """
    picked = sorted(found, key=lambda event: _coin(session, event.event_id))[:limit]
    return tuple(event for event in found if event in picked)


def window(
    session: Session, found: Sequence[CorrectionEvent], event: CorrectionEvent, replies: int
) -> CorrectionWindow:
    """Build the window of one of the session's events; `replies` is how many assistant turns it follows up."""
    if event.problem is not None:
        turns = () if event.turn < 0 else (session.turns[event.turn],)
        return _window(event, turns, (), skip=Skipped(reason="misaligned", note=event.problem))
    end = _superseded_by(session, found, event)
    after = session.turns[event.turn + 1 : end]
    near = _near(after, replies)
    later = _later(session, event, after[len(near) :])
    shown = (*_before(session, event), session.turns[event.turn], *near, *later)
    # A blank reply says nothing that could be judged or quoted.
    answers = [turn for turn in (*near, *later) if turn.role == "assistant" and plain(turn.text)]
    return _window(
        event,
        shown,
        tuple(turn.index for turn in answers if not turn.cut_off),
        unobserved=sum(turn.role == "assistant" for turn in near) < replies,
        superseded_by=end,
        skip=_skip(session, found, event, answers, end),
    )


def change(shown: CorrectionWindow) -> tuple[Part, ...]:
    """Give what a window's correction changes, by string rules."""
    replies = [read(turn.text) for turn in shown.turns if turn.index in shown.replies]
    return _parts(shown.event, shown.turns, replies)


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


def _produced(session: Session, event: Correction) -> CorrectionEvent:
    index = session.index_of(event.turn_id)
    if index is None:
        return _problem(-1, f"the correction names the turn {event.turn_id!r}, which this session doesn't have")
    turn = session.turns[index]
    error = session.index_of(event.error_turn_id) if event.error_turn_id else None
    mismatch = _mismatch(session, event, turn, error)
    if mismatch is not None:
        return _problem(index, mismatch)
    text = event.text or turn.text
    fits = error if error is not None else _error_turn(session, index, text)
    found = CorrectionEvent(
        event_id="", turn=index, text=text, error=fits, error_named=error is not None,
        claim=event.corrected_claim or None, content=event.correction_content or None,
    )  # fmt: skip
    if _has_signal(session, found):
        return found
    return _problem(index, f"turn {index} neither contradicts nor refines anything said before")


def _mismatch(session: Session, event: Correction, turn: SessionTurn, error: int | None) -> str | None:
    """Say where a producer's event and the turns that it names disagree."""
    if turn.role != "user":
        return f"the correction names turn {turn.index}, which is the {turn.role}'s, not the user's"
    if event.text and not contains(turn.text, event.text):
        return f"the text of the correction isn't in turn {turn.index}"
    if event.error_turn_id and (error is None or error >= turn.index):
        return f"the error turn {event.error_turn_id!r} isn't before turn {turn.index} in this session"
    if error is not None and session.turns[error].role not in {"user", "assistant"}:
        return f"the error turn {error} is the {session.turns[error].role}'s, who makes no claims in a chat"
    if error is not None and event.corrected_claim and not _says(session.turns[error].text, event.corrected_claim):
        return f"turn {error} doesn't say what the correction claims that it does"
    return None


def _problem(turn: int, problem: str) -> CorrectionEvent:
    return CorrectionEvent(event_id="", turn=turn, text="", error=None, problem=problem)


def _has_signal(session: Session, event: CorrectionEvent) -> bool:
    before = next((turn.text for turn in reversed(session.turns[: event.turn]) if turn.role == "assistant"), None)
    whole = session.turns[event.turn].text
    if event.content or looks_like_correction(whole, before):
        return True
    new = [token for part in _parts(event, _before(session, event), ()) for token in part.new.tokens]
    # One plain word ("Lovely.") refines nothing; a value, or a few words that are new, may.
    return len(new) > 1 or any(token.strong for token in new)


def _worded(session: Session, index: int) -> Iterator[CorrectionEvent]:
    """Give the corrections of a turn: several when several of its sentences each correct and say what is right."""
    whole = session.turns[index].text
    before = next((turn.text for turn in reversed(session.turns[:index]) if turn.role == "assistant"), None)
    error = _error_turn(session, index, whole)
    wrong = read(session.turns[error].text if error is not None else "")
    split = [
        text
        for text in SENTENCES.findall(whole)
        if looks_like_correction(text, before) and parts(read(text), wrong)
    ]
    for text in split if len(split) > 1 else [whole]:
        fits = _error_turn(session, index, text)
        yield CorrectionEvent(event_id="", turn=index, text=text.strip(), error=fits)


def _error_turn(session: Session, index: int, text: str) -> int | None:
    """Find the turn that a correction most likely corrects: the nearest one, either side, that fits it best.

    Without one it is the assistant's last turn when the words deny something, else none: a new wish.
    """
    content = [token for token in read(text).tokens if token.content]
    said = [
        turn for turn in session.turns[max(0, index - _LOOK_BACK) : index] if turn.role in {"user", "assistant"}
    ]
    if said:
        best = max(said, key=lambda turn: (_fit(turn, content), turn.index))
        if _fit(best, content) > 0:
            return best.index
    replies = [turn.index for turn in said if turn.role == "assistant"]
    return replies[-1] if replies and _DENIES.search(text) else None


def _fit(turn: SessionTurn, content: Sequence[Token]) -> int:
    """Grade how well a turn fits as the corrected one: 2 has a value of that kind or asks to confirm, 1 may."""
    said = read(turn.text).tokens
    if any(
        token.kind in {"time", "date", "number"} and any(other.kind == token.kind for other in said)
        for token in content
    ):
        return 2
    if turn.role == "assistant" and _CONFIRMS.search(turn.text) and any(token.strong for token in said):
        return 2
    proper = any(token.strong and token.kind == "word" for token in content)
    return int(
        any(holds(said, token) for token in content)
        or (proper and any(token.strong and token.kind == "word" for token in said))
    )


def _before(session: Session, event: CorrectionEvent) -> tuple[SessionTurn, ...]:
    first = max(0, event.turn - _CONTEXT)
    near = session.turns[first : event.turn]
    return (session.turns[event.error], *near) if event.error is not None and event.error < first else near


def _near(after: Sequence[SessionTurn], replies: int) -> tuple[SessionTurn, ...]:
    seen = 0
    for position, turn in enumerate(after, 1):
        seen += turn.role == "assistant"
        if seen == replies:
            return tuple(after[:position])
    return tuple(after)


def _later(session: Session, event: CorrectionEvent, rest: Sequence[SessionTurn]) -> tuple[SessionTurn, ...]:
    """Give later assistant turns that name the old or the new value, each with the user turn that it answers."""
    if not rest:
        return ()
    replies = [
        read(turn.text) for turn in session.turns[event.turn + 1 : rest[0].index] if turn.role == "assistant"
    ]
    values = [
        value
        for part in _parts(event, _before(session, event), replies)
        for value in (part.new, part.old)
        if value
    ]
    wanted: list[SessionTurn] = []
    asked: SessionTurn | None = None
    for turn in rest:
        if turn.role == "user":
            asked = turn
        elif turn.role == "assistant" and any(names(read(turn.text).tokens, value) for value in values):
            wanted += [turn] if asked is None else [asked, turn]
            asked = None
    return tuple(wanted)


def _parts(event: CorrectionEvent, turns: Sequence[SessionTurn], replies: Sequence[Text]) -> tuple[Part, ...]:
    wrong = next((turn.text for turn in turns if turn.index == event.error), "")
    return parts(read(event.content or event.text), read(wrong), replies)


def _superseded_by(session: Session, found: Sequence[CorrectionEvent], event: CorrectionEvent) -> int | None:
    """Find the turn of the next correction that changes the same thing again."""
    later = [other for other in found if other.turn > event.turn and other.problem is None]
    mine = _changed(session, event) if later else ()
    for other in later:
        if _TAKES_BACK.search(other.text):
            return other.turn
        if any(_replaces(two, one) for two in _changed(session, other) for one in mine):
            return other.turn
    return None


def _changed(session: Session, event: CorrectionEvent) -> tuple[Part, ...]:
    after = _near(session.turns[event.turn + 1 :], _FEW)
    replies = [read(turn.text) for turn in after if turn.role == "assistant"]
    return _parts(event, _before(session, event), replies)


def _replaces(two: Part, one: Part) -> bool:
    """Say whether a second change replaces the first: gives up what it touched, for something else."""
    if two.old is None or names(two.new.tokens, one.new):
        return False
    return names(two.old.tokens, one.new) or (one.old is not None and names(two.old.tokens, one.old))


def _skip(
    session: Session,
    found: Sequence[CorrectionEvent],
    event: CorrectionEvent,
    answers: Sequence[SessionTurn],
    end: int | None,
) -> Skipped | None:
    if session.was_cut and event.turn == found[-1].turn:
        return Skipped(reason="cut_off", note="the last correction of a session that was cut here")
    if not answers:
        if end is not None:
            return Skipped(reason="superseded", note=f"turn {end} corrects the same before any reply")
        return Skipped(reason="no_response", note="no reply after the correction")
    if answers[0].cut_off:
        return Skipped(reason="cut_off", note=f"the reply in turn {answers[0].index} was cut off")
    return None


def _says(text: str, claim: str) -> bool:
    wanted = [token for token in read(claim).tokens if token.content]
    said = read(text).tokens
    return not wanted or any(holds(said, token) for token in wanted)


def _coin(session: Session, event_id: str) -> bytes:
    parts_ = (session.tenant, session.session_id, session.segment, event_id)
    joined = b"".join(len(raw := part.encode("utf-8", "replace")).to_bytes(4, "big") + raw for part in parts_)
    return hashlib.blake2b(joined, digest_size=8, person=b"events").digest()


_LOOK_BACK: Final = 8
_CONTEXT: Final = 2
_FEW: Final = 2
_CONFIRMS: Final = re.compile(
    r"\b(?:confirm|verify|correct|right|is that ok(?:ay)?|sound good|shall i|should i|do you want me to)\b",
    re.IGNORECASE,
)
_DENIES: Final = re.compile(
    r"\b(?:no|nope|not|wrong|incorrect|isn't|wasn't|aren't|don't|didn't|mistake[n]?|actually|instead)\b",
    re.IGNORECASE,
)
_TAKES_BACK: Final = re.compile(
    r"\b(?:keep|leave|go back to|stick with|back to) (?:it|the (?:original|old|first|previous))\b"
    r"|\bas (?:it|they) (?:was|were)(?: before)?\b|\bi was right (?:the first time|before)\b",
    re.IGNORECASE,
)
