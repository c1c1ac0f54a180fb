"""How English asks, asks back, abstains and states: the wording behind the rules on conversations."""

from __future__ import annotations

import re
from typing import Final

from monitor.judging.lexical.support import Sentence, sentence
from monitor.rubrics.conversation.grade import Question

_KNOWLEDGE: Final = (
    r"(?:information|info|details?|data|answers?|records?|knowledge|evidence|mention|idea|recommendations?"
    r"|specifics|context|passages?|documents?|sources?)"
)
# Says that the matter isn't known, not found, or not in the sources.
ABSTAINS: Final = re.compile(
    rf"\b(?:do not|don['\u2019]t|does not|doesn['\u2019]t|did not|didn['\u2019]t) "
    rf"(?:currently |actually |really )?(?:have|find|see|provide|contain|include|offer|give|hold)\b"
    rf"[^.!?]{{0,60}}\b{_KNOWLEDGE}\b"
    r"|\bI (?:do not|don['\u2019]t) (?:actually |really )?(?:know|have (?:that|this|it|one|any))\b"
    r"|\bI(?:['\u2019]m| am) (?:not (?:sure|certain|aware|able)|unable|unsure)\b"
    r"|\bI (?:cannot|can['\u2019]t|could not|couldn['\u2019]t|can not|was unable to|am unable to) "
    r"(?:find|answer|confirm|say|tell|determine|provide|verify|locate|give|help|see|recommend)\b"
    rf"|\b(?:no|not enough|insufficient|lack(?:s|ing)?(?: of)?|not any) (?:\w+ ){{0,3}}{_KNOWLEDGE}\b"
    r"|\b(?:is|are|was|were)(?: not|n['\u2019]t) (?:\w+ )?(?:mentioned|specified|provided|stated|covered|given"
    r"|available in|included in|discussed|listed|found in)\b"
    r"|\b(?:found|find|finding|have) nothing\b"
    r"|\b(?:do|does)(?: not|n['\u2019]t) (?:\w+ )?(?:mention|specify|say|state|cover|discuss|address|list|tell)\b",
    re.IGNORECASE,
)
# A question that narrows down what was meant; an offer of more help is none.
ASKS_BACK: Final = re.compile(
    r"\b(?:(?:which|what|whose|who)\b[^.!?]*\b(?:do|did|are|would|were) you\b"
    r"|(?:are|were) you (?:asking|referring|talking|looking|interested|thinking|inquiring|speaking)"
    r"|(?:do|did) you (?:mean|have (?:a|any) (?:specific|particular)|want to know|refer)"
    r"|(?:could|can|would|will) you (?:please |kindly )?(?:clarify|specify|be more|tell me (?:which|what|who|more)"
    r"|explain what|provide (?:more|further|additional)|elaborate|let me know (?:which|what)|give me more)"
    r"|is (?:it|this|that) (?:about|regarding|for) )[^.!?]*\?"
    r"|^\W*(?:which|whose|what (?:kind|type|sort))\b[^.!?]*\?"
    r"|\bplease (?:clarify|specify|let me know (?:which|what)|tell me (?:which|what)|provide more)\b",
    re.IGNORECASE,
)
_OFFERS: Final = re.compile(
    r"^\W*(?:please|feel free|let me know|i hope|hope this|if you (?:have|need|want|would)|would you|thank"
    r"|you['\u2019]re welcome|(?:sure|certainly|of course)\b[.!]?$|hello\b|hi\b|i apologi[sz]e"
    r"|i(?:['\u2019]m| am|['\u2019]d be| would be| will be)? (?:happy|glad) to "
    r"(?:help|assist|answer|explain|look)\b"
    r"|i (?:can|could|will) (?:help|assist|try|look|check|gladly)\b|(?:i['\u2019]m|i am) sorry"
    r"|here (?:is|are)\b[^.!?]*:$)",
    re.IGNORECASE,
)
_COURTESY: Final = re.compile(
    r"^\W*(?:ok(?:ay)?|thanks?(?: you)?(?: so much| a lot| very much)?|great|perfect|good|got it|bye|goodbye"
    r"|thank you|hello|hi|hey|never ?mind|cool|nice|wow|alright|all right"
    r"|that(?:['\u2019]s| is) (?:all|it|great|good))"
    r"(?:\W+\w+){0,3}\W*$",
    re.IGNORECASE,
)
_POINTS: Final = re.compile(r"\b(?:this|these|those)\b", re.IGNORECASE)
_LEANS: Final = re.compile(
    r"\b(?:the|this|these|those|that|its?|they|them|their|he|she|him|his|her)\b", re.IGNORECASE
)


def kind(text: str, earlier: str, *, asked_back: bool) -> Question:
    """Tell what a user turn asks: nothing (a courtesy), something clear, or something that points at nothing.

    "Does this library lend games?" is ambiguous where hardly a word of it was said in `earlier`, the turns before:
    then there is nothing that "this" could stand for. Where the reply asked back, a question that leans on
    anything ("the", "it") is taken to be ambiguous.
    """
    if not any(char.isalpha() for char in text) or (_COURTESY.match(text) and "?" not in text):
        return "none"
    if asked_back:
        return "ambiguous" if _LEANS.search(text) else "clear"
    if not _POINTS.search(text):
        return "clear"
    asked, known = sentence(text).stems, sentence(earlier).stems
    return "ambiguous" if asked and len(asked - known) / len(asked) >= _NEW else "clear"


def states(said: Sentence) -> bool:
    """Say whether a sentence of a reply states something about the world."""
    text = said.text
    if text.endswith("?") or (said.size == 0 and len(text.split()) < _SAYS):
        return False
    if ABSTAINS.search(text):
        # "The guide doesn't say, but it names three shops": a part of it states something.
        return any(not ABSTAINS.search(part) and sentence(part).size >= _TELLS for part in _BUT.split(text))
    return not (_OFFERS.search(text) and said.size < _MUCH)


_BUT: Final = re.compile(r"[,;] (?:but|although|though|however|it does)\b|\b(?:but|however)\b", re.IGNORECASE)
_NEW: Final = 0.6
_SAYS: Final = 3
_TELLS: Final = 5
_MUCH: Final = 8
