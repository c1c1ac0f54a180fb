"""Cheap signals of a finished session: counts that sampling policies look at, never a metric by themselves.

They are wording rules for English. A wording rule over-fires and misses (docs/sampling.md), so a policy always
samples sessions without signals too, and the judge decides what a signal turn really is.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from monitor.contrast import Line, asks_for, contrasts, takes
from monitor.session import Session, SessionTurn


class Signals(msgspec.Struct, kw_only=True, frozen=True):
    """What a policy's CEL predicates can ask about a session. Every field is a whole number, zero or more."""

    corrections: int = 0
    """User turns that look like a correction by wording, or that a producer's correction event names; distinct."""
    pushbacks: int = 0
    """User turns that dispute an answer or press for the same thing again."""
    refusals: int = 0
    """Assistant turns that decline what was asked."""
    escalations: int = 0
    """Escalation events: how often the session went to a human."""
    thumbs_up: int = 0
    """Feedback events with rating `up`."""
    thumbs_down: int = 0
    """Feedback events with rating `down`."""
    turns: int = 0
    """Turns of any role."""
    user_turns: int = 0
    """Turns of the user."""
    assistant_turns: int = 0
    """Turns of the assistant."""
    turns_with_evidence: int = 0
    """Assistant turns for which an evidence event came, with or without passages."""
    empty_retrievals: int = 0
    """Assistant turns whose evidence holds no passage: retrieval found nothing."""
    cut_off: int = 0
    """Assistant turns that ended early (finish_reason `length`, `cancelled` and the like)."""


def extract(session: Session) -> Signals:
    """Count the signals of a session."""
    users = [turn for turn in session.turns if turn.role == "user"]
    replies = [turn for turn in session.turns if turn.role == "assistant"]
    return Signals(
        corrections=len(correction_turns(session)),
        pushbacks=sum(is_pushback(turn.text) for turn in users),
        refusals=sum(is_refusal(turn.text) for turn in replies),
        escalations=len(session.escalations),
        thumbs_up=sum(item.rating == "up" for item in session.feedback),
        thumbs_down=sum(item.rating == "down" for item in session.feedback),
        turns=len(session.turns),
        user_turns=len(users),
        assistant_turns=len(replies),
        turns_with_evidence=sum(turn.evidence is not None for turn in replies),
        empty_retrievals=sum(turn.evidence == () for turn in replies),
        cut_off=sum(turn.cut_off for turn in replies),
    )


def correction_turns(session: Session) -> tuple[int, ...]:
    """Give the indices of the user turns that look like corrections, in order, each once.

    A turn counts when a producer's correction event names it, or when its wording corrects something that was
    said before; so the first turn counts only by a producer's event.
    """
    named = {event.turn_id for event in session.corrections}
    return tuple(
        turn.index
        for turn, before, earlier in _with_what_was_said(session.turns)
        if turn.turn_id in named or (turn.index > 0 and _corrects(turn.text, before, earlier))
    )


def looks_like_correction(text: str, reply_before: str | Line | None) -> bool:
    """Say whether a user's words correct something said before; `reply_before` is the assistant's last turn.

    A `Line` scans itself once, however many texts are compared with it.

    By wording, or by stating another value than that turn puts forward. A bare "no" corrects only what the
    assistant put forward as a fact or a plan; after an offer of more help it is an answer.
    """
    if isinstance(reply_before, str):
        reply_before = Line(text=_plain(reply_before), by_user=False)
    return _corrects(text, reply_before, ())


def _corrects(text: str, reply: Line | None, earlier: Sequence[Line]) -> bool:
    text = _plain(text)
    if _amends(text, reply):
        return True
    if reply is None or _closes(reply.text):
        return False
    if _denies(text) or (_REPLACES.search(text) and _PUTS_FORWARD.search(reply.text)):
        return True
    return contrasts(text, reply, earlier)


def _amends(text: str, reply: Line | None) -> bool:
    if _AMENDS.search(text):
        return True
    if not _ANSWERS_OR_AMENDS.search(text):
        return False
    return reply is None or not (asks_for(reply.text) or _closes(reply.text) or takes(text))


def is_pushback(text: str) -> bool:
    """Say whether a user's words dispute an answer or press for the same thing again."""
    return bool(_PUSHES.search(_plain(text)))


