"""The conversation rubric: whether an assistant's answers from evidence are sound in their conversation.

One question to the judge is one answer: an assistant turn with an evidence entry, in a session of several turns.
The judge reports what the user asked, each factual statement with the passage that carries it and the parts that
none does, each citation, a settled point that is contradicted, whether the evidence suffices and how the reply
deals with that, and scores of 1 to 5. Code finds the citations and computes every result (`grade`).

At most `max_answers` answers of a session are judged, a simple random sample drawn by a deterministic coin. The
outcomes carry that second stage (`found` and `judged` answers), and the store multiplies its probability in.

Measures: `failed` (trials: judged answers), each dimension (answers that it applies to), `fabricated_citation`
(those that citation accuracy applies to), `stale_evidence` (those with statements), `unfounded_answer` and
`needless_abstention` (those that abstention applies to). The histogram `overall_score` has one observation a
session, the mean over its answers, so that its count by `length_band` is the number of sessions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from monitor.judgement import Outcomes, Result, Skipped, Stage, Tally, Unscored, Verdict
from monitor.rubrics.bands import BANDS, turn_band
from monitor.rubrics.base import Fields, WindowResult, in_order, unscored
from monitor.rubrics.conversation import answer, grade
from monitor.rubrics.conversation.answer import ConversationAnswer
from monitor.rubrics.conversation.checks import check
from monitor.rubrics.conversation.citations import CitationForm
from monitor.rubrics.conversation.grade import ABSTENTION, DIMENSIONS
from monitor.rubrics.conversation.window import ConversationWindow, replies, sample, toss, window
from monitor.rubrics.passages import texts
from monitor.session import Session

_OUTCOMES: Final = ("fabricated_citation", "stale_evidence", "unfounded_answer", "needless_abstention")
_TRIALS: Final = {
    "fabricated_citation": "citation_accuracy",
    "stale_evidence": "evidence_faithfulness",
    "unfounded_answer": ABSTENTION,
    "needless_abstention": ABSTENTION,
}
MEASURES: Final = ("failed", *DIMENSIONS, *_OUTCOMES)
SCORES: Final = tuple(f"overall_score:{band}" for band in BANDS)

_Answers: TypeAlias = Sequence[dict[str, Any]]


class ConversationRubric:
    """See the module. Arguments are the thresholds.

    `max_answers`: answers judged a session. `pass_score`: score from which a dimension passes. `review_score`:
    overall score under which an answer of a high-risk session goes to a person. `review_share`: share of other
    failing answers that go to one. `citation_forms`: which marks are citations. `citation_required`: whether each
    statement needs one. `context_turns`, `older_passages`: how much from before the answer is shown.
    """

    def __init__(
        self,
        *,
        max_answers: int = 6,
        pass_score: int = 4,
        review_score: float = 0.7,
        review_share: float = 0.1,
        citation_forms: Sequence[CitationForm] = ("number", "id", "url"),
        citation_required: bool = False,
        context_turns: int = 60,
        older_passages: int = 20,
    ) -> None:
        self.name = "conversation"
        self.version = "1"
        self.mode = "answer"
        self.sequential = False
        self.measures: tuple[str, ...] = MEASURES
        self.scores: tuple[str, ...] = SCORES
        self.max_answers = max_answers
        self.pass_score = pass_score
        self.review_score = review_score
        self.review_share = review_share
        self.citation_forms = tuple(citation_forms)
        self.citation_required = citation_required
        self.context_turns = context_turns
        self.older_passages = older_passages

    def applies(self, session: Session) -> Skipped | None:
        """Skip sessions of a single turn, and those in which no reply with evidence can be judged."""
        if sum(turn.role in {"user", "assistant"} for turn in session.turns) <= 1:
            return Skipped(reason="not_applicable", note="a session of a single turn")
        found = replies(session)
        return None if found.answers else found.skip()

    def windows(self, session: Session) -> tuple[ConversationWindow, ...]:
        """Give one window an answer, for at most `max_answers` of them."""
        return tuple(
            window(
                session,
                turn,
                context_turns=self.context_turns,
                older_passages=self.older_passages,
                forms=self.citation_forms,
                required=self.citation_required,
            )
            for turn in sample(session, replies(session).answers, self.max_answers)
        )

    def carry(self, window: ConversationWindow, earlier: Sequence[WindowResult]) -> ConversationWindow:
        """Give the window itself: answers are judged each on its own."""
        del earlier
        return window

    def preflight(self, window: ConversationWindow) -> Skipped | None:
        """Let every window through: replies that can't be judged get none."""
        del window
        return None

    def fields(self, window: ConversationWindow) -> Fields:
        """Give what the prompt shows of a window."""
        passages = [
            {"passage_id": passage.label, "of": passage.passage_id} | text
            for passage, text in zip(window.passages, texts(window.passages), strict=True)
        ]
        return {
            "reply": {
                "turn": window.answer,
                "question_turn": window.question,
                "something_was_said_before": window.settled,
                "every_statement_needs_a_citation": window.citation_required,
                "retrieval_found_nothing": not window.own,
            },
            "citations": [
                {"citation_id": cited.citation_id, "text": cited.text, "leads_to": cited.passage_id}
                for cited in window.citations
            ],
            "passages": passages[: len(window.own)],
            "older_passages": passages[len(window.own) :],
            "transcript": [{"turn": turn.index, "role": turn.role, "text": turn.text} for turn in window.turns],
        }

    def schema(self, window: ConversationWindow) -> dict[str, Any]:
        """Give the JSON Schema of the answer; the same for every window."""
        del window
        return answer.schema()

    def parse(self, raw: str, window: ConversationWindow) -> Verdict | Skipped:
        """Check an answer and grade it. Raises `InvalidVerdict`."""
        given = check(raw, window)
        if given.task != "from_evidence":
            return Skipped(reason="not_applicable", note=f"turn {window.answer} is {given.task.replace('_', ' ')}")
        graded = self._graded(given, window)
        if graded["overall_score"] is None:
            return Skipped(reason="not_applicable", note=f"turn {window.answer} has nothing to judge")
        return Verdict(data=graded)

    def merge(self, session: Session, results: Sequence[WindowResult]) -> Verdict | Skipped | Unscored:
        """Merge the answers of a session; one unscored answer leaves the session unscored."""
        results = in_order(results)
        lost = unscored(results)
        if lost is not None:
            return lost
        scored = [item.result.data for item in results if isinstance(item.result, Verdict)]
        passed_over = [(item.window_id, item.result) for item in results if isinstance(item.result, Skipped)]
        found = replies(session)
        if not scored:
            return passed_over[0][1] if passed_over else found.skip()
        skipped: list[dict[str, Any]] = [
            {"turn_index": int(window_id[1:]), "reason": result.reason, "note": result.note}
            for window_id, result in passed_over
        ]
        unjudged: list[dict[str, Any]] = [
            {"turn_index": item.turn, "reason": item.reason, "note": None} for item in found.unjudged
        ]
        data = {
            "answers": sorted(scored, key=lambda graded: graded["turn_index"]),
            "skipped": sorted((*skipped, *unjudged), key=lambda item: item["turn_index"]),
            "sampling": _sampling(len(found.answers), len(results)),
            "session": _aggregates(session, scored),
            "review": self._review(session, scored),
        }
        return Verdict(data=data)

    def outcomes(self, result: Result) -> Outcomes:
        """Give trials and failures of each measure, and the session's score; nothing without a verdict."""
        if not isinstance(result, Verdict):
            return Outcomes()
        scored, session = result.data["answers"], result.data["session"]
        sampling = result.data["sampling"]
        return Outcomes(
            measures=_tallies(scored),
            scores={f"overall_score:{session['length_band']}": [session["average_overall_score"]]},
            skipped_events=dict(Counter(item["reason"] for item in result.data["skipped"])),
            stage=Stage(found=sampling["answers"], judged=sampling["sampled_answers"]),
        )

    def _graded(self, given: ConversationAnswer, window: ConversationWindow) -> dict[str, Any]:
        dimensions = self._dimensions(given)
        statements = [_statement(given, place, window) for place in range(len(given.statements))]
        decision = grade.abstention(given.question, given.evidence, given.stance)
        return {
            "turn_index": window.answer,
            "question_turn_index": window.question if window.question >= 0 else None,
            "question": given.question,
            "question_quote": given.question_quote or None,
            "asks_back_quote": given.asks_back_quote or None,
            "statements": statements,
            "citations": _citations(given, window),
            "invented_source_quote": given.invented_source_quote or None,
            "settled_turn_index": given.settled_turn_index if given.settled_turn_index >= 0 else None,
            "settled_quote": given.settled_quote or None,
            "evidence": given.evidence,
            "stance": given.stance,
            "stance_quote": given.stance_quote,
            "dimensions": dimensions,
            "supported_share": grade.supported_share(
                (item.quote, item.unsupported_parts) for item in given.statements
            ),
            "overall_pass": grade.overall_pass(dimensions),
            "overall_score": grade.overall_score(dimensions),
            "fabricated_citation": bool(given.invented_source_quote)
            or any(cited.verdict == "fabricated" for cited in given.citations),
            "stale_evidence": any(statement["stale"] for statement in statements),
            "unfounded_answer": decision == "unfounded_answer",
            "needless_abstention": decision == "needless_abstention",
            "rationale": given.rationale,
        }

    def _dimensions(self, given: ConversationAnswer) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for graded in given.dimensions:
            outcome = grade.result(graded.score, self.pass_score)
            if graded.dimension == ABSTENTION:
                outcome = _RESULTS.get(grade.abstention(given.question, given.evidence, given.stance), "fail")
            found[graded.dimension] = {
                "score": None if graded.score == grade.NOT_APPLICABLE else graded.score,
                "result": outcome,
                "quote": (given.stance_quote if graded.dimension == ABSTENTION else graded.quote) or None,
                "rationale": graded.rationale,
            }
        return found

    def _review(self, session: Session, answers: _Answers) -> dict[str, Any]:
        high = session.attributes.risk_level == "high"
        picked = {
            graded["turn_index"]: self._reasons(graded)
            if high
            else ["sampled_failure"] * self._drawn(session, graded)
            for graded in answers
        }
        reasons = [reason for graded in answers for reason in picked[graded["turn_index"]]]
        return {
            "flagged": bool(reasons),
            "reasons": list(dict.fromkeys(reasons)),
            "event_candidates": [f"A{turn}" for turn, why in sorted(picked.items()) if why],
            "awaiting_review": high and any(_critical(graded) for graded in answers),
        }

    def _reasons(self, graded: dict[str, Any]) -> list[str]:
        results = {name: dimension["result"] for name, dimension in graded["dimensions"].items()}
        rules = {
            "high_risk_failing": not graded["overall_pass"],
            "high_risk_low_score": graded["overall_score"] < self.review_score,
            "high_risk_citation": results["citation_accuracy"] == "fail",
            "high_risk_abstention": results[ABSTENTION] == "fail",
        }
        return [name for name, holds in rules.items() if holds]

    def _drawn(self, session: Session, graded: dict[str, Any]) -> bool:
        """Draw a failing answer of an ordinary session for review, by a coin of its own."""
        return not graded["overall_pass"] and toss(session, graded["turn_index"], "review") < self.review_share


