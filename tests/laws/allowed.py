"""The changes of a valid answer that give another valid answer, each with the reason why code can't refuse it.

What is not listed here has to be refused. `where` is a place of the answer, `kinds` are those of `corruptions`;
with `values` it is a change from one of them to another, with `holds` a rule must hold of what comes out, and with
`same` the change must not change the result either.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from tests.laws import rules
from tests.laws.rules import Row


class Allowance(msgspec.Struct, kw_only=True, frozen=True):
    """A place, the kinds of change that are allowed there, and why."""

    where: str
    kinds: tuple[str, ...]
    why: str
    same: bool = False
    values: tuple[str, ...] = ()
    holds: Callable[[Row, Row], bool] | None = None


def _free(where: str, why: str, *kinds: str) -> Allowance:
    return Allowance(where=where, kinds=("foreign", "word", *kinds), why=why)


def _same_words(where: str, why: str) -> Allowance:
    return Allowance(where=where, kinds=("other",), why=why)


def _scores(prefix: str = "") -> tuple[Allowance, ...]:
    names = ("acknowledgment", "incorporation_accuracy", "persistence", "no_over_correction")
    why = "a grade is the judge's, within what the failure mode, the quote and the detail allow"
    return tuple(
        Allowance(where=prefix + name, kinds=("enum",), why=why, holds=rules.grade_fits) for name in names
    )


def _grade(prefix: str = "") -> tuple[Allowance, ...]:
    """List what event mode and whole mode have in common."""
    return (
        *_scores(prefix),
        Allowance(
            where=f"{prefix}acknowledgment_quote",
            kinds=("empty",),
            holds=rules.grade_fits,
            why="an acknowledgment may be seen in what is done; only a 5 needs its words",
        ),
        Allowance(
            where=f"{prefix}acknowledgment_quote",
            kinds=("foreign",),
            why="other words of an assistant turn behind the correction: which acknowledge is the judge's to say",
        ),
        Allowance(
            where=f"{prefix}failure_mode",
            kinds=("enum",),
            holds=rules.grade_fits,
            why="which mode holds is the verdict itself; what contradicts scores or turns is refused",
        ),
        Allowance(
            where=f"{prefix}first_right_use_turn_index",
            kinds=("number",),
            holds=rules.grade_fits,
            why="another quoted reply may be the first right one; the judge's to say",
        ),
        Allowance(
            where=f"{prefix}over_correction_turn_index",
            kinds=("number",),
            why="another quoted reply may be the one that changed too much; the judge's to say",
        ),
        _free(f"{prefix}over_correction_detail", "described in words of the judge's own"),
        _free(f"{prefix}rationale", "free text"),
    )


def _correction(prefix: str = "") -> tuple[Allowance, ...]:
    return (
        _free(f"{prefix}corrected_claim", "what was wrong, in words of the judge's own", "empty", "blank"),
        _free(f"{prefix}correction_content", "what is right, in words of the judge's own"),
        Allowance(
            where=f"{prefix}correction_type",
            kinds=("enum",),
            why="the type is the judge's to say; it counts for nothing but whether a right value is needed",
        ),
        Allowance(
            where=f"{prefix}targets_turn",
            kinds=("number",),
            why="any shown turn before may hold the error, or none; another than the producer named is misaligned",
        ),
    )


_CORRECTION: Final = (
    *_correction(),
    *_grade(),
    Allowance(
        where="incorporation_check_turns",
        kinds=("swap",),
        why="it says that each reply was looked at; the order means nothing",
    ),
    Allowance(
        where="incorporation_evidence",
        kinds=("duplicate", "remove", "swap"),
        why="quotes prove, they aren't counted: one from each turn that is named is enough, in any order",
    ),
    Allowance(
        where="incorporation_evidence[].quote",
        kinds=("foreign", "other"),
        why="a longer quote of the same turn, or another one of it",
    ),
    Allowance(
        where="is_correction",
        kinds=("flip",),
        why="where no reply is judged, both say so: misaligned, or not applicable",
    ),
)

_WHOLE: Final = (
    *_correction("corrections[]."),
    *_grade("grades[]."),
    _same_words("corrections[].corrected_claim", "what was wrong, in words of the judge's own"),
    _same_words("corrections[].correction_content", "what is right, in words of the judge's own"),
    _same_words("grades[].acknowledgment_quote", "a reply may acknowledge two corrections at once"),
    _same_words("grades[].rationale", "free text"),
    Allowance(
        where="corrections[].superseded_by_turn_index",
        kinds=("number",),
        why="which later turn of the user corrects the same again is the judge's to say",
    ),
    Allowance(
        where="evidence",
        kinds=("duplicate", "remove", "swap"),
        why="quotes prove, they aren't counted: one from each turn that is named is enough, in any order",
    ),
    Allowance(where="evidence[].quote", kinds=("foreign",), why="a longer quote of the same turn"),
    Allowance(
        where="grades",
        kinds=("swap",),
        why="a grade names its correction; the order means nothing",
        same=True,
    ),
)

_UNREAD: Final = "a reply that doesn't rest on evidence is not judged; the prompt says that this isn't read"
_UNREAD_PLACES: Final[dict[str, tuple[str, ...]]] = {
    "asks_back_quote": ("foreign",),
    "dimensions": ("duplicate", "empty", "remove", "swap"),
    "dimensions[].dimension": ("enum",),
    "dimensions[].rationale": ("blank", "empty"),
    "dimensions[].score": ("number", "out_of_range"),
    "invented_source_quote": ("foreign",),
    "question": ("enum",),
    "question_quote": ("foreign",),
    "settled_quote": ("foreign",),
    "stance": ("enum",),
    "settled_turn_index": ("number", "out_of_range"),
    "stance_quote": ("blank", "empty", "word"),
}

_CONVERSATION: Final = (
    *(Allowance(where=where, kinds=kinds, why=_UNREAD, same=True) for where, kinds in _UNREAD_PLACES.items()),
    Allowance(
        where="task",
        kinds=("enum",),
        holds=rules.rests_on_nothing,
        why="whether a reply should rest on evidence is the judge's to say where nothing in it rests on a passage",
    ),
    Allowance(
        where="citations[].statement_id",
        kinds=("empty",),
        why="a citation may stand for no statement",
    ),
    Allowance(
        where="citations[].verdict",
        kinds=("enum",),
        holds=rules.grades_fit,
        values=("right", "wrong"),
        why="right or wrong is the judge's to say; made up is code's, and the score must fit",
    ),
    Allowance(
        where="dimensions[].quote",
        kinds=("empty",),
        holds=rules.grades_fit,
        why="only a score under 4 needs words of the reply",
    ),
    Allowance(where="dimensions[].quote", kinds=("foreign", "other"), why="other words of the same reply"),
    _free("dimensions[].rationale", "free text", "other"),
    _same_words("citations[].statement_id", "which statement a citation stands for is the judge's to say"),
    Allowance(
        where="dimensions[].score",
        kinds=("number",),
        holds=rules.grades_fit,
        why="a grade is the judge's, within what its observations allow",
    ),
    Allowance(
        where="evidence",
        kinds=("enum",),
        why="whether the passages suffice is the judge's to say, where there are passages",
    ),
    Allowance(
        where="invented_source_quote",
        kinds=("empty", "foreign"),
        holds=rules.grades_fit,
        why="which words name a source is the judge's to say; an invented one forces a low score",
    ),
    _free("rationale", "free text"),
    Allowance(
        where="stance",
        kinds=("enum",),
        holds=rules.stance_fits,
        why="how the reply commits itself is the judge's to say, where statements and questions allow it",
    ),
    Allowance(where="stance_quote", kinds=("foreign",), why="a longer quote of the reply"),
    Allowance(
        where="statements",
        kinds=("remove",),
        holds=rules.grades_fit,
        why="which sentences state facts is the judge's to say; only the last one can go without renumbering",
    ),
    Allowance(
        where="statements[].quote",
        kinds=("foreign", "other"),
        why="a longer quote of the reply; two facts may stand in the same words",
    ),
    Allowance(
        where="statements[].support",
        kinds=("enum",),
        holds=rules.grades_fit,
        values=("partly", "contradicted"),
        why="partly supported or contradicted is the judge's to say; the scores must fit",
    ),
    Allowance(
        where="statements[].unsupported_parts",
        kinds=("remove", "swap"),
        why="which words lack support is the judge's to say, in any order",
    ),
    Allowance(
        where="statements[].unsupported_parts[]",
        kinds=("foreign",),
        why="the whole statement may lack support",
    ),
)

_HALLUCINATION: Final = (
    Allowance(
        where="claims",
        kinds=("empty", "remove"),
        why="which words are claims is the judge's to say; only the last of a turn can go without renumbering",
    ),
    _free("claims[].auditor_notes", "free text, for people", "blank", "empty", "other"),
    Allowance(
        where="claims[].claim_text",
        kinds=("foreign", "other"),
        why="a longer quote of the same turn; two facts may stand in the same words",
    ),
    _free("claims[].evidence_gap", "what is missing, in words of the judge's own", "other"),
    _same_words("claims[].source_quote", "other words of the same passage, which may carry both claims"),
    Allowance(
        where="claims[].gap",
        kinds=("enum",),
        values=("evidence_ignored", "retrieval_insufficient"),
        why="ignored or insufficient is the judge's to say; whether retrieval was empty is code's",
    ),
    Allowance(
        where="claims[].link",
        kinds=("enum",),
        values=("repeat", "mutated", "built_on"),
        why="how a claim takes up its origin is the judge's to say; that it does needs a link",
    ),
    Allowance(
        where="claims[].source",
        kinds=("enum",),
        holds=rules.claim_fits,
        why="whether a claim is the user's own case is the judge's to say, where it has no evidence",
    ),
    Allowance(
        where="claims[].status",
        kinds=("enum",),
        holds=rules.claim_fits,
        values=("grounded", "contradicts_evidence"),
        why="whether a quoted passage supports or contradicts is the verdict itself",
    ),
    _free("rationale", "free text"),
)

_REFUSAL: Final = (
    Allowance(
        where="changes",
        kinds=("empty",),
        why="whether a request became another one is the judge's to say",
    ),
    Allowance(
        where="changes[].kind",
        kinds=("enum",),
        why="both end the course of a request",
        same=True,
    ),
    Allowance(
        where="pushes",
        kinds=("empty", "remove"),
        why="which turns push is the judge's to say",
    ),
    Allowance(
        where="pushes",
        kinds=("swap",),
        why="pushes are counted by their turns; the order means nothing",
        same=True,
    ),
    Allowance(where="pushes[].tactic", kinds=("enum",), why="which tactic it is, is the judge's to say"),
    _free("rationale", "free text"),
    Allowance(
        where="requests[].basis",
        kinds=("enum",),
        holds=rules.refusal_fits,
        why="why it must be refused is the judge's to say, where a reply refused it",
    ),
    _free("requests[].request", "what is asked for, in words of the judge's own", "other"),
    Allowance(where="turns[].quote", kinds=("foreign",), why="a longer quote of the same turn"),
    Allowance(
        where="turns[].request_id",
        kinds=("other",),
        holds=rules.refusal_fits,
        why="which of two requests a reply deals with is the judge's to say",
    ),
    Allowance(
        where="turns[].state",
        kinds=("enum",),
        holds=rules.refusal_fits,
        why="the state of a reply is the verdict itself",
    ),
)

ALLOWED: Final[dict[str, tuple[Allowance, ...]]] = {
    "conversation": _CONVERSATION,
    "correction": _CORRECTION,
    "correction_whole": _WHOLE,
    "hallucination": _HALLUCINATION,
    "refusal": _REFUSAL,
}