def is_refusal(text: str) -> bool:
    """Say whether an assistant's words decline what was asked; that it *finds* nothing is no refusal."""
    return bool(_REFUSES.search(_plain(text)))


def _with_what_was_said(
    turns: Iterable[SessionTurn],
) -> Iterator[tuple[SessionTurn, Line | None, Sequence[Line]]]:
    """Give each user turn with the assistant's last turn and what came before that, the newest first."""
    said: deque[Line] = deque(maxlen=_LOOK_BACK)
    reply: Line | None = None
    for turn in turns:
        if turn.role not in {"user", "assistant"}:
            continue
        line = Line(text=_plain(turn.text), by_user=turn.role == "user")
        if line.by_user:
            yield turn, reply, tuple(one for one in said if one is not reply)
        else:
            reply = line
        said.appendleft(line)


def _plain(text: str) -> str:
    return text[:_LONGEST].translate(_QUOTES)


def _denies(text: str) -> bool:
    match = _NO.match(text)
    if match is None or _EXCLAIMS.match(text):
        return False
    rest = text[match.end() :]
    return not _DECLINES.match(rest) and bool(_SUBSTANCE.search(rest))


def _closes(reply: str) -> bool:
    return bool(_OFFERS_MORE.search(reply))


def _any(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns), re.IGNORECASE)


# How many turns before a user's, of both sides, have values that it is compared with.
_LOOK_BACK: Final = 6
# Nobody corrects in the fourth page of a pasted document, and patterns must not take seconds on one.
_LONGEST: Final = 4_000

# Typographic apostrophes would hide a "that's wrong".
_QUOTES: Final = str.maketrans({"\u2018": "'", "\u2019": "'", "\u02bc": "'", "\u201c": '"', "\u201d": '"'})

# A hedge or an apology before the point: "oh, sorry, no ...".
_LEAD: Final = r"(?:(?:oh|ah|um+|uh+|er+|hm+|well|ok(?:ay)?|sorry|please|but|and|hey|yeah)\b[\s,.!-]*){0,3}"
_IT: Final = r"(?:that(?:'s| is| was)|this is|it(?:'s| is| was)|you(?:'re| are))"

# Wording that amends whatever came before.
_AMENDS: Final = _any(
    r"\bi (?:actually |really )?meant\b(?! it\b)",
    r"\bi mean(?:t)? to say\b",
    r"\bi (?:already |just |clearly |specifically )?(?:said|told you|asked (?:you )?for"
    r"|requested)\b(?! (?:thank|hello|hi)\b)",
    r"\b(?:as|like) i (?:already )?(?:said|told you|mentioned)\b",
    r"\bnot what i (?:asked|said|want|wanted|meant|requested|told|ordered|need|needed)\b",
    rf"\b{_IT} (?:(?:still|just|actually|completely|all) )?(?:wrong|incorrect|mistaken|not (?:right|correct"
    r"|true|accurate))\b",
    r"\bthat isn't (?:right|correct|true|what)\b|\bthat's not (?:it|the|my|what|how)\b",
    r"\byou (?:got|have|had|wrote|put|are using|keep using|used)\b[^.?!]{0,60}\b(?:wrong|(?:the|my) old"
    r"|incorrectly)\b",
    r"\byou (?:misunderstood|misread|misheard)\b",
    r"\b(?:wrong|incorrect) (?:one|date|day|time|name|number|address|place|person|city|amount|order|size"
    r"|colou?r|item|unit|value|version)\b",
    r"\b(?:scratch|strike|disregard|ignore|forget) (?:that|this|it|what i said|my (?:last|previous|earlier))\b",
    r"\b(?:let me|i need to|i have to|i should|i must) (?:correct|rephrase|clarify|amend)\b",
    r"\bcorrection\b\s*[:,-]|\bi misspoke\b|\b(?:made|my) (?:a )?(?:mistake|typo|error|bad)\b|\btypo\b",
    r"\b(?:changed|change) my mind\b|\bon second thoughts?\b|\bcome to think of it\b",
    r"\b(?:change|switch|move|correct|update|modify|amend|revise|adjust|edit|rename|reschedule|push|set)"
    r" (?:it|that|this|them|those|the|my|our)\b[^.?!]{0,60}?\b(?:to|from|into|as)\b",
    r"\binstead\b(?! of\b[^.?!]*\?)",
    r"\b(?:it's|it is|it was|i'm|we're|they're|he's|she's|that's) not [^.?!]{1,60}?[,;.] ?(?:but|it's|it is"
    r"|it was|i'm|that's|rather|its)\b",
    r"\bnot [^,.?!]{1,40},? but (?!also|only)",
    r"\b(?:don't|do not|stop|quit) (?:use|using|call|calling|send|sending|book|booking|include|including|add"
    r"|adding)\b",
    r"[.!?] (?:oh,? )?wait\b[\s,.!-]*(?!that's|that is|what|how|is|are|can|did|do|my|i almost|for)\w",
    r"\bno longer\b|\bnot any ?more\b|\bthere's been a change\b",
    rf"^\W*{_LEAD}(?:wait|hold on|hang on|oops|whoops|my bad|apologies|on reflection)\b"
    r"[\s,.!-]*(?!that's|that is|what|how|is|are|can|my|i almost)\w",
    rf"^\W*{_LEAD}actually\b(?!,? (?:that's (?:all|it|fine|great|good)|yes|yeah|thank|thanks|no thank))",
    r"[,.;!] ?actually,? (?:i|it|it's|let's|make|we|the|my|can|could|no)\b",
)

