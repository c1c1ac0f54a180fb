"""Value contrast: a user states another value where one was put forward, with or without a word that says so.

"Booked for 5 pm." - "6 pm, please." has no marker word. What tells it from an answer, a choice or a new wish is
what was said before: a value in the same slot that was put forward as settled, and no question that asks for a new
one. Pure, cheap, English; `monitor.signals` counts it as a correction.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Final

import msgspec

from monitor.slots import CLASS_WORDS, Filler, fillers


class Line(msgspec.Struct, kw_only=True, frozen=True, dict=True):
    """One turn said before: its text, and whether the user said it."""

    text: str
    by_user: bool

    @cached_property
    def end(self) -> str:
        """The end of the text: what is asked and summed up stands there."""
        return self.text[-_LONGEST:]

    @cached_property
    def said(self) -> tuple[Filler, ...]:
        """The values in the end of the text."""
        return fillers(self.end)

    @cached_property
    def settled(self) -> Sequence[Filler]:
        """The values that it puts forward: all of a user's."""
        return self.said if self.by_user else _settled(self.end, self.said)


def asks_for(reply: str) -> frozenset[str]:
    """Give the kinds of value that an assistant's turn asks for: `time`, `count`, ...; `any` if it doesn't say."""
    found: set[str] = set()
    for sentence in _sentences(reply[-_LONGEST:]):
        if _REQUESTS.search(sentence):
            found.update({kind for kind, pattern in _KINDS.items() if pattern.search(sentence)} or {"any"})
    return frozenset(found)


def contrasts(text: str, reply: Line, earlier: Sequence[Line] = ()) -> bool:
    """Say whether a user's turn puts another value where the reply, or what was said before it, has one.

    `reply` is the assistant's last turn, `earlier` what came before it, the newest first.
    """
    short = len(text) <= _SHORT
    if len(text) > _LONGEST or not (short or _VALUE.search(text)) or _OPENS.search(reply.end):
        return False
    wished = _wished(text, short=short)
    if not wished or not _speaks_to_it(text, reply, earlier):
        return False
    asked = asks_for(reply.end)
    free = [item for item in wished if not _answers(item, asked)]
    if not free:
        return False
    put = _settled(reply.end, reply.said, facts=True) if _STATES.search(text) else reply.settled
    if any(_replaces(item, put, reply.said) for item in free):
        return True
    if _DECLINES.search(reply.end) and not _STATES.search(text):
        # Another try after a failure is a new wish.
        return False
    return _amends([item for item in free if item.slot.startswith(_sure(text))], reply.said, earlier)


def _wished(text: str, *, short: bool) -> list[Filler]:
    """Give the values that a user's turn states as wanted or right: not those it asks after or reasons with."""
    loose = () if short else _LOOSE[2:] if _CHOOSES.search(text) else _LOOSE
    found = [item for item in fillers(text) if not item.slot.startswith(loose)]
    return _inside(text, found, lambda sentence: not (_INQUIRES.search(sentence) or _THANKS.search(sentence)))


def _inside(text: str, items: Sequence[Filler], wanted: Callable[[str], bool]) -> list[Filler]:
    """Give the items that stand in wanted sentences, before any reason or condition."""
    kept: list[Filler] = []
    for match in _SENTENCE.finditer(text) if items else ():
        start, end = match.span()
        reason = _REASONS.search(match[0])
        end = end if reason is None else start + reason.start()
        inside = [item for item in items if start <= item.tokens[0].start < end]
        if inside and wanted(match[0]):
            kept += inside
    return kept


def _speaks_to_it(text: str, reply: Line, earlier: Sequence[Line]) -> bool:
    """Leave out what accepts, adds to what is settled, or starts on something else."""
    if _ADDS.search(text):
        return False
    command = _COMMANDS.search(text)
    if command is not None and not any(
        command[1].casefold() in line.text.casefold() for line in (reply, *earlier)
    ):
        return False
    return not takes(text)


def takes(text: str) -> bool:
    """Say whether a user's turn takes the reply as it is: a word of consent, and no limit to it."""
    return _ACCEPTS.search(text) is not None and _LIMITS.search(text) is None


def _amends(wished: Sequence[Filler], said: Sequence[Filler], earlier: Sequence[Line]) -> bool:
    """Compare with what was settled before the last reply: the newest word on a slot is what counts."""
    for line in earlier:
        if not wished:
            return False
        if any(_replaces(item, line.settled, said) for item in wished):
            return True
        slots = {item.slot for item in line.settled}
        wished = [item for item in wished if item.slot not in slots]
    return False


def _sure(text: str) -> tuple[str, ...]:
    """Give the slots whose value surely is of the same thing as before: it is named, or the turn is terse."""
    if _NAMES_ITSELF.search(text):
        return (*_NAMED, "name", "id", "number")
    if _STATES.search(text):
        return (*_NAMED, *_TYPED, "id", "number")
    return (*_NAMED, *_TYPED) if len(text) <= _TERSE else _NAMED


