"""The hallucination rubric: unsupported claims, where they come from, and how they spread.

Audited is each assistant turn with an evidence entry. The judge lists its factual claims with quotes, and says
of each, the first that holds: `contradicts_evidence` (by the turn's own evidence), `grounded` (by the turn's
evidence, or with `evidence_scope` session by an older passage, then `stale`), `propagated_hallucination` (an
earlier unfounded claim returns, changed or not, or is built upon), `unsupported`. Nothing but the evidence
counts: a claim that is true and has no evidence is unsupported.

Long sessions are cut into windows that are asked about in order, each with the unfounded claims found so far.
Numbers, graph and flags are code's (`monitor.rubrics.hallucination.spread`).

Measures over claims of the assistant's: `unsupported`, `contradicted`, `propagated`, and by kind of gap
`retrieval_empty`, `retrieval_insufficient`, `evidence_ignored`. One trial a session: `failing_session`
(groundedness under the threshold) and `critical_session` (a contradiction, or an unfounded claim that came back
twice).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from monitor.judgement import Outcomes, Result, Skipped, Tally, Unscored, Verdict
from monitor.rubrics.answers import blank
from monitor.rubrics.bands import BANDS, turn_band
from monitor.rubrics.base import Fields, WindowResult, unscored
from monitor.rubrics.hallucination import answer, spread
from monitor.rubrics.hallucination.answer import UNFOUNDED, Claim, Scope
from monitor.rubrics.hallucination.window import (
    HallucinationWindow,
    OpenClaim,
    answers,
    auditable,
    windows,
)
from monitor.rubrics.passages import texts
from monitor.session import Session

_STATUS_MEASURES: Final = {
    "unsupported": "unsupported",
    "contradicted": "contradicts_evidence",
    "propagated": "propagated_hallucination",
}
_GAP_MEASURES: Final = ("retrieval_empty", "retrieval_insufficient", "evidence_ignored")
MEASURES: Final = (*_STATUS_MEASURES, *_GAP_MEASURES, "failing_session", "critical_session")
SCORES: Final = tuple(f"groundedness_ratio:{band}" for band in BANDS)
NO_CLAIM: Final = "no factual claim in this session"


class HallucinationRubric:
    """See the module. Arguments are the thresholds.

    `evidence_scope`: whose passages may support a claim. `window_turns` and `overlap_turns`: assistant turns a
    window shows, and of those the ones that the window before has audited. `min_groundedness`: a session below
    it fails.
    """

    def __init__(
        self,
        *,
        evidence_scope: Scope = "session",
        window_turns: int = 20,
        overlap_turns: int = 4,
        min_groundedness: float = 0.8,
    ) -> None:
        self.name = "hallucination"
        self.version = "1"
        self.mode = "claim"
        self.sequential = True
        self.measures: tuple[str, ...] = MEASURES
        self.scores: tuple[str, ...] = SCORES
        self.evidence_scope: Scope = evidence_scope
        self.window_turns = window_turns
        self.overlap_turns = overlap_turns
        self.min_groundedness = min_groundedness

    def applies(self, session: Session) -> Skipped | None:
        """Skip sessions in which no reply has an evidence entry: nothing can be checked, and nothing is passed."""
        if auditable(session):
            return None
        said = answers(session)
        if not said:
            return Skipped(reason="no_response", note="the assistant says nothing")
        if all(turn.cut_off for turn in said if turn.evidence is not None) and any(turn.evidence for turn in said):
            return Skipped(reason="cut_off", note="every reply with evidence was cut off")
        return Skipped(reason="no_evidence", note=f"none of {len(said)} replies has an evidence entry")

    def windows(self, session: Session) -> tuple[HallucinationWindow, ...]:
        """Cut a session into windows; every auditable reply is audited in exactly one."""
        return windows(session, self.window_turns, self.overlap_turns)

    def carry(self, window: HallucinationWindow, earlier: Sequence[WindowResult]) -> HallucinationWindow:
        """Give a window the unfounded claims of the ones before it."""
        found = [
            OpenClaim(**{name: claim[name] for name in OpenClaim.__struct_fields__})
            for item in earlier
            if isinstance(item.result, Verdict)
            for claim in item.result.data["claims"]
            if claim["status"] in UNFOUNDED and claim["source"] == "assistant"
        ]
        return msgspec.structs.replace(window, open_claims=tuple(found))

    def preflight(self, window: HallucinationWindow) -> Skipped | None:
        """Send every window."""
        del window
        return None

    def fields(self, window: HallucinationWindow) -> Fields:
        """Give what the prompt shows: passages under labels, the transcript, and what is open from before."""
        shown = [
            passage
            for passage in window.passages
            if self.evidence_scope == "session" or passage.turn in window.audited
        ]
        return {
            "scope": self.evidence_scope,
            "audited": list(window.audited),
            "open_claims": [
                {"claim_id": claim.claim_id, "turn": claim.turn_index, "text": claim.claim_text}
                for claim in window.open_claims
            ],
            "passages": [
                {"passage_id": passage.label, "turn": passage.turn} | text
                for passage, text in zip(shown, texts(shown), strict=True)
            ],
            "transcript": [
                {"turn": turn.index, "role": turn.role, "evidence": turn.evidence is not None, "text": turn.text}
                for turn in window.turns
            ],
        }

    def schema(self, window: HallucinationWindow) -> dict[str, Any]:
        """Give the JSON Schema of the answer; the same for every window."""
        del window
        return answer.schema()

    def parse(self, raw: str, window: HallucinationWindow) -> Verdict:
        """Check an answer. Raises `InvalidVerdict`."""
        given = answer.check(raw, window, self.evidence_scope)
        data = {
            "audited_turns": list(window.audited),
            "claims": spread.rooted([_data(claim, window) for claim in given.claims]),
            "high_risk": window.high_risk,
            "rationale": given.rationale,
        }
        return Verdict(data=data)

    def merge(self, session: Session, results: Sequence[WindowResult]) -> Verdict | Skipped | Unscored:
        """Merge the windows of a session; one unscored window leaves the session unscored."""
        lost = unscored(results)
        if lost is not None:
            return lost
        parts = [item.result.data for item in results if isinstance(item.result, Verdict)]
        claims = spread.rooted([claim for part in parts for claim in part["claims"]])
        audited = [turn for part in parts for turn in part["audited_turns"]]
        turns = spread.by_turn(audited, claims)
        graph = spread.edges(claims)
        totals = self._aggregates(session, turns, claims, graph)
        data = {
            "claims": claims,
            "turns": [turn | {"band": band} for turn, band in zip(turns, _bands(session, audited), strict=True)],
            "propagation": graph,
            "session": totals,
            "review": self._review(session, totals),
            "rationales": [part["rationale"] for part in parts],
        }
        return Verdict(data=data, note=None if claims else NO_CLAIM)

    def outcomes(self, result: Result) -> Outcomes:
        """Give trials and failures of each measure, and the groundedness of turns by their band."""
        if not isinstance(result, Verdict):
            return Outcomes()
        scores: dict[str, list[float]] = {}
        for turn in result.data["turns"]:
            if turn["groundedness"] is not None:
                scores.setdefault(f"groundedness_ratio:{turn['band']}", []).append(turn["groundedness"])
        blind = result.data["session"]["turns_without_evidence"]
        return Outcomes(
            measures=_tallies(result.data["claims"], result.data["session"]),
            scores=scores,
            skipped_events={"no_evidence": blind} if blind else {},
        )

    def _aggregates(
        self,
        session: Session,
        turns: Sequence[Mapping[str, Any]],
        claims: Sequence[Mapping[str, Any]],
        graph: Sequence[Mapping[str, Any]],
    ) -> dict[str, Any]:
        ratio = spread.mean(turns)
        return {
            "total_turns": len(session.turns),
            "audited_turns": len(turns),
            "turns_without_evidence": sum(turn.evidence is None for turn in answers(session)),
            "turns_without_claims": sum(turn["groundedness"] is None for turn in turns),
            "claims": sum(claim["source"] == "assistant" for claim in claims),
            "user_claims": sum(claim["source"] == "user" for claim in claims),
            "stale_claims": sum(claim["stale"] for claim in claims),
            "groundedness": ratio,
            "failing": ratio is not None and ratio < self.min_groundedness,
            "critical": spread.is_critical(claims, graph),
            "origins": spread.returns(graph),
        }

    def _review(self, session: Session, totals: Mapping[str, Any]) -> dict[str, Any]:
        high = session.attributes.risk_level == "high"
        reasons = [f"high_risk_{name}" for name in ("failing", "critical") if high and totals[name]]
        return {"flagged": bool(reasons), "reasons": reasons, "awaiting_review": high and bool(totals["critical"])}


def _data(claim: Claim, window: HallucinationWindow) -> dict[str, Any]:
    passage = window.passage(claim.passage_id, claim.turn_index)
    origin = {"turn_index": claim.origin_turn_index, "claim_id": claim.origin_claim_id or None}
    return {
        "claim_id": claim.claim_id,
        "turn_index": claim.turn_index,
        "claim_text": claim.claim_text,
        "source": claim.source,
        "status": claim.status,
        "passage_id": passage.passage_id if passage else None,
        "passage_label": passage.label if passage else None,
        "source_quote": claim.source_quote or None,
        "stale": passage is not None and passage.turn != claim.turn_index,
        "evidence_gap": None if blank(claim.evidence_gap) else claim.evidence_gap.strip(),
        "gap": None if claim.gap == "none" else claim.gap,
        "propagated_from": origin if claim.status == "propagated_hallucination" else None,
        "link": None if claim.link == "none" else claim.link,
        "auditor_notes": None if blank(claim.auditor_notes) else claim.auditor_notes.strip(),
    }


def _bands(session: Session, audited: Sequence[int]) -> list[str]:
    order = {turn.index: number for number, turn in enumerate(answers(session), 1)}
    return [turn_band(order[turn]) for turn in audited]


def _tallies(claims: Sequence[Mapping[str, Any]], totals: Mapping[str, Any]) -> dict[str, Tally]:
    own = [claim for claim in claims if claim["source"] == "assistant"]
    tallies = {
        measure: Tally(trials=len(own), failures=sum(claim["status"] == status for claim in own))
        for measure, status in _STATUS_MEASURES.items()
    }
    for gap in _GAP_MEASURES:
        tallies[gap] = Tally(trials=len(own), failures=sum(claim["gap"] == gap for claim in own))
    rated = int(totals["groundedness"] is not None)
    tallies["failing_session"] = Tally(trials=rated, failures=int(totals["failing"]))
    tallies["critical_session"] = Tally(trials=rated, failures=int(rated and totals["critical"]))
    return tallies
