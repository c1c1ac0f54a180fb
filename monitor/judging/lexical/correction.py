"""String rules over a correction's window.

They see wording only: whether replies name the new value or the old one, dispute the correction, or change another
detail. They can't tell a paraphrase from a silence: a correction whose values no reply mentions counts as taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import msgspec

from monitor.judging.lexical import wording
from monitor.rubrics.answers import plain
from monitor.rubrics.change import RETRACTS, Part, Text, read, rivals, swaps
from monitor.rubrics.correction.window import CorrectionWindow, change
from monitor.session import SessionTurn
from monitor.slots import distinct
from monitor.values import Token, Value, holds, names


class _Reply(msgspec.Struct, kw_only=True, frozen=True):
    """One reply: which parts of the change it has right, and which it has as they were."""

    index: int
    said: Text
    right: frozenset[int]
    wrong: frozenset[int]


def answer(window: CorrectionWindow) -> dict[str, Any]:
    """Answer for one window, as the fields of the correction answer, in their order."""
    said = read(window.event.text)
    parts = change(window)
    replies = [_reply(window, parts, turn) for turn in window.turns if turn.index in window.replies]
    seen = _Observed(window, said, parts, replies)
    mode = seen.mode()
    return _fields(window, parts, seen, mode)


class _Observed:
    """What the rules see in a window."""

    def __init__(
        self, window: CorrectionWindow, said: Text, parts: Sequence[Part], replies: Sequence[_Reply]
    ) -> None:
        self.window, self.said, self.parts, self.replies = window, said, parts, replies
        self.first = replies[0]
        self.retraction = not parts and bool(RETRACTS.search(window.event.text))
        self.disputed = _disputes(self.first.said.text)
        self.stale = [reply for reply in replies if reply.wrong]
        self.claimed = self._claimed()
        self.used = next((reply for reply in replies if reply.right), None) or (
            self.first if self.claimed else None
        )
        self.took_up = None if self.used else next((reply for reply in replies if self._takes_up(reply)), None)
        self.reverted = self._reverted()
        self.spilled = self._spilled()

    def mode(self) -> str:
        """Give the first failure mode that holds, in the rubric's order."""
        if self.disputed:
            return "contradicted"
        if self.used is None:
            if not self.stale and not self._rivals_stay():
                return "none"
            return "ignored" if self.took_up is None else "partial"
        if self.reverted is not None:
            return "reverted"
        return "partial" if self._missing() else "none"

    def _claimed(self) -> bool:
        """Say whether the first reply claims the change without naming it, and a later one goes back on that."""
        return (
            any(reply.wrong for reply in self.replies[1:])
            and not any(reply.right for reply in self.replies)
            and not self.first.wrong
            and wording.CLAIMS.search(self.first.said.text) is not None
        )

    def _missing(self) -> bool:
        """Say whether a part was never taken over while replies went on with what it should have replaced."""
        done = frozenset().union(*(reply.right for reply in self.replies))
        never = set(range(len(self.parts))) - done
        wrong = _wrong(self.window)
        return any(
            never & reply.wrong or (never and reply.right and _keeps_names(self.said, wrong, reply.said))
            for reply in self.replies
        )

    def _takes_up(self, reply: _Reply) -> bool:
        """Say whether a reply has words of the correction that no part holds: a name, or two in a row."""
        known = [*_wrong(self.window).tokens, *(token for part in self.parts for token in _tokens(part))]
        taken = [t.content and holds(reply.said.tokens, t) and not holds(known, t) for t in self.said.tokens]
        named = any(mine and token.strong for mine, token in zip(taken, self.said.tokens, strict=True))
        return named or any(one and two for one, two in pairwise(taken))

    def _rivals_stay(self) -> bool:
        return any(
            _keeps_rival(self.window, part, reply.said)
            for part in self.parts
            if part.new.kind != "word"
            for reply in self.replies
        )

    def _reverted(self) -> _Reply | None:
        done: set[int] = set(range(len(self.parts))) if self.claimed else set()
        for reply in self.replies:
            # Where the old value isn't known, a reply may just speak of something else.
            back = {part for part in done & reply.wrong if self.parts[part].old is not None}
            if back and not self._asked_for(back, reply.index):
                return reply
            done |= reply.right
        return None

    def _asked_for(self, back: set[int], index: int) -> bool:
        """Say whether the user went back to an old value: then naming it is no reversion."""
        asked = [
            read(turn.text).tokens
            for turn in self.window.turns
            if turn.role == "user" and self.window.event.turn < turn.index < index
        ]
        olds = [self.parts[part].old for part in back]
        return any(old is not None and names(tokens, old) for tokens in asked for old in olds)

    def _spilled(self) -> tuple[_Reply, str, str] | None:
        """Find another detail that the first reply changed without being asked."""
        if self.window.event.error is None or not self.first.right or self.disputed:
            return None
        for stated in _stated(self.window):
            found = _changed_besides(self.said, read(stated.text), self.first.said, self.parts)
            if found is not None:
                return self.first, *found
        return None