def _replaces(item: Filler, put: Sequence[Filler], said: Sequence[Filler]) -> bool:
    """Say whether something else was put forward in the slot of an item, and the item itself wasn't said."""
    if any(item.agrees(other) for other in said):
        return False
    rivals = [other for other in put if item.fits(other)]
    # Three and more are a list to choose from.
    return 0 < len(rivals) < _LIST and not any(item.agrees(other) for other in rivals)


def _settled(text: str, said: Sequence[Filler], *, facts: bool = False) -> list[Filler]:
    """Give what an assistant's turn puts forward: no choices, nothing that it declines, facts only if wanted."""
    return _inside(text, said, lambda sentence: _settles(sentence, facts=facts))


def _settles(sentence: str, *, facts: bool) -> bool:
    if not (facts or _SETTLES.search(sentence)):
        # An echo: "Friday at five."
        bare = len(sentence) <= _ECHO and sentence.count(" ") <= _ECHO_WORDS and not _SAYS_MORE.search(sentence)
        if not bare:
            return False
    return not _DECLINES.search(sentence) and not _CHOICE.search(sentence)


def _answers(item: Filler, asked: frozenset[str]) -> bool:
    return "any" in asked or any(item.slot.startswith(_ANSWERS[kind]) for kind in asked)


def _sentences(text: str) -> Iterator[str]:
    return (match[0] for match in _SENTENCE.finditer(text))


# Corrections are short; and what is long costs time.
_LONGEST: Final = 600
_SHORT: Final = 60
_TERSE: Final = 40
_LIST: Final = 3
_ECHO: Final = 30
_ECHO_WORDS: Final = 4

_TYPED: Final = ("time", "date", "money")
# What only a short turn is trusted with; a name also where the user chooses.
_LOOSE: Final = ("name", "place:", "head:")
_NAMED: Final = ("count:", "title:", "id:", "color", "size", "class")

# A full stop ends a sentence unless it stands in "5.30", "p.m." or "Dr.".
_SENTENCE: Final = re.compile(
    r"(?:[^.!?\n]|(?<=\bdr)\.|(?<=\bmr)\.|(?<=\bms)\.|(?<=\bmrs)\.|(?<=\bst)\.|(?<=\b[ap])\.|(?<=\b[ap]\.m)\."
    r"|\.(?=\S))+[.!?\n]*",
    re.IGNORECASE,
)
# A cheap look before anything is scanned: a digit, a capital in a sentence, or a word that may be a value.
_VALUE: Final = re.compile(
    r"\d|[^.!?\s] [A-Z]\w|(?i:\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\w+teen"
    r"|\w+ty|dozen"
    r"|\w+day|noon|midnight|today|tonight|tomorrow|january|february|march|april|may|june|july|august"
    r"|september|october"
    r"|november|december|dr|doctor|mr|mrs|ms)\b)"
    rf"|(?i:\b(?:{'|'.join(CLASS_WORDS)})\b)"
)


def _any(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns), re.IGNORECASE)


