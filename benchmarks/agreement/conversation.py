"""The sets of the conversation rubric.

Ranked is the share of a reply's statements that its passages support, as code computes it from the verdict.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any, Final

from benchmarks.agreement.rows import Row
from benchmarks.agreement.sets import Figure, LabelledSet, Record, Unit
from benchmarks.agreement.trivial import token_precision
from monitor.agreement import auc, balanced_accuracy, kappa, spearman
from monitor.judgement import Judgement, Verdict

FAITHFUL: Final = 3
SETTINGS: Final = {"rubrics.conversation.max_answers": 100}
"""Every labelled answer is judged, not a sample."""

Graded = Mapping[str, Any]


def mtrag_units(row: Row, judgement: Judgement) -> Iterator[Unit]:
    """Compare each rated reply that had passages with the median of its three raters.

    A reply that takes nothing from its passages has a share of 0.
    """
    source = row.session.session_id.split("-")[1]
    answers = _answers(judgement)
    for label in row.human["turn_labels"]:
        turn = row.session.turns[label["turn_index"]]
        if not turn.evidence:
            continue
        truth = median(label["ratings"]["faithfulness"])
        graded = answers.get(turn.index)
        share, trivial = _share(graded, otherwise=0.0), token_precision(turn)
        yield Unit(kind="rank", source=source, truth=truth, said=share, trivial=trivial)
        yield Unit(kind="bad", source=source, truth=truth < FAITHFUL, said=1 - share, trivial=1 - trivial)
        yield Unit(
            kind="flag", source=source, truth=truth < FAITHFUL, said=_fails(graded, "evidence_faithfulness")
        )


def begin_units(row: Row, judgement: Judgement) -> Iterator[Unit]:
    """Compare with fully attributable or not; a reply that states nothing is not attributable to anything."""
    for label in row.human["turn_labels"]:
        if "eneric" not in label["begin_label"]:
            bad = not label["begin_label"].startswith("Fully")
            yield from _turn_units(row, judgement, label["turn_index"], bad=bad, nothing=0.0)


def faithdial_units(row: Row, judgement: Judgement) -> Iterator[Unit]:
    """Compare with hallucinated or not; a reply that states nothing hallucinates nothing."""
    for label in row.human["turn_labels"]:
        if not any("generic" in name.lower() for name in label["begin"]):
            bad = any("hallucination" in name.lower() for name in label["begin"])
            yield from _turn_units(row, judgement, label["turn_index"], bad=bad, nothing=1.0)


def swapped(records: list[Record]) -> list[Record]:
    """Give each session with its last reply, and with one of a session of another behavior in its place.

    The set's passages are all that bears on the question: where it has none, retrieval found nothing.
    """
    found = []
    for record in records:
        expected = _label(record)
        others = [other for other in records if _label(other) != expected]
        found.append(_with_reply(record, record, "own"))
        if others:
            digest = hashlib.blake2b(record["session_id"].encode(), digest_size=4).digest()
            found.append(_with_reply(record, others[int.from_bytes(digest, "big") % len(others)], "swapped"))
    return found


def _label(record: Record) -> str:
    return str(record["human"]["turn_labels"][0]["expected_behaviour"])


def _with_reply(record: Record, other: Record, name: str) -> Record:
    last = record["turns"][-1] | {"text": other["turns"][-1]["text"]}
    last["evidence"] = last.get("evidence") or []
    human = {"expected": _label(record), "given": _label(other), "source": record["session_id"]}
    session_id = f"{record['session_id']}-{name}"
    return record | {"session_id": session_id, "turns": [*record["turns"][:-1], last], "human": human}


def behavior_units(row: Row, judgement: Judgement) -> Iterator[Unit]:
    """Compare whether the last reply does what was expected there.

    Said to be right: both the abstention and the clarification pass, or don't apply.
    """
    expected, given = row.human["expected"], row.human["given"]
    graded = _answers(judgement).get(row.session.turns[-1].index)
    wrong = _fails(graded, "abstention_correctness") or _fails(graded, "clarification_appropriateness")
    yield Unit(kind=expected, source=row.human["source"], truth=expected == given, said=not wrong, trivial=True)


def _turn_units(row: Row, judgement: Judgement, turn: int, *, bad: bool, nothing: float) -> Iterator[Unit]:
    source = row.session.session_id
    graded = _answers(judgement).get(turn)
    trivial = 1 - token_precision(row.session.turns[turn])
    said = 1 - _share(graded, otherwise=nothing)
    yield Unit(kind="bad", source=source, truth=bad, said=said, trivial=trivial)
    yield Unit(kind="flag", source=source, truth=bad, said=_fails(graded, "evidence_faithfulness"))


def _answers(judgement: Judgement) -> dict[int, Graded]:
    if not isinstance(judgement.result, Verdict):
        return {}
    return {graded["turn_index"]: graded for graded in judgement.result.data["answers"]}


def _share(graded: Graded | None, *, otherwise: float) -> float:
    share = graded["supported_share"] if graded else None
    return otherwise if share is None else float(share)


def _fails(graded: Graded | None, dimension: str) -> bool:
    return graded is not None and graded["dimensions"][dimension]["result"] == "fail"


_BEHAVIORS: Final = ("abstain", "clarify", "answer", "partial_answer")
_FLAG: Final = Figure(name="faithfulness_kappa", kind="flag", compare=kappa)
SETS = (
    LabelledSet(
        name="mtrag_human",
        file="mtrag_human_full.jsonl",
        more_files=("mtrag_human_gpt4o.jsonl", "mtrag_human_llama405b.jsonl"),
        rubric="conversation",
        units=mtrag_units,
        figures=(
            Figure(name="faithfulness_spearman", kind="rank", compare=spearman, goal=0.62, trivial=True),
            Figure(name="unfaithful_auc", kind="bad", compare=auc, goal=0.94, trivial=True),
            _FLAG,
        ),
    ),
    LabelledSet(
        name="begin_wow",
        file="begin_wow.jsonl",
        rubric="conversation",
        units=begin_units,
        figures=(Figure(name="unattributable_auc", kind="bad", compare=auc, goal=0.94, trivial=True), _FLAG),
    ),
    LabelledSet(
        name="faithdial_audit",
        file="faithdial_audit.jsonl",
        rubric="conversation",
        units=faithdial_units,
        figures=(Figure(name="hallucinated_auc", kind="bad", compare=auc, trivial=True), _FLAG),
    ),
    LabelledSet(
        name="mtragun_answerability",
        file="mtragun_answerability.jsonl",
        rubric="conversation",
        prepare=swapped,
        units=behavior_units,
        figures=tuple(
            Figure(name=f"{name}_balanced_accuracy", kind=name, compare=balanced_accuracy, trivial=True)
            for name in _BEHAVIORS
        ),
    ),
)