def _fields(window: CorrectionWindow, parts: Sequence[Part], seen: _Observed, mode: str) -> dict[str, Any]:
    failed = mode in {"contradicted", "ignored"}
    taken = seen.used or seen.took_up or seen.first
    first = -1 if failed and not (mode == "contradicted" and seen.used) else taken.index
    spilled = seen.spilled if mode != "contradicted" else None
    quoted = dict.fromkeys(
        [first, _index(seen.reverted, mode), seen.first.index, *([spilled[0].index] if spilled else [])]
    )
    thanks = _acknowledges(seen.first.said.text)
    found = {
        "is_correction": True,
        "targets_turn": -1 if window.event.error is None else window.event.error,
        "correction_id": window.window_id,
        "correction_turn_index": window.event.turn,
        "corrected_claim": ", ".join(part.old.text for part in parts if part.old),
        "correction_content": ", ".join(part.new.text for part in parts),
        "correction_type": _type(window, seen),
        "acknowledgment_quote": thanks,
        "incorporation_check_turns": list(window.replies),
        "incorporation_evidence": [_quote(window, index) for index in quoted if index >= 0],
        "first_right_use_turn_index": first,
        "reversion_turn_index": _index(seen.reverted, mode),
        "over_correction_detail": f"{spilled[1]} became {spilled[2]}" if spilled else "",
        "over_correction_turn_index": spilled[0].index if spilled else -1,
        "acknowledgment": _acknowledgment(seen, thanks, mode),
        "incorporation_accuracy": _ACCURACY[mode] if mode != "none" or seen.used else 4,
        "persistence": _persistence(seen, mode),
        "no_over_correction": 1 if spilled else 5,
        "failure_mode": mode,
        "rationale": _RATIONALES[mode],
    }
    return found if parts or found["correction_type"] == "retraction" else found | _UNSAID


def _tokens(part: Part) -> tuple[Token, ...]:
    return part.new.tokens + (part.old.tokens if part.old is not None else ())


def _index(reply: _Reply | None, mode: str) -> int:
    return reply.index if reply is not None and mode == "reverted" else -1


def _quote(window: CorrectionWindow, index: int) -> dict[str, Any]:
    turn = window.turn(index)
    return {"turn_index": index, "quote": plain(turn.text)[:_QUOTED] if turn is not None else ""}


def _reply(window: CorrectionWindow, parts: Sequence[Part], turn: SessionTurn) -> _Reply:
    said = read(turn.text)
    right = frozenset(i for i, part in enumerate(parts) if names(said.tokens, part.new))
    wrong = frozenset(i for i, part in enumerate(parts) if i not in right and _keeps_old(window, part, said))
    return _Reply(index=turn.index, said=said, right=right, wrong=wrong)


def _keeps_old(window: CorrectionWindow, part: Part, said: Text) -> bool:
    """Say whether a reply has the old value; when it isn't known, whether it restates the wrong turn."""
    if part.old is not None:
        return _names_old(part, part.old, said)
    return part.new.kind == "word" and _restates(read(window.event.text), _wrong(window), said)


def _names_old(part: Part, old: Value, said: Text) -> bool:
    """Say whether a text names an old value, in any format: of a name, what sets it apart from the new one does.

    A number counts only where it is said of the same thing: 20 minutes isn't the old budget of 20 dollars.
    """
    if old.kind == "number":
        return any(
            holds(item.tokens, old.tokens[0]) and _of_one_thing(part.slot, item.slot) for item in said.fillers
        )
    own = distinct(old, part.new)
    if old.kind == "word" and 0 < len(own) <= _SHORT_NAME and all(token.strong for token in own):
        return any(holds(said.tokens, token) for token in own)
    return names(said.tokens, old)


def _of_one_thing(one: str, other: str) -> bool:
    exact = ("count:", "money", "id:")
    return one == other or not (one.startswith(exact) and other.startswith(exact))


def _keeps_rival(window: CorrectionWindow, part: Part, said: Text) -> bool:
    return any(holds(said.tokens, token) for token in rivals(part.new, read(window.event.text), _wrong(window)))


def _stated(window: CorrectionWindow) -> list[SessionTurn]:
    """Give the corrected turn, and the assistant's last words before the correction."""
    before = [turn for turn in window.turns if turn.index < window.event.turn]
    last = [turn for turn in before if turn.role == "assistant"][-1:]
    wrong = [turn for turn in before if turn.index == window.event.error]
    return wrong if last == wrong else [*wrong, *last]


def _wrong(window: CorrectionWindow) -> Text:
    turn = None if window.event.error is None else window.turn(window.event.error)
    return read("" if turn is None else turn.text)


