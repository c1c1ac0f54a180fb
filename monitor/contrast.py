"""Value contrast: a user states another value where one was put forward, with or without a word that says so.

"Booked for 5 pm." - "6 pm, please." has no marker word. What tells it from an answer, a choice or a new wish is what
was said before: a value in the same slot that was put forward as settled, and no question that asks for a new one.
Pure, cheap, English; `monitor.signals` counts it as a correction.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from monitor.slots import CLASS_WORDS, Filler, fillers


class Line(msgspec.Struct, kw_only=True, frozen=True):
    """One turn said before: its text, and whether the user said it."""

    text: str
    by_user: bool


def asks_for(reply: str) -> frozenset[str]:
    """Give the kinds of value that an assistant's turn asks for: `time`, `count`, ...; `any` if it doesn't say."""
    found: set[str] = set()
    for sentence in _sentences(reply[-_LONGEST:]):
        if _REQUESTS.search(sentence):
            found.update({kind for kind, pattern in _KINDS.items() if pattern.search(sentence)} or {"any"})
    return frozenset(found)


def contrasts(text: str, reply: str, earlier: Sequence[Line] = ()) -> bool:
    """Say whether a user's turn puts another value where the reply, or what was said before it, has one.

    `reply` is the assistant's last turn, `earlier` what came before it, the newest first.
    """
    if len(text) > _LONGEST or not _VALUE.search(text) or not _speaks_to_it(text, reply):
        return False
    wished = [item for sentence in _sentences(text) if _wishes(sentence) for item in fillers(sentence)]
    asked = asks_for(reply) if wished else frozenset()
    free = [item for item in wished if not _answers(item, asked)]
    if not free:
        return False
    reply = reply[-_LONGEST:]
    put, said = _settled(reply, facts=bool(_STATES.search(text))), fillers(reply)
    if any(_replaces(item, put, said) for item in free):
        return True
    return _amends(free, said, earlier, short=len(text) <= _SHORT)


def _speaks_to_it(text: str, reply: str) -> bool:
    """Leave out what accepts, adds to what is settled, or starts on something else."""
    if _ADDS.search(text) or _OPENS.search(reply):
        return False
    return not _ACCEPTS.search(text) or _LIMITS.search(text) is not None


def _wishes(sentence: str) -> bool:
    return not _INQUIRES.search(sentence) and not _THANKS.search(sentence)


def _amends(free: Sequence[Filler], said: Sequence[Filler], earlier: Sequence[Line], *, short: bool) -> bool:
    """Compare with what was settled before the last reply: the newest word on a slot is what counts.

    Times and dates of a longer turn may be of anything, so only a short turn or a slot that names what it is of.
    """
    sure = [item for item in free if item.slot.startswith(_SURE) or (short and item.slot in _TYPED)]
    for line in earlier:
        if not sure:
            return False
        stated = fillers(line.text[:_LONGEST]) if line.by_user else _settled(line.text[:_LONGEST])
        if any(_replaces(item, stated, said) for item in sure):
            return True
        slots = {item.slot for item in stated}
        sure = [item for item in sure if item.slot not in slots]
    return False


def _replaces(item: Filler, put: Sequence[Filler], said: Sequence[Filler]) -> bool:
    """Say whether something else was put forward in the slot of an item, and the item itself wasn't said."""
    if any(item.agrees(other) for other in said):
        return False
    rivals = [other for other in put if item.fits(other)]
    # Three and more are a list to choose from.
    return 0 < len(rivals) < _LIST and not any(item.agrees(other) for other in rivals)


def _settled(text: str, *, facts: bool = False) -> list[Filler]:
    """Give what an assistant's turn puts forward: no choices, nothing that it declines, facts only if wanted."""
    return [
        item
        for sentence in _sentences(text)
        if (facts or _SETTLES.search(sentence)) and not _DECLINES.search(sentence) and not _CHOICE.search(sentence)
        for item in fillers(sentence)
    ]


def _answers(item: Filler, asked: frozenset[str]) -> bool:
    return "any" in asked or any(item.slot.startswith(_ANSWERS[kind]) for kind in asked)


