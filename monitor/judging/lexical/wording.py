"""Wording that the lexical judge goes by: how English disputes, agrees and acknowledges."""

from __future__ import annotations

import re
from typing import Final

DISPUTE: Final = re.compile(
    r"\b(?:i (?:do not|don't) (?:think|believe) (?:that|it|this|so|you)"
    r"|(?:that|this|it) (?:is|was)(?:n't| not) (?:right|correct|true|accurate|what (?:you|i|we|my|the|our))"
    r"|that's not (?:right|correct|true|accurate|what)|is not what you (?:said|told|asked)"
    r"|you(?: clearly| originally| previously| already| just)? (?:asked (?:me )?for|told me|said|stated"
    r"|requested|chose)\b"
    r"|(?:i|we)(?:'m| am|'re| are) (?:quite |pretty |fairly )?(?:sure|certain|confident|afraid you)"
    r"|(?:i|we) (?:disagree|stand by|maintain)|(?:my|our|the) (?:records?|notes|information|system"
    r"|sources?) (?:still )?"
    r"(?:say|show|indicate|state|suggest)s?|you(?:'re| are| must be| may be| might be) (?:mistaken|wrong"
    r"|confused|misremembering)"
    r"|are you sure|(?:that|it) can(?:'t|not) be (?:right|correct|true)|(?:my|the) (?:earlier |original "
    r"|first |previous )?"
    r"(?:answer|statement) (?:was|is) (?:right|correct)|(?:stays|remains|still stands)\b)"
    r"|^\W*no\b,? (?!problem|worries|need|trouble|charge|doubt|issue)",
    re.IGNORECASE,
)
AGREES: Final = re.compile(
    r"\byou(?:'re| are) (?:absolutely |quite |completely |of course )?(?:right|correct)\b|\bmy (?:mistake"
    r"|apologies|bad)\b"
    r"|\bi apologi[sz]e\b|\bthanks? (?:you )?for (?:the correction|correcting|letting|pointing|catching)\b"
    r"|\b(?:i(?:'ve| have)|i'll|i will|let me) (?:\w+ )?(?:corrected|changed?|updated?|fixed|fix|correct"
    r"|adjust(?:ed)?)\b"
    r"|\bgood catch\b",
    re.IGNORECASE,
)
ACKNOWLEDGE: Final = re.compile(
    r"\byou(?:'re| are) (?:absolutely |quite |completely )?(?:right|correct)\b|\bmy (?:mistake|apologies|bad)\b"
    r"|\b(?:i )?apologi(?:[sz]e|es)\b|\b(?:i'm |i am |so )?sorry (?:about|for)\b[^.!?]*|\bgood catch\b"
    r"|\bthank(?:s| you) for (?:the correction|correcting|letting me know|clarifying|pointing)[^.!?]*"
    r"|\b(?:i(?:'ve| have)|i'll|i will|let me|i)? ?(?:just )?(?:corrected|changed?|updated?|fixed|switched"
    r"|switch|amended"
    r"|adjusted|modified|moved)\b[^.!?]*|\b(?:noted|understood|got it|no problem|no worries|of course"
    r"|certainly)\b"
    r"|\bmade (?:the|that|those) changes?\b",
    re.IGNORECASE,
)
# A change claimed as made.
CLAIMS: Final = re.compile(
    r"\b(?:updated|changed|corrected|fixed|switched|adjusted|amended|modified|moved|made (?:the|that"
    r"|those) changes?)\b",
    re.IGNORECASE,
)
# The type of a correction by its wording, the first that fits.
TYPES: Final = {
    "instruction_override": re.compile(
        r"\b(?:stop|don't|do not|quit) \w+ing\b|\b(?:always|never|from now on|answer|reply|respond) (?:in"
        r"|with|use)\b",
        re.IGNORECASE,
    ),
    "constraint_update": re.compile(
        r"\b(?:at (?:least|most)|no more than|under|below|over|within|budget|limit|maximum|minimum|must"
        r"|only)\b",
        re.IGNORECASE,
    ),
    "factual_correction": re.compile(
        r"\b(?:wrong|incorrect|not (?:right|correct|true)|i meant|i said|mistake|typo|misspoke|my name"
        r"|it's not|it is not|isn't)\b",
        re.IGNORECASE,
    ),
}