def _restates(correction: Text, wrong: Text, said: Text) -> bool:
    """Say whether a reply repeats values of the corrected turn that the user didn't name."""
    kept = [token for token in wrong.tokens if token.content and holds(said.tokens, token)]
    return len(kept) >= _ENOUGH and any(token.strong and not holds(correction.tokens, token) for token in kept)


def _keeps_names(correction: Text, wrong: Text, said: Text) -> bool:
    return any(
        token.strong and token.kind == "word" and not holds(correction.tokens, token) and holds(said.tokens, token)
        for token in wrong.tokens
    )


def _changed_besides(said: Text, wrong: Text, reply: Text, parts: Sequence[Part]) -> tuple[str, str] | None:
    """Find a detail of the corrected turn that the reply replaces by one that nobody asked for."""
    new = [token for part in parts for token in part.new.tokens]
    known = [*said.tokens, *(token for part in parts if part.old for token in part.old.tokens)]
    # The people of "for 3 people" only say what is counted.
    counted = {two.start for one, two in pairwise(reply.tokens) if one.kind == "number" and not two.strong}

    def lost(tokens: Sequence[Token]) -> list[Token]:
        return [t for t in tokens if t.content and not holds(reply.tokens, t) and not holds(known, t)]

    def fresh(tokens: Sequence[Token]) -> list[Token]:
        return [
            t
            for t in tokens
            if t.content and t.start not in counted and not holds(wrong.tokens, t) and not holds(known, t)
        ]

    blocks = [pair for pair in swaps(wrong, reply) if len(pair[0]) <= _SHORT and len(pair[1]) <= _SHORT]
    for before, after in [*blocks, (wrong.tokens, reply.tokens)]:
        exact = before is not wrong.tokens and not any(holds(new, token) for token in after)
        pair = _swapped(lost(before), fresh(after), exact=exact)
        if pair is not None:
            return _span(wrong, pair[0]), _span(reply, pair[1])
    return None


def _swapped(
    lost: Sequence[Token], fresh: Sequence[Token], *, exact: bool
) -> tuple[list[Token], list[Token]] | None:
    """Pair what went and what came: of one kind, and both plainly values unless they stand in one place."""
    for kind in ("word", "date", "time"):
        gone = [token for token in lost if token.kind == kind and token.strong]
        came = [token for token in fresh if token.kind == kind and (token.strong or exact)]
        if gone and came and _comparable(gone[0], came[0]):
            return gone, came
    return None


def _comparable(one: Token, other: Token) -> bool:
    """Say whether two dates are told in one way: "Thursday" and "March 3rd" may be the same day."""
    return one.kind != "date" or one.key.isdigit() == other.key.isdigit()


def _span(text: Text, tokens: Sequence[Token]) -> str:
    return text.text[tokens[0].start : tokens[-1].end]


def _type(window: CorrectionWindow, seen: _Observed) -> str:
    if seen.retraction:
        return "retraction"
    said = window.event.text
    for kind, pattern in wording.TYPES.items():
        if pattern.search(said):
            return kind
    return "preference_change"


def _acknowledgment(seen: _Observed, thanks: str, mode: str) -> int:
    if mode == "contradicted":
        return 1
    if thanks:
        return 5 if seen.first.right else 4
    return 3 if seen.first.right or (mode == "none" and not seen.used) else 1


def _persistence(seen: _Observed, mode: str) -> int:
    if mode == "none":
        return 5 if seen.used else 4
    if mode == "reverted" and seen.reverted is not None and seen.used is not None:
        order = [reply.index for reply in seen.replies]
        return 1 if order.index(seen.reverted.index) - order.index(seen.used.index) <= 1 else 2
    return 3 if mode == "partial" else 1


def _disputes(text: str) -> bool:
    return bool(wording.DISPUTE.search(text)) and not wording.AGREES.search(text)


def _acknowledges(text: str) -> str:
    match = wording.ACKNOWLEDGE.search(text)
    return match[0] if match else ""


_ENOUGH: Final = 2
_QUOTED: Final = 300
_SHORT: Final = 8
_SHORT_NAME: Final = 2
_ACCURACY: Final = {"contradicted": 1, "ignored": 1, "reverted": 2, "partial": 3, "none": 5}
# Without a right value there is nothing that a reply could have taken over.
_NO_TURN: Final = ("first_right_use_turn_index", "reversion_turn_index", "over_correction_turn_index")
_UNSAID: Final[dict[str, Any]] = dict.fromkeys(_NO_TURN, -1) | {
    "acknowledgment_quote": "",
    "incorporation_check_turns": [],
    "incorporation_evidence": [],
    "over_correction_detail": "",
    "failure_mode": "none",
    "rationale": "The correction doesn't say what is right.",
}
_RATIONALES: Final = {
    "contradicted": "The reply disputes the correction.",
    "ignored": "No reply uses the new value, and the old one stays.",
    "reverted": "The new value was used, and the old one came back without being asked for.",
    "partial": "Only part of the correction was taken.",
    "none": "No reply goes against the correction.",
}
