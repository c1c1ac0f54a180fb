"""Corrections in a session: which user turns correct something, and what they correct.

Candidate events come from the producer's correction events if the session has any, else from wording
(`monitor.signals`). At most `PER_TURN` events are read out of the wording of one turn. Where a model has looked
for corrections (`Session.extracted`), what it found takes the place of wording, beside the producer's events.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from monitor.contrast import Line
from monitor.events import Correction
from monitor.rubrics.answers import contains, plain
from monitor.rubrics.change import RETRACTS, SENTENCES, Part, Text, parts, read
from monitor.session import ExtractedCorrection, Session, SessionTurn
from monitor.signals import correction_turns, looks_like_correction
from monitor.slots import Filler
from monitor.values import Token, holds

PER_TURN: Final = 8


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


class Reading:
    """A session whose turns are scanned for values at most once each; made for one call and thrown away."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.turns = session.turns
        self._texts: dict[int, Text] = {}

    def text(self, index: int) -> Text:
        """Give a turn's text with its values."""
        if index not in self._texts:
            self._texts[index] = read(self.turns[index].text)
        return self._texts[index]

    def reply_before(self, index: int) -> str | None:
        """Give the assistant's last words before a turn."""
        return next((turn.text for turn in reversed(self.turns[:index]) if turn.role == "assistant"), None)

    def parts(self, event: CorrectionEvent, replies: Sequence[SessionTurn] = ()) -> tuple[Part, ...]:
        """Give what an event changes, by string rules; `replies` help to find the old values."""
        said = [self.text(turn.index) for turn in replies if turn.role == "assistant"]
        return changed(event, None if event.error is None else self.text(event.error), said)


def changed(event: CorrectionEvent, wrong: Text | None, replies: Sequence[Text]) -> tuple[Part, ...]:
    """Give what an event changes, given the turn that it corrects and the replies to it."""
    return parts(read(event.content or event.text), wrong or read(""), replies)


def events(session: Session) -> tuple[CorrectionEvent, ...]:
    """Give all candidate events of a session, C1, C2, ... in the order of their turns."""
    chat = Reading(session)
    if session.corrections or session.extracted is not None:
        found = [_produced(chat, event) for event in session.corrections]
        named = {event.turn for event in found}
        found += [_extracted(item) for item in session.extracted or () if item.turn not in named]
        found.sort(key=lambda event: event.turn)
    else:
        found = [event for index in correction_turns(session) for event in _worded(chat, index)]
    return tuple(msgspec.structs.replace(event, event_id=f"C{i}") for i, event in enumerate(found, 1))


def sample(session: Session, found: Sequence[CorrectionEvent], limit: int) -> tuple[CorrectionEvent, ...]:
    """Pick at most `limit` events by a coin that depends on nothing but the session and the event.

    A simple random sample without replacement: each event is in it with probability `limit / len(found)`.
    """
    picked = sorted(found, key=lambda event: _coin(session, event.event_id))[:limit]
    return tuple(event for event in found if event in picked)


def _produced(chat: Reading, event: Correction) -> CorrectionEvent:
    session = chat.session
    index = session.index_of(event.turn_id)
    if index is None:
        return _problem(-1, f"the correction names the turn {event.turn_id!r}, which this session doesn't have")
    turn = session.turns[index]
    error = session.index_of(event.error_turn_id) if event.error_turn_id else None
    mismatch = _mismatch(session, event, turn, error)
    if mismatch is not None:
        return _problem(index, mismatch)
    text = event.text or turn.text
    fits = error if error is not None else _error_turn(chat, index, text)
    found = CorrectionEvent(
        event_id="", turn=index, text=text, error=fits, error_named=error is not None,
        claim=event.corrected_claim or None, content=event.correction_content or None,
    )  # fmt: skip
    if _has_signal(chat, found):
        return found
    return _problem(index, f"turn {index} neither contradicts nor refines anything said before")


def _extracted(item: ExtractedCorrection) -> CorrectionEvent:
    """Take over what a model found: its answer was checked, and to ask the wording again would undo its purpose.

    The judge isn't held to the error turn, as it is to a producer's: it may know better, of a closer look.
    """
    return CorrectionEvent(
        event_id="", turn=item.turn, text=item.text, error=item.error, claim=item.claim, content=item.content
    )


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