# Wording that amends, but answers as well: what should it be? Make it 6.
_ANSWERS_OR_AMENDS: Final = _any(
    r"(?<!can't )(?<!cannot )(?<!couldn't )(?<!won't )(?<!i'll )(?<!not )\bmake (?:it|that|this|them|the)\b"
    r"(?! (?:sure|work|stop|happen|easy|quick|in time|on time|there|home))",
    r"[\w'\"], not (?!yet|sure|now|really|too|so|very|that|much|bad|at|a problem|to mention)[\w'\"]",
    r"\bchange (?:in|of) plans?\b|\bactually (?:wants?|needs?|prefers?|going to be|is|was)\b|\b(?:is|was"
    r"|are) actually\b",
    r"\bi(?:'d| would)? (?:rather|prefer)\b|\brather than\b",
    r"\b(?:it|that|this|the [\w ]{1,30}|my [\w ]{1,30}) (?:should(?:'ve| have)? (?:be|been|say|read)"
    r"|is supposed to be|needs to be)\b",
)

# "No, ..." denies, unless it declines an offer.
_NO: Final = re.compile(rf"^\W*{_LEAD}(?:no+|nope|nah|not)\b[\s,.;:!-]*", re.IGNORECASE)
_DECLINES: Final = re.compile(
    r"\s*(?:thank|that's (?:all|it|ok|okay|fine|everything|alright|good|great)|that (?:is|will be|would be"
    r"|should be) "
    r"(?:all|it|everything|fine|good)|that'll|i'm (?:good|fine|ok|okay|all|done)|i am (?:good|fine|done|all)|"
    r"need(?: to)?\b|problem|worries|idea|more|nothing|not\b|yet|now\b|really|sure|bother|one\b|matter|doubt"
    r"|way\b|"
    r"rush|at (?:all|the moment)|right now|preference|particular|it(?:'s| is) (?:fine|ok|okay|good|great|all)|"
    r"this is (?:fine|good|all|it)|i don't (?:need|want|have|think|know|care)|i do not (?:need|want|have"
    r"|think)|"
    r"(?:that's |that is )?enough|at (?:this|present)|keep|go ahead|i(?:'m| am) not|i(?: do not| don't"
    r"| didn't|'ve got"
    r"| have| got)\W*$|i got\b|all (?:good|set|done)|just that|longer|hurry|good\b|i (?:think )?(?:that"
    r"|this) is)",
    re.IGNORECASE,
)
# "Oh no!" deplores.
_EXCLAIMS: Final = re.compile(r"\W*(?:oh+|ah+|uh)\W+no+\W*[,.!]", re.IGNORECASE)
_SUBSTANCE: Final = re.compile(r"\d|\w+\W+\w+|\b[A-Z][a-z]+")

