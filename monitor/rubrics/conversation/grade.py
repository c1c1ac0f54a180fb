"""From what the judge observes of an answer to its grades: all that is computed. Pure.

result of a dimension    pass <=> its score >= pass_score; not_applicable where there is nothing to judge
abstention               unfounded: a confident answer without sufficient evidence
                         needless: an abstention though the answer was there
overall_pass             every applicable dimension passes
overall_score            mean over them of (score - 1) / 4, abstention 1 or 0: 0 to 1
supported_share          part of the words of all statements that isn't in an unsupported part: 0 to 1
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias, get_args

Task: TypeAlias = Literal["from_evidence", "creative", "general_chat"]
Question: TypeAlias = Literal["clear", "ambiguous", "none"]
Support: TypeAlias = Literal["supported", "partly", "unsupported", "contradicted"]
CitationVerdict: TypeAlias = Literal["right", "wrong", "fabricated"]
Sufficiency: TypeAlias = Literal["sufficient", "partial", "insufficient"]
Stance: TypeAlias = Literal["answers", "hedges", "abstains", "asks", "other"]
Dimension: TypeAlias = Literal[
    "turn_consistency",
    "citation_accuracy",
    "clarification_appropriateness",
    "evidence_faithfulness",
    "abstention_correctness",
]
Abstention: TypeAlias = Literal["pass", "unfounded_answer", "needless_abstention", "not_applicable"]

TASKS: Final = get_args(Task)
QUESTIONS: Final = get_args(Question)
SUPPORTS: Final = get_args(Support)
CITATION_VERDICTS: Final = get_args(CitationVerdict)
SUFFICIENCIES: Final = get_args(Sufficiency)
STANCES: Final = get_args(Stance)
DIMENSIONS: Final[tuple[Dimension, ...]] = get_args(Dimension)
ABSTENTION: Final = "abstention_correctness"
NOT_APPLICABLE: Final = -1
BEST: Final = 5
SOUND: Final = 4
POOR: Final = 2
_COMMITTED: Final = frozenset({"answers", "hedges", "abstains"})
_WORD: Final = re.compile(r"\w+")


def abstention(question: Question, evidence: Sufficiency, stance: Stance) -> Abstention:
    """Judge whether it was right to answer or to abstain; nothing to judge where nothing was asked or told."""
    if question == "none" or stance not in _COMMITTED:
        return "not_applicable"
    if stance == "answers" and evidence != "sufficient":
        return "unfounded_answer"
    if stance == "abstains" and evidence == "sufficient":
        return "needless_abstention"
    return "pass"


def result(score: int, pass_score: int) -> str:
    """Give the result of a scored dimension."""
    if score == NOT_APPLICABLE:
        return "not_applicable"
    return "pass" if score >= pass_score else "fail"


def overall_pass(dimensions: Mapping[str, Mapping[str, Any]]) -> bool:
    """Say whether no dimension fails."""
    return all(dimension["result"] != "fail" for dimension in dimensions.values())


def overall_score(dimensions: Mapping[str, Mapping[str, Any]]) -> float | None:
    """Give the mean over the applicable dimensions; None when there is none."""
    values = [
        float(dimension["result"] == "pass") if name == ABSTENTION else (dimension["score"] - 1) / 4
        for name, dimension in dimensions.items()
        if dimension["result"] != "not_applicable"
    ]
    return sum(values) / len(values) if values else None


def supported_share(statements: Iterable[tuple[str, Iterable[str]]]) -> float | None:
    """Give the supported share of the words in (statement, unsupported parts) pairs; None without words."""
    total = unsupported = 0
    for text, parts in statements:
        words = len(_WORD.findall(text))
        total += words
        unsupported += min(words, sum(len(_WORD.findall(part)) for part in parts))
    return 1 - unsupported / total if total else None
