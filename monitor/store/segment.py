"""One stored segment inside a transaction: what is there, and what a batch changes (R1, J4). Pure.

The counted judgement of a job is a fold over its judgements in the order in which they were stored, so it is the
same whether the decision came first, last or in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from monitor.decision import repeat_id
from monitor.store.ledger import (
    DecisionFacts,
    JudgementFacts,
    Sums,
    TotalKey,
    add,
    decision_sums,
    judgement_sums,
    repeat_sums,
    superseded_sums,
)

PENDING: Final = "pending"
WAITING: Final = "waiting"
COUNTED: Final = "counted"
SUPERSEDED: Final = "superseded"
OVERLAP: Final = "overlap"
REPEAT: Final = "repeat"


class Segment:
    """Decision, jobs and judgements of one segment.

    `sums` collects what its changes add to the totals; the segments of a batch may share one.

    `jobs` maps the ids of the stored decision's jobs to their state: pending, verdict, skipped or unscored.
    """

    def __init__(
        self,
        decision: DecisionFacts | None = None,
        jobs: dict[str, str] | None = None,
        judgements: Iterable[JudgementFacts] = (),
        sums: Sums | None = None,
    ) -> None:
        self.decision = decision
        self.jobs = jobs or {}
        self.judgements = list(judgements)
        self.sums: Sums = {} if sums is None else sums

    def decide(self, decision: DecisionFacts) -> bool:
        """Take the first decision and settle the judgements that waited for it; False for any later one."""
        if self.decision is not None:
            return False
        self.decision = decision
        add(self.sums, decision_sums(decision))
        if decision.selected and not decision.overlap:
            self.jobs = dict.fromkeys(decision.jobs, PENDING)
        for judgement in self.judgements:
            self._settle(judgement, decision)
        return True

    def judge(self, judgement: JudgementFacts) -> bool:
        """Take a judgement; False when this very one is stored already."""
        if any(known.digest == judgement.digest for known in self.judgements):
            return False
        self.judgements.append(judgement)
        if self.decision is not None:
            self._settle(judgement, self.decision)
        return True

    def _settle(self, judgement: JudgementFacts, decision: DecisionFacts) -> None:
        if decision.overlap:
            judgement.standing = OVERLAP
            return
        state = self.jobs.get(judgement.job_id)
        listed = state is not None and judgement.content_hash == decision.content_hash
        if listed and state == PENDING:
            self._count(judgement, decision)
        elif listed and state == "unscored" and judgement.kind != "unscored":
            self._withdraw(judgement.job_id, decision)
            self._count(judgement, decision)
        elif (live := self._repeated(judgement, decision)) is not None:
            judgement.standing = REPEAT
            self._pair(live)
        else:
            self._supersede(judgement)

    def _repeated(self, judgement: JudgementFacts, decision: DecisionFacts) -> str | None:
        """Name the job that a judgement answers for a second time; None if it does not, or another one did."""
        if judgement.content_hash != decision.content_hash or any(
            known.job_id == judgement.job_id and known.standing == REPEAT for known in self.judgements
        ):
            return None
        return next((live for live in self.jobs if repeat_id(live) == judgement.job_id), None)

    def _count(self, judgement: JudgementFacts, decision: DecisionFacts) -> None:
        # A list, so that a sum that is too large raises before anything has been added.
        add(self.sums, list(judgement_sums(decision, judgement)))
        judgement.standing = COUNTED
        self.jobs[judgement.job_id] = judgement.kind
        self._pair(judgement.job_id)

    def _withdraw(self, job_id: str, decision: DecisionFacts) -> None:
        """Take an unscored judgement out of the totals again (J4)."""
        for known in self.judgements:
            if known.job_id == job_id and known.standing == COUNTED:
                self._pair(job_id, -1)
                add(self.sums, judgement_sums(decision, known), -1)
                self._supersede(known)

    def _pair(self, live: str, sign: int = 1) -> None:
        add(self.sums, pair_sums(self.judgements, live), sign)

    def _supersede(self, judgement: JudgementFacts) -> None:
        judgement.standing = SUPERSEDED
        add(self.sums, superseded_sums(judgement.rubric))


def pair_sums(judgements: Sequence[JudgementFacts], live: str) -> Iterator[tuple[TotalKey, int]]:
    """Give what a job's counted judgement and the second one beside it add, when both are there."""
    repeats = [item for item in judgements if item.standing == REPEAT]
    counted = next((item for item in judgements if item.job_id == live and item.standing == COUNTED), None)
    if counted is None or not repeats:
        return
    wanted = repeat_id(live)
    for repeat in repeats:
        if repeat.job_id == wanted:
            yield from repeat_sums(counted, repeat)