# Yes-words take the reply as it is, unless a limit follows.
_ACCEPTS: Final = re.compile(
    r"^\W*(?:(?:oh|ah|ok(?:ay)?|well|um+|uh+)\b\W*)?(?:yes|yeah|yep|yup|ye|sure|correct|perfect|sounds"
    r"|exactly|definitely"
    r"|absolutely|that (?:works|is (?:right|fine|good|great|correct|perfect))|that's (?:right|fine|good|great"
    r"|correct|perfect)|great|good|nice|cool|lovely|wonderful|excellent|brilliant|super|please do|go ahead"
    r"|right|fine|of course|agreed)\b",
    re.IGNORECASE,
)
_LIMITS: Final = _any(r"\b(?:but|except|only|however|although|though|just)\b")
_THANKS: Final = re.compile(r"^\W*(?:many )?(?:thanks|thank you|cheers|awesome|hello|hi|bye)\b", re.IGNORECASE)
# More of something, or something else, replaces nothing.
_ADDS: Final = _any(
    r"\b(?:also|another|additional(?:ly)?|as well|too|plus|in addition|one more|extra|separate(?:ly)?|besides"
    r"|by the way|as for|furthermore|afterwards?|after that|return|second)\b(?! many| much| late| early"
    r"| small| big"
    r"| large| few)",
    r"\b(?:and|now|next|then),?\s+(?:i|we)(?:'d|\s+would)?\s+(?:need|want|like)\b",
    r"\b(?:\d+|one|two|three|four|five|some|any|few) (?:more|others?)\b|\bthe others?\b(?! hand)",
)
_INQUIRES: Final = _any(
    r"^\W*(?:(?:and|so|ok(?:ay)?|oh|great|thanks|but|well)\b\W*)*(?:do|does|did|is|are|was|were|what|what's"
    r"|how|why"
    r"|when|where|who|which|have|has|any|will|would (?:there|it|that)|should|am|tell me|show me|find me|search"
    r"|(?:can|could|would|will) you (?:tell|show|find|search|check|look|recommend|suggest|explain|let|give)"
    r"|(?:can|could|may) i (?:know|ask|see|check)|i(?:'d| would) like to know|i wonder|i was wondering"
    r"|i(?:'m| am) (?:looking|searching))\b",
    r"\b(?:find|looking for|search for|recommend|suggest)\b",
)
_NAMES_ITSELF: Final = re.compile(r"\b(?:the|my) name(?:'s| is| was)\b", re.IGNORECASE)
# A command is of what was said before if its verb is.
_COMMANDS: Final = re.compile(
    r"^\W*(?:(?:please|then|now|and|so)\b\W*)*(transfer|book|buy|order|play|call|send|ship|pay|schedule|plan"
    r"|add|get|give"
    r"|rent|reserve|text|email|remind|wake|bring|deliver)\b",
    re.IGNORECASE,
)
_CHOOSES: Final = _any(
    r"\b(?:let'?s|go(?:ing)? with|try|take|choose|switch|change|use|recommend\w*|can we|could we|prefer"
    r"|stay at)\b"
)
# Reasons and conditions are no wishes.
_REASONS: Final = re.compile(
    r"\b(?:because|since|if|unless|in case|(?<=\w )so that)\b.*", re.IGNORECASE | re.DOTALL
)
_STATES: Final = re.compile(
    r"(?:^|[,.!;])\W*(?:(?:but|sorry|oh|um+|hm+|er+|well|actually)\b\W*)*(?:it's|its|it is|it was|it will"
    r"|they're|they are|(?:my|the) [\w ]{1,20} (?:is|was)(?: actually)?)\b",
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
    r"(?:^\W*|[,;:] |\b(?:and|so|but|then|for|at|on|in|to|from|of|by|ok|okay|sure|great) )(?:what|which|when"
    r"|where|who"
    r"|whose|how (?:many|much|long|far|big|soon|about|would|do)|why)\b[^?]*\?",
    r"\b(?:please|kindly|could you|can you|would you|may i|could i|can i|i(?:'ll"
    r"| will)? (?:also )?need(?: to know)?"
    r"|i require|let me)\b[^.?!]{0,30}?\b(?:provide|tell me|give|share|enter|specify|choose|select|pick|have"
    r"|get|state"
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
    "name": _any(
        r"\bwhich (?!ones?\b|of\b|would\b|do\b|is\b|are\b)\w+"
        r"|\b(?:who|whose|whom|names?|title|song|movie|restaurant|hotel|theater)\b"
    ),
    "title": _any(r"\b(?:doctor|dr|who|whom|contact|advis[eo]r|teacher)\b"),
    "place": _any(
        r"\b(?:where|city|cities|location|address|area|destination|departure|leaving|going|place|town|airport"
        r"|street)\b"
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
    "name": ("name", "place:"),
    "title": ("title:", "name", "place:"),
    "place": ("place:", "name", "number", "count:", "id"),
    "color": ("color",),
    "size": ("size", "number"),
    "class": ("class", "name"),
    "id": ("id", "number", "count:", "name"),
}
# How an assistant speaks of what it takes as settled, its user's order or its own plan; a fact of the world isn't.
_SETTLES: Final = _any(
    r"\b(?:you|your|you're|you've|you'd|i have|i've|i'll|i will|i am|i'm|we have|we've|we'll|let me|shall i"
    r"|should i"
    r"|confirm\w*|booked|booking|book|reserved|reservation|scheduled|set|ordered|order|added|noted|saved|sent"
    r"|understood|got it|here(?:'s| is| are))\b",
    r"^\W*(?:so|great|ok(?:ay)?|sure|perfect|al(?:l )?right|done|right|certainly|of course|absolutely|thanks"
    r"|thank you|very well|good|no problem|wonderful|excellent|lovely)\b",
    r"\b(?:then|ok(?:ay)?|noted|it is|got it|done|coming up|thanks)[.!]*\s*$",
)
# What it declines, offers to choose from or asks for isn't settled.
_SAYS_MORE: Final = _any(r"\?|\b(?:is|are|was|costs?|takes?|opens?|closes?|has|have|leaves?|starts?|ends?)\b")
_DECLINES: Final = _any(
    r"\b(?:not available|unavailable|not able|couldn't|could not|can't|cannot|unable|(?:there (?:is|are)"
    r"|i see|i have) no|no (?:tables?|rooms?|seats?"
    r"|availability|flights?|longer)|failed|unsuccessful|sold out|fully booked|not possible|doesn't have"
    r"|don't have)\b"
)
_CHOICE: Final = _any(
    r"\b(?:or|either|options?|choose|choices|between|several|results?|found|available|offers?)\b"
)
