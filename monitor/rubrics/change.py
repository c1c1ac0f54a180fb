"""What a correction changes: the new values it states and, where it can be told, the old ones they replace.

String rules over a correction, the turn that it corrects and the replies to it. They serve two ends: to find the
later turns that name either value (the window), and to let the lexical judge answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from functools import cached_property
from typing import Final

import msgspec

from monitor.contrast import Line, contrasts
from monitor.signals import looks_like_correction
from monitor.slots import Filler, fill
from monitor.values import Token, Value, group, holds, names, same, scan, value_of


class Part(msgspec.Struct, kw_only=True, frozen=True):
    """One thing that a correction changes; `old` is None when the string rules can't tell what it was.

    `slot` says what the old value is said of (`monitor.slots`), empty when it isn't known.
    """

    new: Value
    old: Value | None = None
    slot: str = ""


class Text(msgspec.Struct, kw_only=True, frozen=True, dict=True):
    """A text with its tokens."""

    text: str
    tokens: tuple[Token, ...]

    @cached_property
    def fillers(self) -> tuple[Filler, ...]:
        """Its values in their slots; looked for in the beginning only."""
        return fill(self.text, self.tokens[:_FAR])


def read(text: str) -> Text:
    """Scan a text once; of a very long one only the beginning."""
    text = text[:_LONGEST]
    return Text(text=text, tokens=scan(text))


def parts(correction: Text, error: Text, replies: Sequence[Text] = ()) -> tuple[Part, ...]:
    """Give what a correction changes. No parts: it doesn't say what is right.

    `error` is the turn that it corrects; `replies` help to find the old value of a free-form one: it is what the
    reply that uses the new value has put in its place.
    """
    given_up = _given_up(correction)
    values = _new_values(correction, error, given_up)
    return tuple(_part(value, correction, error, replies, given_up) for value in values)


def _part(value: Value, correction: Text, error: Text, replies: Sequence[Text], given_up: Sequence[Value]) -> Part:
    paired = _paired(value, correction, error)
    old = _old(value, correction, error, replies, given_up, paired)
    if old is not None and old.kind == "time" and value.kind == "number":
        value = _as_time(value)
    slot = paired.slot if paired is not None and old is not None and old.tokens == paired.tokens else ""
    return Part(new=value, old=old, slot=slot)


def _as_time(value: Value) -> Value:
    """Read "No, 7" as an hour where it replaces one."""
    (token,) = value.tokens[:1]
    return Value(tokens=(msgspec.structs.replace(token, kind="time", key=f"{token.key}:00"),), text=value.text)


def _paired(value: Value, correction: Text, error: Text) -> Filler | None:
    """Find what fills the slot of a new value in the corrected turn; with several, what stands in like words."""
    mine = [item for item in correction.fillers if any(same(token, value.tokens[0]) for token in item.tokens)]
    theirs = [
        item
        for item in error.fillers
        if any(one.fits(item) and not one.agrees(item) for one in mine)
        and not any(holds(correction.tokens, token) for token in item.tokens)
    ]
    beside = _neighbors(correction.tokens, value.tokens[0])
    return max(theirs, key=lambda item: len(beside & _neighbors(error.tokens, item.tokens[0])), default=None)


def _given_up(correction: Text) -> tuple[Value, ...]:
    """Find what the user names as wrong: "not X", "instead of X", "from X to ..."."""
    found = []
    for match in _GIVEN_UP.finditer(correction.text):
        start, end = next(
            match.span(name) for name in ("negated", "replaced", "source") if match[name] is not None
        )
        inside = [
            token for token in correction.tokens if start <= token.start and token.end <= end and token.content
        ]
        if inside:
            found.append(value_of(correction.text, inside))
    return tuple(found)


def _new_values(correction: Text, error: Text, given_up: Sequence[Value]) -> tuple[Value, ...]:
    wrong = {token.start for value in given_up for token in value.tokens}
    said = [token for token in correction.tokens if token.content and token.start not in wrong]
    fresh = [token for token in said if not holds(error.tokens, token)]
    strong = _in_correcting_sentence(correction, error, [token for token in fresh if token.strong])
    told = {token.start: token for token in (*strong, *_in_a_filled_slot(correction, error, fresh))}
    if told:
        return _distinct(group(correction.text, [told[start] for start in sorted(told)]))
    found = _pointed(correction, fresh) or (fresh if len(fresh) <= _MANY else [])
    # Nothing new: the user insists on, or goes back to, something that the corrected turn has as well.
    found = found or [token for token in said if token.strong] or _pointed(correction, said)
    return _distinct(group(correction.text, found) if any(t.strong for t in found) else _whole(correction, found))


def _whole(correction: Text, found: Sequence[Token]) -> tuple[Value, ...]:
    return (value_of(correction.text, found),) if found else ()


def _distinct(values: Sequence[Value]) -> tuple[Value, ...]:
    kept: list[Value] = []
    for value in values:
        if not any(names(other.tokens, value) for other in kept):
            kept.append(value)
    return tuple(kept)


def _in_correcting_sentence(correction: Text, error: Text, tokens: Sequence[Token]) -> list[Token]:
    """Leave out what other sentences chat about, if a sentence that corrects has any of the tokens."""
    sentences = list(SENTENCES.finditer(correction.text))
    if len(sentences) < 2:  # noqa: PLR2004 - nothing to leave out
        return list(tokens)
    wrong = Line(text=error.text, by_user=False)
    spans = [
        match.span() for match in sentences if looks_like_correction(match[0], None) or contrasts(match[0], wrong)
    ]
    inside = [token for token in tokens if any(start <= token.start < end for start, end in spans)]
    return inside or list(tokens)


def _in_a_filled_slot(correction: Text, error: Text, fresh: Sequence[Token]) -> list[Token]:
    """Give values, in whatever sentence, whose slot the corrected turn fills otherwise: "And is 11 am free?"."""
    starts = {token.start for token in fresh}
    return [
        token
        for item in correction.fillers
        if item.slot.startswith(_EXACT)
        and all(token.start in starts for token in item.tokens)
        and any(item.slot == other.slot and item.fits(other) and not item.agrees(other) for other in error.fillers)
        for token in item.tokens
    ]


def _pointed(correction: Text, said: Sequence[Token]) -> list[Token]:
    """Give the words that the wording points at, the last time it does: "to X", "it's X", "in X"."""
    found: list[Token] = []
    for match in _POINTS.finditer(correction.text):
        start, end = match.span("value")
        inside = [token for token in said if start <= token.start and token.end <= end]
        if inside and len(inside) <= _MANY:
            found = inside
    return found


def _old(
    value: Value,
    correction: Text,
    error: Text,
    replies: Sequence[Text],
    given_up: Sequence[Value],
    paired: Filler | None,
) -> Value | None:
    for candidate in given_up:
        of_kind = [token for token in candidate.tokens if token.kind == value.kind]
        if of_kind:
            return candidate if value.kind == "word" else value_of(correction.text, of_kind)
    beside = None if paired is None else value_of(error.text, paired.tokens)
    if value.kind != "word":
        return beside or _typed_old(value, correction, error)
    if paired is not None and not paired.slot.startswith(_OF_NAMES):
        return beside
    for reply in replies:
        if names(reply.tokens, value):
            found = _replaced(value, correction, error, reply)
            if found is not None:
                return found
    return beside


def rivals(value: Value, correction: Text, error: Text) -> list[Token]:
    """Give the values of the corrected turn that a typed new value could replace: those of its kind."""
    return [
        token
        for token in error.tokens
        if token.kind == value.kind and not holds(correction.tokens, token) and not same(token, value.tokens[0])
    ]


def _typed_old(value: Value, correction: Text, error: Text) -> Value | None:
    found = rivals(value, correction, error)
    if not found:
        return None
    beside = _neighbors(correction.tokens, value.tokens[0])
    best = max(found, key=lambda token: len(beside & _neighbors(error.tokens, token)))
    return value_of(error.text, [best])


def _replaced(value: Value, correction: Text, error: Text, reply: Text) -> Value | None:
    """Find what stood in the error turn where the reply now has the new value: by alignment, then by neighbors."""
    block = _aligned(value, error, reply) or _after_same_words(value, error, reply)
    gone: list[Token] = []
    for token in block:
        if not token.content or holds(reply.tokens, token) or holds(correction.tokens, token):
            if gone:
                break
        elif gone and token.kind != gone[0].kind:
            break
        else:
            gone.append(token)
    if all(token.strong for token in value.tokens):
        # A name stands for a name.
        gone = [token for token in gone if token.strong]
    return value_of(error.text, sorted(gone, key=lambda token: token.start)) if gone else None


def swaps(one: Text, other: Text) -> list[tuple[tuple[Token, ...], tuple[Token, ...]]]:
    """Align two texts word by word and give the blocks that differ: what stood there, what stands there."""
    matcher = SequenceMatcher(None, _keys(one.tokens[:_FAR]), _keys(other.tokens[:_FAR]), autojunk=False)
    return [(one.tokens[a:b], other.tokens[c:d]) for tag, a, b, c, d in matcher.get_opcodes() if tag == "replace"]


def _aligned(value: Value, error: Text, reply: Text) -> tuple[Token, ...]:
    """Give the replaced block, from the end at which the new value stands in the reply's."""
    for before, after in swaps(error, reply):
        places = [place for place, token in enumerate(after) if token.content and holds(value.tokens, token)]
        if places and len(before) <= 2 * _MANY:
            at_end = places[-1] == len(after) - 1 and places[0] > 0
            return before[::-1] if at_end else before
    return ()


