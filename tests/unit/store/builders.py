"""Records for the tests of the store: real wire types with the uninteresting fields filled in."""

from typing import Any

import msgspec

from monitor.decision import Decision, JobRef, Labels, PolicyLoaded, StratumInfo, fingerprint, job_id
from monitor.judgement import Attempt, Judgement, Outcomes, Result, Tally, Unscored, Verdict
from monitor.session import Addendum, LogSpan, SessionContent, content_hash
from monitor.store import RubricCounts

MEASURES = ("reverted", "ignored")
SCORES = ("correction_response_score", "criterion_score:persistence")
RUBRICS = {"correction": RubricCounts(measures=MEASURES, scores=SCORES)}


def content(session_id: str = "s1", *texts: str, tenant: str = "t", segment: str = "e0") -> msgspec.Raw:
    """Encode a session of alternating user and assistant turns."""
    turns = [
        {
            "type": "turn",
            "event_id": f"e{index}",
            "session_id": session_id,
            "ts": 1000.0 + index,
            "turn_id": f"t{index}",
            "role": ("user", "assistant")[index % 2],
            "text": text,
        }
        for index, text in enumerate(texts or ("Hello", "Hi there"))
    ]
    record = SessionContent(
        tenant=tenant,
        session_id=session_id,
        segment=segment,
        previous_segment=None,
        close_reason="ended",
        events=[msgspec.Raw(msgspec.json.encode(turn)) for turn in turns],
    )
    return msgspec.Raw(msgspec.json.encode(record))


def decision(
    session_id: str = "s1",
    segment: str = "e0",
    *,
    tenant: str = "t",
    weight16: int = 320,
    selected: bool = True,
    stratum: str = "base",
    version: str = "v1",
    events: tuple[str, ...] | None = None,
    text: msgspec.Raw | None = None,
    **other: Any,
) -> Decision:
    """Build a decision that lists one job when it is selected."""
    names = (segment, f"{segment}-2") if events is None else events
    jobs = [JobRef(job_id=job_id(tenant, session_id, segment, "correction"), rubric="correction")]
    values: dict[str, Any] = {
        "tenant": tenant,
        "session_id": session_id,
        "segment": segment,
        "previous_segment": None,
        "content_hash": "hash" if text is None else content_hash(text),
        "close_reason": "ended",
        "span": LogSpan(partition=0, first=1, last=9, closed_at=1_700_000_000_000),
        "policy": "p1",
        "stratum": stratum,
        "priority": "routine",
        "weight16": weight16,
        "selected": selected,
        "holdout": False,
        "frame": ["correction"],
        "jobs": jobs if selected else [],
        "labels": Labels(assistant="shop", assistant_version=version),
        "signals": {"corrections": 1},
        "fingerprints": [fingerprint(name) for name in names],
        "turns": 4,
        "content": text,
    }
    return Decision(**{**values, **other})


def judgement(
    session_id: str = "s1",
    segment: str = "e0",
    result: Result | None = None,
    *,
    tenant: str = "t",
    trials: int = 2,
    failures: int = 1,
    scores: dict[str, list[float]] | None = None,
    hash_: str = "hash",
    started_at: int = 1_700_000_000_000,
    **other: Any,
) -> Judgement:
    """Build a judgement; without a result it is a verdict with `failures` in `trials` on `reverted`."""
    result = Verdict(data={"events": []}) if result is None else result
    measured = {"reverted": Tally(trials=trials, failures=failures)} if isinstance(result, Verdict) else {}
    values: dict[str, Any] = {
        "job_id": job_id(tenant, session_id, segment, "correction"),
        "tenant": tenant,
        "session_id": session_id,
        "segment": segment,
        "content_hash": hash_,
        "rubric": "correction",
        "mode": "event",
        "rubric_version": "1",
        "prompt_version": "v1",
        "prompt_hash": "abc",
        "judge": "lexical",
        "provider": "lexical",
        "model": "lexical-1",
        "result": result,
        "outcomes": Outcomes(measures=measured, scores=scores or {}),
        "attempts": [Attempt(window="C1", number=1, kind="valid", raw='{"answer": 1}')],
        "started_at": started_at,
        "finished_at": started_at + 250,
    }
    return Judgement(**{**values, **other})


def unscored(session_id: str = "s1", segment: str = "e0", **other: Any) -> Judgement:
    """Build a judgement on which the judge timed out."""
    return judgement(session_id, segment, Unscored(reason="timeout"), **other)


def addendum(session_id: str = "s1", segment: str = "e0", offset: int = 50, tenant: str = "t") -> Addendum:
    """Build a late thumbs-down."""
    event = {
        "type": "feedback",
        "event_id": f"late{offset}",
        "session_id": session_id,
        "ts": 2000.0,
        "rating": "down",
    }
    return Addendum(
        tenant=tenant,
        session_id=session_id,
        segment=segment,
        event=msgspec.Raw(msgspec.json.encode(event)),
        partition=0,
        offset=offset,
    )


def policy(*strata: str, rubrics: tuple[str, ...] = ("correction",)) -> PolicyLoaded:
    """Build a policy with the given strata, each at 0.05, and one allow-listed assistant version."""
    infos = [
        StratumInfo(name=name, rate=0.05, weight16=320, priority="routine", rubrics=list(rubrics))
        for name in strata or ("base",)
    ]
    return PolicyLoaded(policy="p1", strata=infos, holdout=0.01, assistants={"shop": ["v1"]})