def _has_signal(chat: Reading, event: CorrectionEvent) -> bool:
    said = chat.turns[event.turn].text
    if event.content or RETRACTS.search(said) or looks_like_correction(said, chat.reply_before(event.turn)):
        return True
    new = [token for part in chat.parts(event) for token in part.new.tokens]
    # One plain word ("Lovely.") refines nothing; a value, or a few words that are new, may.
    return len(new) > 1 or any(token.strong for token in new)


def _worded(chat: Reading, index: int) -> Iterator[CorrectionEvent]:
    """Give the corrections of a turn: several when several of its sentences each correct and say what is right."""
    whole = chat.turns[index].text
    split = _correcting_sentences(chat, index, chat.text(index).text)
    for text in split if len(split) > 1 else [whole]:
        yield CorrectionEvent(event_id="", turn=index, text=text.strip(), error=_error_turn(chat, index, text))


def _correcting_sentences(chat: Reading, index: int, whole: str) -> list[str]:
    sentences = list(SENTENCES.finditer(whole))
    if len(sentences) < 2:  # noqa: PLR2004 - one sentence can't be several corrections
        return []
    error = _error_turn(chat, index, whole)
    wrong = read("") if error is None else chat.text(error)
    reply = chat.reply_before(index)
    before = None if reply is None else Line(text=reply, by_user=False)
    found: dict[str, str] = {}
    for match in sentences:
        said = plain(match[0])
        if said in found:  # said twice, it is one correction
            continue
        if looks_like_correction(match[0], before) and parts(read(match[0]), wrong):
            found[said] = match[0]
        if len(found) == PER_TURN:
            break
    return list(found.values())


def _error_turn(chat: Reading, index: int, text: str) -> int | None:
    """Find the turn that a correction most likely corrects: the nearest one, either side, that fits it best.

    Without one it is the assistant's last turn when the words deny something, else none: a new wish.
    """
    content = [token for token in read(text).tokens if token.content]
    near = chat.turns[max(0, index - _LOOK_BACK) : index]
    wished = read(text).fillers
    fits = [
        (_fit(turn, chat.text(turn.index), content, wished), turn)
        for turn in near
        if turn.role in {"user", "assistant"}
    ]
    best = max(fits, key=lambda item: (item[0], item[1].index), default=None)
    if best is not None and best[0] > 0:
        return best[1].index
    replies = [turn.index for _, turn in fits if turn.role == "assistant"]
    return replies[-1] if replies and _DENIES.search(text) else None


def _fit(turn: SessionTurn, text: Text, content: Sequence[Token], wished: Sequence[Filler]) -> int:
    """Grade how well a turn fits as the corrected one: 2 has a value of that kind or asks to confirm, 1 may."""
    said = text.tokens
    if any(
        token.kind in {"time", "date", "number"} and any(other.kind == token.kind for other in said)
        for token in content
    ):
        return 2
    if any(
        one.fits(item) and not one.agrees(item)
        for one in wished
        if one.slot not in _LOOSE
        for item in text.fillers
    ):
        return 2
    if turn.role == "assistant" and _CONFIRMS.search(turn.text) and any(token.strong for token in said):
        return 2
    proper = any(token.strong and token.kind == "word" for token in content)
    return int(
        any(holds(said, token) for token in content)
        or (proper and any(token.strong and token.kind == "word" for token in said))
    )


def _says(text: str, claim: str) -> bool:
    wanted = [token for token in read(claim).tokens if token.content]
    said = read(text).tokens
    return not wanted or any(holds(said, token) for token in wanted)


def _coin(session: Session, event_id: str) -> bytes:
    parts_ = (session.tenant, session.session_id, session.segment, event_id)
    joined = b"".join(len(raw := part.encode("utf-8", "replace")).to_bytes(4, "big") + raw for part in parts_)
    return hashlib.blake2b(joined, digest_size=8, person=b"events").digest()


_LOOK_BACK: Final = 8
_LOOSE: Final = frozenset({"name", "id"})
_CONFIRMS: Final = re.compile(
    r"\b(?:confirm|verify|correct|right|is that ok(?:ay)?|sound good|shall i|should i|do you want me to)\b",
    re.IGNORECASE,
)
_DENIES: Final = re.compile(
    r"\b(?:no|nope|not|wrong|incorrect|isn't|wasn't|aren't|don't|didn't|mistake[n]?|actually|instead)\b",
    re.IGNORECASE,
)