# Asking for one thing in place of another corrects only something that was put forward for confirmation.
_REPLACES: Final = _any(
    r"\b(?:please |let's |could you |can you )?(?:change|switch|try(?! to)|use|go with"
    r"|(?<!to )(?<!i )do(?! you| not| it)) [^.?!]{0,40}\b(?:to|for|at)\b",
    r"\b(?:the|my|our) [\w ]{1,30} (?:is|are|was|were) [^.?!]*\bnot\b",
    r"\bsorry\b[^.?!]{0,20}\bi (?:need|want|have to|wanted|should)\b",
    r"\bi (?:just )?(?:realized|realised|remembered|remember now|noticed|forgot(?! (?:to|how|what|my"
    r"|the)\b))\b",
)
_PUTS_FORWARD: Final = _any(
    r"\bconfirm",
    r"\bcorrect\b",
    r"\bright\b",
    r"\bbook(?:ed|ing)?\b",
    r"\bset\b",
    r"\bchanged\b",
    r"\bshould i\b",
    r"\bshall i\b",
    r"\b(?:is|are|was|were|will be|has|have|here)\b",
    r"\d",
)
_OFFERS_MORE: Final = _any(
    r"\b(?:anything|something|what) else\b[^.!]*\?",
    r"\b(?:any|some) (?:other|more|further|additional)\b[^.!]*\?",
    r"\bhow (?:can|may) i (?:help|assist)\b",
    r"\b(?:can|may|could) i (?:help|assist|be of)\b[^.!]*\?",
)

_PUSHES: Final = _any(
    r"\bare you (?:sure|certain|serious|kidding)\b",
    r"\bwhy (?:not|can't|won't|couldn't|wouldn't)\b",
    r"\b(?:can't|couldn't|won't) you (?:just|please|at least|make)\b",
    r"\bcome on\b|\bjust (?:do it|this once|tell me|give me|answer)\b|\bdo it anyway\b",
    r"\bi (?:insist|disagree|don't (?:agree|believe)|do not (?:agree|believe)|don't accept|refuse to)\b",
    r"\bmake an exception\b|\bbend the rules?\b|\bno exceptions?\?",
    r"\byou(?:'re| are) (?:wrong|mistaken|lying|not listening|useless)\b",
    r"\byou (?:just|already|previously|yourself)? ?(?:said|told me|promised|claimed)\b",
    r"\b(?:that|this) (?:makes no sense|doesn't make (?:any )?sense|is ridiculous|is unacceptable"
    r"|can't be (?:right|true))\b",
    r"\bi (?:really|still|absolutely) (?:need|want|have to)\b[^.?!]*\b(?:please|now|this|it)\b",
    r"\b(?:check|look|try|think) again\b|\bdouble[- ]check\b|\bi(?:'ve| have) (?:already )?asked\b",
    r"\b(?:speak|talk) (?:to|with) (?:a |your )?(?:manager|supervisor|human|person|agent)\b",
)

_ABLE: Final = (
    r"(?:can't|cannot|can not|could not|couldn't|won't|will not|am unable to|'m unable to|am not able to"
    r"|'m not able to|"
    r"am not allowed to|'m not allowed to|am not permitted to|'m not permitted to)"
)
_REFUSES: Final = _any(
    rf"\b(?:i|we)\s?{_ABLE} (?:\w+ ){{0,2}}?(?:help|assist|do|provide|share|give|offer|support|comply|fulfil+|"
    r"process|authorize|authorise|approve|issue|make|cancel|change|modify|refund|disclose|discuss|answer"
    r"|continue|"
    r"grant|complete|perform|generate|write|create|engage|accommodate|allow|waive|proceed)\b",
    r"\b(?:i|we)(?:'m| am|'re| are) (?:sorry|afraid),? (?:but )?(?:that(?:'s| is)|this is) (?:not|against"
    r"|something i can)",
    r"\b(?:against|not (?:allowed|permitted|possible) (?:by|under|per)|outside(?: of)?|violates?) (?:the "
    r"|our |my |company |airline )?"
    r"(?:policy|policies|guidelines|rules|terms)\b",
    r"\bi (?:must|have to|need to|will have to) (?:decline|refuse)\b|\bi(?:'d| would) rather not\b",
    r"\bnot (?:something|a request) (?:i|we) can\b|\bnot comfortable (?:with|providing|sharing|helping)\b",
)
