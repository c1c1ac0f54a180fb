"""Records as rows: keys, cleaned text, and the facts that counting needs. Pure; `ValueError` means bad data."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec
from sqlalchemy import Column, RowMapping

from monitor.decision import Decision, PolicyLoaded
from monitor.judgement import Judgement
from monitor.session import Addendum
from monitor.store.ledger import Counts, DecisionFacts, JudgementFacts, counts_of, kind_of
from monitor.store.tables import DECISIONS, JUDGEMENTS

Row: TypeAlias = dict[str, Any]

MIN_WEIGHT16: Final = 16
MAX_WEIGHT16: Final = 2**28
MAX_TRIALS: Final = 100_000
_COUNTS = msgspec.json.Decoder(Counts)
_STRINGS = msgspec.json.Decoder(list[str])
_JOBS = msgspec.json.Decoder(dict[str, str])


class RubricCounts(msgspec.Struct, kw_only=True, frozen=True):
    """What a rubric can count: its measures, and its histograms as `Outcomes.scores` names them.

    `measures` gives sessions without a trial their zero tallies, and both give new policies their zero totals.
    """

    measures: tuple[str, ...] = ()
    scores: tuple[str, ...] = ()


class Screened(msgspec.Struct, kw_only=True, frozen=True):
    """The screen that is configured, and the rubrics that it screens."""

    judge: str
    rubrics: tuple[str, ...]


class Prepared(msgspec.Struct, kw_only=True):
    """One record, ready to be stored; the keys are empty for a policy, `position` is its place in the batch."""

    record: Decision | Judgement | Addendum | PolicyLoaded
    position: int = 0
    session_key: str = ""
    segment_key: str = ""
    decision: DecisionFacts | None = None
    judgement: JudgementFacts | None = None
    row: Row


def prepare(
    record: Decision | Judgement | Addendum | PolicyLoaded, rubrics: Mapping[str, RubricCounts], now: int
) -> Prepared:
    """Turn a record into its row. Raises `ValueError` (also `UnicodeError`) when it can't be stored or counted."""
    if isinstance(record, Decision):
        return _decision(record, now)
    if isinstance(record, Judgement):
        return _judgement(record, rubrics, now)
    if isinstance(record, Addendum):
        return _addendum(record, now)
    row = {"policy": clean(record.policy), "loaded_at": now, "body": msgspec.json.encode(record)}
    return Prepared(record=record, row=row)


def session_key(tenant: str, session_id: str) -> str:
    """Name a session by a digest of its exact ids."""
    return _digest(tenant, session_id)


def segment_key(tenant: str, session_id: str, segment: str) -> str:
    """Name a segment by a digest of its exact ids."""
    return _digest(tenant, session_id, segment)


def clean(text: str) -> str:
    """Make NUL visible: PostgreSQL can't hold it. Raises `UnicodeError` on what isn't UTF-8."""
    text.encode()
    return text.replace("\0", "\u2400")


def fingerprints(packed: bytes) -> frozenset[bytes]:
    """Unpack stored fingerprints, eight bytes each."""
    return frozenset(packed[start : start + 8] for start in range(0, len(packed), 8))


def decision_columns() -> list[Column[Any]]:
    """Give the columns that `decision_facts` reads, and the key."""
    return [DECISIONS.c[name] for name in ("segment_key", *DecisionFacts.__struct_fields__)]


def judgement_columns() -> list[Column[Any]]:
    """Give the columns that `judgement_facts` reads, and the key."""
    return [JUDGEMENTS.c[name] for name in ("segment_key", *JudgementFacts.__struct_fields__)]


def decision_facts(row: Mapping[str, Any] | RowMapping) -> DecisionFacts:
    """Read back the facts of a stored decision."""
    return DecisionFacts(
        content_hash=row["content_hash"],
        stratum=row["stratum"],
        assistant=row["assistant"],
        assistant_version=row["assistant_version"],
        weight16=row["weight16"],
        selected=row["selected"],
        overlap=row["overlap"],
        frame=_STRINGS.decode(row["frame"]),
        jobs=_JOBS.decode(row["jobs"]),
    )


def judgement_facts(row: Mapping[str, Any] | RowMapping) -> JudgementFacts:
    """Read back the facts of a stored judgement."""
    return JudgementFacts(
        digest=row["digest"],
        job_id=row["job_id"],
        content_hash=row["content_hash"],
        rubric=row["rubric"],
        judge=row["judge"],
        kind=row["kind"],
        reason=row["reason"],
        counts=_COUNTS.decode(row["counts"]),
        standing=row["standing"],
    )