def _sentences(text: str) -> Iterator[str]:
    return (match[0] for match in _SENTENCE.finditer(text))


# Corrections are short; and what is long costs time.
_LONGEST: Final = 600
_SHORT: Final = 40
_LIST: Final = 3

_TYPED: Final = frozenset({"time", "date", "money"})
_SURE: Final = ("count:", "title:", "id:", "color", "size", "class")

# A full stop ends a sentence unless it stands in "5.30", "p.m." or "Dr.".
_SENTENCE: Final = re.compile(
    r"(?:[^.!?\n]|(?<=\bdr)\.|(?<=\bmr)\.|(?<=\bms)\.|(?<=\bmrs)\.|(?<=\bst)\.|(?<=\b[ap])\.|(?<=\b[ap]\.m)\."
    r"|\.(?=\S))+[.!?\n]*",
    re.IGNORECASE,
)
# A cheap look before anything is scanned: a digit, a capital in a sentence, or a word that may be a value.
_VALUE: Final = re.compile(
    r"\d|[^.!?\s] [A-Z]\w|(?i:\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\w+teen|\w+ty|dozen"
    r"|\w+day|noon|midnight|today|tonight|tomorrow|january|february|march|april|may|june|july|august|september|october"
    r"|november|december|dr|doctor|mr|mrs|ms)\b)"
    rf"|(?i:\b(?:{'|'.join(CLASS_WORDS)})\b)"
)


def _any(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns), re.IGNORECASE)


# Yes-words take the reply as it is, unless a limit follows.
_ACCEPTS: Final = re.compile(
    r"^\W*(?:(?:oh|ah|ok(?:ay)?|well|um+|uh+)\b\W*)?(?:yes|yeah|yep|yup|ye|sure|correct|perfect|sounds|exactly|definitely"
    r"|absolutely|that (?:works|is (?:right|fine|good|great|correct|perfect))|that's (?:right|fine|good|great"
    r"|correct|perfect)|great|good|please do|go ahead|right|fine|of course|agreed)\b",
    re.IGNORECASE,
)
_LIMITS: Final = _any(r"\b(?:but|except|only|however|although|though|just)\b")
_THANKS: Final = re.compile(r"^\W*(?:many )?(?:thanks|thank you|cheers|awesome|hello|hi|bye)\b", re.IGNORECASE)
# More of something, or something else, replaces nothing.
_ADDS: Final = _any(
    r"\b(?:also|another|additional(?:ly)?|as well|too|plus|in addition|one more|extra|separate(?:ly)?|besides"
    r"|by the way|as for|furthermore|afterwards?|after that|return|second)\b(?! many| much| late| early| small| big"
    r"| large| few)",
    r"\b(?:and|now|next|then),? (?:i|we)(?:'d| would)? (?:need|want|like)\b",
    r"\b(?:more|other)\b",
)
_INQUIRES: Final = _any(
    r"^\W*(?:(?:and|so|ok(?:ay)?|oh|great|thanks|but|well)\b\W*)*(?:do|does|did|is|are|was|were|what|what's|how|why"
    r"|when|where|who|which|have|has|any|will|would (?:there|it|that)|should|am|tell me|show me|find me|search"
    r"|(?:can|could|would|will) you (?:tell|show|find|search|check|look|recommend|suggest|explain|let|give)"
    r"|(?:can|could|may) i (?:know|ask|see|check)|i(?:'d| would) like to know|i wonder|i was wondering"
    r"|i(?:'m| am) (?:looking|searching))\b",
    r"\b(?:find|looking for|search for|recommend|suggest)\b",
    # What one has, feels or did isn't what the reply should have said.
    r"\b(?:because|since|if|unless|in case|so that)\b",
)
_STATES: Final = re.compile(
    r"^\W*(?:(?:but|sorry|oh|um+|hm+|er+|well)\b\W*)*(?:it's|its|it is|it was|it will|they're|they are)\b",
    re.IGNORECASE,
)

