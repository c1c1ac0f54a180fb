"""Sessions as the store holds them, judged by the real lexical judge; and one with many claims that come back."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from monitor.config import JudgeSettings
from monitor.decision import Decision, Job, JobRef, job_id
from monitor.judgement import Judgement, Verdict
from monitor.judging.lexical import LexicalJudge
from monitor.offline_judge import OfflineJudge
from monitor.rubrics import RUBRICS
from monitor.rubrics.base import WindowResult
from monitor.session import SessionContent, content_hash, session_view
from monitor.store import RubricCounts
from tests.unit.store.builders import decision, judgement

GOLDEN = Path(__file__).parents[3] / "prompts"
ALL = {name: RubricCounts(measures=rubric.measures, scores=rubric.scores) for name, rubric in RUBRICS.items()}


def golden() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Give the name and the turns of each session of the golden sets."""
    for path in sorted(GOLDEN.glob("*/golden.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            session = json.loads(line)["session"]
            yield session["session_id"], session["turns"]


def text_of(name: str, turns: Sequence[dict[str, Any]]) -> msgspec.Raw:
    """Encode a session of turns, each a dictionary with role, text and perhaps evidence."""
    events: list[dict[str, Any]] = []
    for place, turn in enumerate(turns):
        common: dict[str, Any] = {
            "session_id": name,
            "ts": 1000.0 + place,
            "turn_id": turn.get("turn_id", f"t{place}"),
        }
        said: dict[str, Any] = {
            key: turn[key] for key in ("role", "text", "finish_reason", "risk_level") if key in turn
        }
        events.append({"type": "turn", "event_id": f"{name}-{place}", **common, **said})
        if turn.get("evidence") is not None:
            passages = {"passages": turn["evidence"]}
            events.append({"type": "evidence", "event_id": f"{name}-e{place}", **common, **passages})
    events.sort(key=lambda event: event["type"], reverse=True)
    record = SessionContent(
        tenant="t",
        session_id=name,
        segment="e0",
        previous_segment=None,
        close_reason="ended",
        events=[msgspec.Raw(msgspec.json.encode(event)) for event in events],
    )
    return msgspec.Raw(msgspec.json.encode(record))


def decided(name: str, turns: Sequence[dict[str, Any]], rubrics: Sequence[str] = tuple(RUBRICS)) -> Decision:
    """Give the decision that lists a job a rubric."""
    jobs = [JobRef(job_id=job_id("t", name, "e0", rubric), rubric=rubric) for rubric in rubrics]
    text = text_of(name, turns)
    first = decision(name, text=text, turns=len(turns))
    return msgspec.structs.replace(first, frame=list(rubrics), jobs=jobs)


def judged(chosen: Decision) -> list[Judgement]:
    """Have the lexical judge answer the jobs of a decision."""
    assert chosen.content is not None
    judge = OfflineJudge(LexicalJudge(), RUBRICS, JudgeSettings())
    jobs = [
        Job(
            job_id=item.job_id,
            tenant=chosen.tenant,
            session_id=chosen.session_id,
            segment=chosen.segment,
            rubric=item.rubric,
            stratum=chosen.stratum,
            priority=chosen.priority,
            content_hash=chosen.content_hash,
            content=chosen.content,
        )
        for item in chosen.jobs
    ]

    async def answer() -> list[Judgement]:
        return [await judge.judge(job, chosen.span.closed_at) for job in jobs]

    return asyncio.run(answer())


def spreading(name: str = "spread", turns: int = 10) -> tuple[Decision, Judgement]:
    """Give a session whose three unsupported claims come back turn after turn, and its checked verdict."""
    said = [turn for number in range(turns) for turn in _asked_and_told(number)]
    chosen = decided(name, said, ["hallucination"])
    rubric = RUBRICS["hallucination"]
    assert chosen.content is not None
    session = session_view(chosen.content)
    results: list[WindowResult] = []
    for part in rubric.windows(session):
        window = rubric.carry(part, results)
        result = rubric.parse(json.dumps(_told(window)), window)
        results.append(WindowResult(window_id=window.window_id, result=result))
    merged = rubric.merge(session, results)
    assert isinstance(merged, Verdict)
    return chosen, judgement(
        name,
        result=merged,
        job_id=chosen.jobs[0].job_id,
        hash_=content_hash(chosen.content),
        rubric="hallucination",
        mode="claim",
        outcomes=rubric.outcomes(merged),
        judge="anthropic:claude-haiku-5-5",
        provider="anthropic",
        model="claude-haiku-5-5",
    )


def _facts(number: int) -> tuple[str, str, str]:
    return (
        "The hall has 300 places.",
        "The pool is heated to 34 degrees.",
        f"House {number} has breakfast until 11.",
    )


def _asked_and_told(number: int) -> Iterator[dict[str, Any]]:
    yield {"role": "user", "text": f"And item {number}?", "turn_id": f"u{number}"}
    own = f"Item {number} is blue"
    passage = {"id": f"p{number}", "text": f"{own} and round."}
    yield {
        "role": "assistant",
        "text": f"{own}. {' '.join(_facts(number))}",
        "turn_id": f"a{number}",
        "evidence": [passage],
    }


def _told(window: Any) -> dict[str, Any]:
    claims = []
    for turn in window.audited:
        number = (turn - 1) // 2
        claims.append(_claim(turn, 1, f"Item {number} is blue", passage=f"E{turn}.1"))
        # The first fact comes from the first turn each time, the second from the turn before, the third is new.
        origins = (1, turn - 2, None)
        for place, (fact, origin) in enumerate(zip(_facts(number), origins, strict=True), 2):
            link = ("repeat", "mutated", "built_on")[number % 3]
            claims.append(_claim(turn, place, fact, origin=origin if number else None, link=link))
    return {"audited_turns": list(window.audited), "claims": claims, "rationale": "Facts without a source."}


def _claim(
    turn: int, place: int, text: str, *, passage: str = "", origin: int | None = None, link: str = "none"
) -> dict[str, Any]:
    returned = origin is not None
    return {
        "claim_id": f"{turn}.{place}",
        "turn_index": turn,
        "claim_text": text,
        "source": "assistant",
        "passage_id": passage,
        "source_quote": text if passage else "",
        "origin_turn_index": origin if returned else -1,
        "origin_claim_id": f"{origin}.{place}" if returned else "",
        "link": link if returned else "none",
        "status": "grounded" if passage else "propagated_hallucination" if returned else "unsupported",
        "evidence_gap": "" if passage else "No passage says it.",
        "gap": "none" if passage else "retrieval_insufficient",
        "auditor_notes": "",
    }
