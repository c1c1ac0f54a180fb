"""Why there is no verdict, in words."""

from __future__ import annotations

from typing import Final

from monitor.judgement import Skipped, Unscored

_SKIPPED: Final = {
    "not_applicable": "The rubric doesn't concern this session",
    "no_evidence": "There is no evidence to hold a reply to",
    "no_response": "There is no reply to judge",
    "cut_off": "The reply was cut off, so it can't be judged",
    "misaligned": "The turn named as a correction isn't one, or corrects another turn than was said",
    "screened_out": "The screen found nothing to judge, and the coin picked others to check it",
    "superseded": "A later correction took its place before any reply",
}
_UNSCORED: Final = {
    "invalid": "The judge's answer failed the checks, and so did its repair",
    "truncated": "The judge's answer was cut at its token limit, twice",
    "judge_refused": "The judge refused to answer",
    "timeout": "The judge gave no answer within the deadline",
    "budget": "The budget was spent",
    "unavailable": "The judge could not be reached",
    "error": "Judging failed with an error",
}


def skipped(result: Skipped) -> str:
    """Say why a session was skipped."""
    return _sentence(_SKIPPED.get(result.reason, result.reason), result.note)


def unscored(result: Unscored) -> str:
    """Say how the judge failed; that is never a score."""
    return _sentence(_UNSCORED.get(result.reason, result.reason), result.note)


def unit(reason: str) -> str:
    """Say why a unit of a session, such as one correction, wasn't judged."""
    return _SKIPPED.get(reason, reason.replace("_", " "))


def _sentence(text: str, note: str | None) -> str:
    return f"{text}: {note}." if note else f"{text}."