def _after_same_words(value: Value, error: Text, reply: Text) -> tuple[Token, ...]:
    at = next((i for i, token in enumerate(reply.tokens) if holds(value.tokens, token)), 0)
    for width in (2, 1):
        lead = [token.key for token in reply.tokens[max(0, at - width) : at]]
        if len(lead) < width:
            continue
        for i in range(len(error.tokens) - width):
            if [token.key for token in error.tokens[i : i + width]] == lead:
                run = _until_known(error.tokens[i + width :], reply)
                if run:
                    return run
    return ()


def _until_known(tokens: Sequence[Token], reply: Text) -> tuple[Token, ...]:
    run: list[Token] = []
    for token in tokens[:4]:
        if holds(reply.tokens, token):
            break
        run.append(token)
    return tuple(run)


def _neighbors(tokens: Sequence[Token], token: Token) -> set[str]:
    at = next((i for i, other in enumerate(tokens) if other.start == token.start), 0)
    return {other.key for other in (*tokens[max(0, at - 2) : at], *tokens[at + 1 : at + 3])}


def _keys(tokens: Sequence[Token]) -> list[str]:
    return [f"{token.kind}:{token.key}" for token in tokens]


_LONGEST: Final = 20_000
# Of several names in a text, the one in like words may not be the one that is meant.
_OF_NAMES: Final = ("name", "place:")
# Slots that tell plainly what a value is said of.
_EXACT: Final = ("time", "date", "money", "count:", "class", "color", "size")
# Longer runs of words are a sentence, not a value.
_MANY: Final = 6
# Aligning takes time with the square of the length.
_FAR: Final = 400