_OPENS: Final = _any(
    r"\b(?:anything|something|what) else\b",
    r"\bhow (?:can|may|could) i (?:help|assist)\b",
    r"\b(?:can|may|could) i (?:help|assist|be of)\b",
    r"\bwhat (?:can|may|could) i\b",
    r"\b(?:any|some) (?:other|more|further|additional)\b",
)
# What asks for a value: an open question or a request to state it.
_REQUESTS: Final = _any(
    r"(?:^\W*|[,;:] |\b(?:and|so|but|then|for|at|on|in|to|from|of|by|ok|okay|sure|great) )(?:what|which|when|where|who"
    r"|whose|how (?:many|much|long|far|big|soon|about|would|do)|why)\b[^?]*\?",
    r"\b(?:please|kindly|could you|can you|would you|may i|could i|can i|i(?:'ll| will)? (?:also )?need(?: to know)?"
    r"|i require|let me)\b[^.?!]{0,30}?\b(?:provide|tell me|give|share|enter|specify|choose|select|pick|have|get|state"
    r"|know(?! if| when| should)|spell|your|for whom)\b",
    r"\b(?:any|do you have an?|do you have any) (?:preference|preferred|particular|specific|special|request)",
    r"\bdo you prefer\b|\bwould you prefer\b|\bare you (?:looking|thinking)\b",
    r"\b(?:another|a different|an alternative|other) [\w ]{1,20}\?",
    r"\b(?:change|modify|update|try)\b[^.?!]*\?\s*$(?<!correct\?)(?<!right\?)",
)
_KINDS: Final = {
    "time": _any(r"\b(?:times?|when|hour)\b"),
    "date": _any(r"\b(?:days?|dates?|when|month|check[- ]?in|check[- ]?out)\b"),
    "count": _any(
        r"\b(?:how many|number of|party|people|guests|quantity|passengers|tickets|seats|nights|how long)\b"
    ),
    "money": _any(r"\b(?:how much|budget|price|cost|amount|pay)\b"),
    "name": _any(r"\b(?:who|whose|whom|names?|which|doctor|contact|title|song|movie|restaurant|hotel|theater)\b"),
    "place": _any(
        r"\b(?:where|city|cities|location|address|area|destination|departure|leaving|going|place|town|airport|street)\b"
    ),
    "color": _any(r"\bcolou?r\b"),
    "size": _any(r"\bsize\b|\bhow big\b"),
    "class": _any(r"\b(?:class|type|kind)\b"),
    "id": _any(r"\b(?:numbers?|ids?|codes?|pin|account|zip)\b"),
}
_ANSWERS: Final = {
    "time": ("time", "number"),
    "date": ("date", "number"),
    "count": ("count:", "number", "id"),
    "money": ("money", "number", "count:", "id"),
    "name": ("name", "title:", "place:"),
    "place": ("place:", "name", "number", "count:", "id"),
    "color": ("color",),
    "size": ("size", "number"),
    "class": ("class", "name"),
    "id": ("id", "number", "count:"),
}
# How an assistant speaks of what it takes as settled, its user's order or its own plan; a fact of the world isn't.
_SETTLES: Final = _any(
    r"\b(?:you|your|you're|you've|you'd|i have|i've|i'll|i will|i am|i'm|we have|we've|we'll|let me|shall i|should i"
    r"|confirm\w*|booked|booking|book|reserved|reservation|scheduled|set|ordered|order|added|noted|saved|sent|play\w*"
    r"|understood|got it)\b",
    r"^\W*(?:so|great|ok(?:ay)?|sure|perfect|al(?:l )?right|done|right|certainly|of course|absolutely|thanks"
    r"|thank you|very well|good|no problem|wonderful|excellent|lovely)\b",
    r"\bthen[.!?]*\s*$",
)
_DECLINES: Final = _any(
    r"\b(?:not available|unavailable|not able|couldn't|could not|can't|cannot|unable|no (?:tables?|rooms?|seats?"
    r"|availability|flights?|longer)|failed|unsuccessful|sold out|fully booked|not possible|doesn't have|don't have)\b"
)
_CHOICE: Final = _any(
    r"\b(?:or|either|options?|choose|choices|between|several|results?|found|available|offers?)\b"
)
