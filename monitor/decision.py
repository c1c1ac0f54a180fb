"""What the sampler says of a finished session: the decision, and the jobs for the judge.

The decision is the commit point (S3): it lists the jobs that exist, and it alone carries the probability.
Weights are whole sixteenths (R3): `weight16 = 16 / probability`.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from monitor.session import Addendum, CloseReason, LogSpan

Priority: TypeAlias = Literal["urgent", "routine"]
Run: TypeAlias = Literal["live", "repeat", "file"]
"""`live` runs are listed by a decision; `repeat` asks a second time, for the agreement of a judge with itself;
`file` is judged by a command, without sampling. Only the first is ever counted in a rate."""
if TYPE_CHECKING:
    _Transcript: TypeAlias = msgspec.Raw | None
else:
    # msgspec decodes raw JSON only into a field of just this type: a union with None refuses every object.
    _Transcript = msgspec.Raw


class Labels(msgspec.Struct, kw_only=True, frozen=True):
    """Label values of a session, resolved against the allow-list when the decision was made."""

    assistant: str
    assistant_version: str


class JobRef(msgspec.Struct, kw_only=True, frozen=True):
    """A job that a decision lists."""

    job_id: str
    rubric: str


class Job(msgspec.Struct, kw_only=True, frozen=True):
    """One session to be judged by one rubric. `content` is the session's encoded `SessionContent`."""

    job_id: str
    tenant: str
    session_id: str
    segment: str
    rubric: str
    stratum: str
    priority: Priority
    content_hash: str
    content: msgspec.Raw
    run: Run = "live"


class Decision(msgspec.Struct, kw_only=True, frozen=True, tag_field="type", tag="decision"):
    """Whether a finished session is judged, and with which probability it was picked.

    `frame` lists the rubrics that its stratum schedules (the rubric frame of the estimates), picked or not.
    `content` is there only when the session was selected or drawn into the hold-out.
    `fingerprints` are 16-hex-digit hashes of the event ids, for the overlap check (R5).
    `error` says why the body of the sampler failed (stratum `error`, never selected).
    """

    tenant: str
    session_id: str
    segment: str
    previous_segment: str | None
    content_hash: str
    close_reason: CloseReason
    span: LogSpan
    policy: str
    stratum: str
    priority: Priority
    weight16: int
    selected: bool
    holdout: bool
    frame: list[str]
    jobs: list[JobRef]
    labels: Labels
    signals: dict[str, Any]
    fingerprints: list[str]
    turns: int
    content: _Transcript = None
    error: str | None = None

    def __post_init__(self) -> None:
        """Turn the `null` that a decoder finds into None."""
        if self.content is not None and bytes(memoryview(self.content)[:5]) == b"null":
            msgspec.structs.force_setattr(self, "content", None)

    @property
    def probability(self) -> float:
        """The quantised probability of selection, in (0, 1]."""
        return 16 / self.weight16


class StratumInfo(msgspec.Struct, kw_only=True, frozen=True):
    """A stratum of a loaded policy, as it is published (R3)."""

    name: str
    rate: float
    weight16: int
    priority: Priority
    rubrics: list[str]


class PolicyLoaded(msgspec.Struct, kw_only=True, frozen=True, tag_field="type", tag="policy"):
    """A policy came into force: its strata get zero totals before the first decision counts (R3)."""

    policy: str
    strata: list[StratumInfo]
    holdout: float
    assistants: dict[str, list[str]]


DecisionRecord: TypeAlias = Decision | Addendum | PolicyLoaded

_DECISION = msgspec.json.Decoder(DecisionRecord)
_JOB = msgspec.json.Decoder(Job)


def decode_decision(raw: bytes) -> DecisionRecord:
    """Decode a record of the decisions topic. Raises `msgspec.DecodeError` on anything else."""
    record: DecisionRecord = _DECISION.decode(raw)
    return record


def decode_job(raw: bytes) -> Job:
    """Decode a record of a jobs topic. Raises `msgspec.DecodeError` on anything else."""
    return _JOB.decode(raw)


def job_id(tenant: str, session_id: str, segment: str, rubric: str, run: str = "live") -> str:
    """Name a job (S4): prompt and judge are no part of it, since they roll while jobs are under way."""
    return _digest(tenant, session_id, segment, rubric, run)


def repeat_id(live: str) -> str:
    """Name the job that asks a second time about what a live job asks."""
    return _digest(live, "repeat")


def fingerprint(event_id: str) -> str:
    """Shorten an event id for the overlap check: 16 hex digits."""
    return hashlib.blake2b(event_id.encode(), digest_size=8).hexdigest()


def _digest(*parts: str) -> str:
    # Length prefixes keep ("ab", "c") and ("a", "bc") apart.
    joined = b"".join(len(raw := part.encode()).to_bytes(4, "big") + raw for part in parts)
    return hashlib.blake2b(joined, digest_size=16).hexdigest()