_GIVEN_UP: Final = re.compile(
    r"\bnot (?:the |a |an |for |at |on |in |to )?(?P<negated>[^,.;!?]{1,40}?)(?=\s*(?:[,.;!?]|$|\bbut\b"
    r"|\bit's\b|\banymore\b))"
    r"|\b(?:instead of|rather than) (?P<replaced>[^,.;!?]{1,40})"
    r"|\bfrom (?P<source>[^,.;!?]{1,40}?) to\b",
    re.IGNORECASE,
)
# What is taken back may need no new value.
RETRACTS: Final = re.compile(
    r"\b(?:scratch|strike|disregard|ignore|forget|cancel|drop|remove|never ?mind) (?:that|this|it|what i|my"
    r"|the)\b"
    r"|\bnever ?mind\b|\bi take (?:that|it) back\b|\bi no longer\b|\b(?:don't|do not) (?:need|want) (?:it"
    r"|that|the)\b",
    re.IGNORECASE,
)
SENTENCES: Final = re.compile(r"[^.!?\n]+(?:[.!?](?!\s)[^.!?\n]*)*[.!?\n]*")
# Zero width, so that "for" in "to be for X" is tried as well.
_POINTS: Final = re.compile(
    r"(?=\b(?:to|be|is|it's|use|with|for|on|at|in|as|want|prefer|meant|make it|make that) (?:the |a |an |my )?"
    r"(?P<value>[^,.;!?]{1,50}))",
    re.IGNORECASE,
)