def _decision(record: Decision, now: int) -> Prepared:
    if not MIN_WEIGHT16 <= record.weight16 <= MAX_WEIGHT16:
        raise ValueError(
            f"weight16 {record.weight16} is not within {MIN_WEIGHT16} and {MAX_WEIGHT16} (16 / probability)"
        )
    jobs = {clean(job.job_id): clean(job.rubric) for job in record.jobs}
    frame = [clean(rubric) for rubric in record.frame]
    row = {
        **_identity(record),
        "previous_segment": None if record.previous_segment is None else clean(record.previous_segment),
        "content_hash": clean(record.content_hash),
        "close_reason": record.close_reason,
        "log_partition": record.span.partition,
        "first_offset": record.span.first,
        "last_offset": record.span.last,
        "closed_at": record.span.closed_at,
        "recorded_at": now,
        "policy": clean(record.policy),
        "stratum": clean(record.stratum),
        "priority": record.priority,
        "weight16": record.weight16,
        "selected": record.selected,
        "holdout": record.holdout,
        "overlap": False,
        "assistant": clean(record.labels.assistant),
        "assistant_version": clean(record.labels.assistant_version),
        "turns": record.turns,
        "frame": _json(frame),
        "jobs": _json(jobs),
        "signals": _json(record.signals),
        "error": None if record.error is None else clean(record.error),
        "fingerprints": _pack(record.fingerprints),
        "content": None if record.content is None else bytes(record.content),
    }
    return _prepared(record, row, decision=decision_facts(row))


def _judgement(record: Judgement, rubrics: Mapping[str, RubricCounts], now: int) -> Prepared:
    if any(tally.trials > MAX_TRIALS for tally in record.outcomes.measures.values()):
        raise ValueError(f"a measure with more than {MAX_TRIALS} trials in one session")
    kind, reason = kind_of(record.result)
    body = msgspec.json.encode(record)
    counts = counts_of(record, rubrics.get(record.rubric, RubricCounts()).measures)
    row = {
        **_identity(record),
        "digest": hashlib.blake2b(body, digest_size=16).hexdigest(),
        "job_id": clean(record.job_id),
        "content_hash": clean(record.content_hash),
        "rubric": clean(record.rubric),
        "judge": clean(record.judge),
        "kind": kind,
        "reason": reason,
        "standing": "waiting",
        "finished_at": record.finished_at,
        "recorded_at": now,
        "score": _mean_score(counts),
        "cost_nusd": record.cost_nusd,
        "screen_judge": "" if record.screen is None else clean(record.screen.judge),
        "screen_cost_nusd": 0 if record.screen is None else record.screen.cost_nusd,
        "counts": _json(counts),
        "body": body,
    }
    return _prepared(record, row, judgement=judgement_facts(row))


def _addendum(record: Addendum, now: int) -> Prepared:
    row = {
        **_identity(record),
        "log_partition": record.partition,
        "log_offset": record.offset,
        "recorded_at": now,
        "event": bytes(record.event),
    }
    return _prepared(record, row)


def _prepared(
    record: Decision | Judgement | Addendum,
    row: Row,
    *,
    decision: DecisionFacts | None = None,
    judgement: JudgementFacts | None = None,
) -> Prepared:
    session = session_key(record.tenant, record.session_id)
    segment = segment_key(record.tenant, record.session_id, record.segment)
    row["segment_key"] = segment
    if isinstance(record, Decision):
        row["session_key"] = session
    return Prepared(
        record=record, session_key=session, segment_key=segment, decision=decision, judgement=judgement, row=row
    )


def _identity(record: Decision | Judgement | Addendum) -> Row:
    return {
        "tenant": clean(record.tenant),
        "session_id": clean(record.session_id),
        "segment": clean(record.segment),
    }


def _mean_score(counts: Counts) -> float | None:
    """Give the mean of the rubric's own score, for the list of sessions; criteria are not part of it."""
    values = [value for name, scores in counts.scores.items() if ":" not in name for value in scores]
    return sum(values) / len(values) if values else None


def _pack(hashes: Sequence[str]) -> bytes:
    packed = [bytes.fromhex(text) for text in hashes]
    if any(len(item) != 8 for item in packed):  # noqa: PLR2004 - 16 hex digits
        raise ValueError("fingerprints: not 16 hex digits")
    return b"".join(packed)


def _json(value: Any) -> str:
    # JSON escapes NUL as \u0000, which a text column may hold.
    return msgspec.json.encode(value).decode()


def _digest(*parts: str) -> str:
    # Length prefixes keep ("ab", "c") and ("a", "bc") apart.
    joined = b"".join(len(raw := part.encode()).to_bytes(4, "big") + raw for part in parts)
    return hashlib.blake2b(joined, digest_size=16).hexdigest()