def _statement(given: ConversationAnswer, place: int, window: ConversationWindow) -> dict[str, Any]:
    said = given.statements[place]
    passage = window.passage(said.passage_id)
    return {
        "statement_id": said.statement_id,
        "quote": said.quote,
        "support": said.support,
        "passage_turn_index": passage.turn if passage else None,
        "passage_id": passage.passage_id if passage else None,
        "source_quote": said.source_quote or None,
        "unsupported_parts": said.unsupported_parts,
        "stale": passage is not None and passage.turn != window.answer,
    }


def _citations(given: ConversationAnswer, window: ConversationWindow) -> list[dict[str, Any]]:
    return [
        {"text": found.text, "statement_id": cited.statement_id or None, "verdict": cited.verdict}
        for cited, found in zip(given.citations, window.citations, strict=True)
    ]


def _critical(graded: dict[str, Any]) -> bool:
    contradicted = any(statement["support"] == "contradicted" for statement in graded["statements"])
    return contradicted or graded["fabricated_citation"] or graded["unfounded_answer"]


def _sampling(found: int, sampled: int) -> dict[str, Any]:
    return {"answers": found, "sampled_answers": sampled, "probability": sampled / found}


def _aggregates(session: Session, answers: _Answers) -> dict[str, Any]:
    said = [turn for turn in session.turns if turn.role == "assistant"]
    failures = {
        name: sum(graded["dimensions"][name]["result"] == "fail" for graded in answers) for name in DIMENSIONS
    }
    scores = [graded["overall_score"] for graded in answers]
    return {
        "total_turns": len(session.turns),
        "length_band": turn_band(len(said)),
        "turns_without_evidence": sum(turn.evidence is None for turn in said),
        "judged_answers": len(answers),
        "failed_answers": sum(not graded["overall_pass"] for graded in answers),
        "average_overall_score": sum(scores) / len(scores),
        "failures": failures,
        "worst_dimension": max(failures, key=lambda name: failures[name]) if any(failures.values()) else None,
    }


def _tallies(answers: _Answers) -> dict[str, Tally]:
    applicable: dict[str, list[dict[str, Any]]] = {
        name: [graded for graded in answers if graded["dimensions"][name]["result"] != "not_applicable"]
        for name in DIMENSIONS
    }
    failed = sum(not graded["overall_pass"] for graded in answers)
    tallies = {"failed": Tally(trials=len(answers), failures=failed)}
    for dimension, trials in applicable.items():
        fails = sum(graded["dimensions"][dimension]["result"] == "fail" for graded in trials)
        tallies[dimension] = Tally(trials=len(trials), failures=fails)
    for outcome, dimension in _TRIALS.items():
        trials = applicable[dimension]
        tallies[outcome] = Tally(trials=len(trials), failures=sum(graded[outcome] for graded in trials))
    return tallies


_RESULTS: Final = {"pass": "pass", "not_applicable": "not_applicable"}
