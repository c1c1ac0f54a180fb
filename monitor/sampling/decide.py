"""From a finished session to a decision and its jobs (S2 to S4): pure, and the same bytes every time.

A session is decided again whenever its record is read again, so nothing here depends on time, order or place:
only on the record, the policy, the salt and the allow-list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from monitor.decision import Decision, Job, JobRef, Labels, fingerprint, job_id
from monitor.sampling.coin import picked, toss
from monitor.sampling.policy import ERROR_STRATUM, TRUNCATED_STRATUM, Policy, Stratum
from monitor.sampling.predicate import document
from monitor.session import (
    Session,
    SessionAttributes,
    SessionContent,
    SessionRecord,
    content_hash,
    decode_content,
    session_view,
)
from monitor.signals import Signals, extract

OTHER: Final = "other"
Assistants = Mapping[str, Sequence[str]]


def decide(
    record: SessionRecord, policy: Policy, *, salt: bytes, assistants: Assistants
) -> tuple[Decision, list[Job]]:
    """Decide on a finished session: its decision, and a job per rubric of its stratum if it is selected.

    Raises `msgspec.DecodeError` when the record doesn't even say which session it is; whatever else goes wrong
    gives a decision in the stratum `error`, which is never selected.
    """
    head = decode_content(record.content)
    try:
        session = session_view(record.content)
        signals = extract(session)
        stratum = _stratum(policy, session, signals)
    except Exception as error:  # noqa: BLE001 - one broken session must not stop the stream (S3)
        return _failed(record, head, policy, error), []
    return _decided(record, session, signals, policy, stratum, salt, assistants)


def resolve_labels(attributes: SessionAttributes, assistants: Assistants) -> Labels:
    """Map what a session says of its assistant to label values from the allow-list, else `other`."""
    name = attributes.assistant
    if name is None or name not in assistants:
        return Labels(assistant=OTHER, assistant_version=OTHER)
    version = attributes.assistant_version
    return Labels(assistant=name, assistant_version=version if version in assistants[name] and version else OTHER)


def without_content(decision: Decision) -> Decision:
    """Give the decision without its transcript, for a broker that refuses the whole of it (J5)."""
    return msgspec.structs.replace(decision, content=None)


def oversized(decision: Decision) -> Decision:
    """Give what is sent when a job of a session is too large for the broker (J5): nothing is judged.

    The session stays in the stream as one that could not be evaluated, with the reason; it is in no rubric's
    frame, since the judge can never see such a session.
    """
    return msgspec.structs.replace(
        decision,
        stratum=ERROR_STRATUM,
        priority="routine",
        weight16=16,
        selected=False,
        holdout=False,
        frame=[],
        jobs=[],
        content=None,
        error="job: record too large for the broker",
    )


def _stratum(policy: Policy, session: Session, signals: Signals) -> Stratum:
    if session.close_reason == "truncated":
        # Its start fell off the log: not judged, and in no rubric's frame (A9).
        return Stratum(name=TRUNCATED_STRATUM, when=None, weight16=16, priority="routine", rubrics=())
    values = document(session, signals)
    return next(stratum for stratum in policy.strata if stratum.takes(values))


def _decided(
    record: SessionRecord,
    session: Session,
    signals: Signals,
    policy: Policy,
    stratum: Stratum,
    salt: bytes,
    assistants: Assistants,
) -> tuple[Decision, list[Job]]:
    key = (session.tenant, session.session_id, session.segment)
    # A stratum without rubrics is kept out: there is nothing to select its sessions for.
    selected = bool(stratum.rubrics) and picked(toss(salt, "select", *key), stratum.weight16)
    holdout = policy.holdout16 is not None and picked(toss(salt, "holdout", *key), policy.holdout16)
    jobs = [_job(record, session, stratum, rubric) for rubric in stratum.rubrics] if selected else []
    decision = Decision(
        tenant=session.tenant,
        session_id=session.session_id,
        segment=session.segment,
        previous_segment=session.previous_segment,
        content_hash=session.content_hash,
        close_reason=session.close_reason,
        span=record.span,
        policy=policy.version,
        stratum=stratum.name,
        priority=stratum.priority,
        weight16=stratum.weight16,
        selected=selected,
        holdout=holdout,
        frame=list(stratum.rubrics),
        jobs=[JobRef(job_id=job.job_id, rubric=job.rubric) for job in jobs],
        labels=resolve_labels(session.attributes, assistants),
        signals=msgspec.to_builtins(signals),
        fingerprints=[fingerprint(event_id) for event_id in session.event_ids],
        turns=len(session.turns),
        content=record.content if selected or holdout else None,
    )
    return decision, jobs


def _job(record: SessionRecord, session: Session, stratum: Stratum, rubric: str) -> Job:
    return Job(
        job_id=job_id(session.tenant, session.session_id, session.segment, rubric),
        tenant=session.tenant,
        session_id=session.session_id,
        segment=session.segment,
        rubric=rubric,
        stratum=stratum.name,
        priority=stratum.priority,
        content_hash=session.content_hash,
        content=record.content,
    )


def _failed(record: SessionRecord, head: SessionContent, policy: Policy, error: Exception) -> Decision:
    return Decision(
        tenant=head.tenant,
        session_id=head.session_id,
        segment=head.segment,
        previous_segment=head.previous_segment,
        content_hash=content_hash(record.content),
        close_reason=head.close_reason,
        span=record.span,
        policy=policy.version,
        stratum=ERROR_STRATUM,
        priority="routine",
        weight16=16,
        selected=False,
        holdout=False,
        frame=[],
        jobs=[],
        labels=Labels(assistant=OTHER, assistant_version=OTHER),
        signals={},
        fingerprints=[],
        turns=0,
        # Only the kind of error: messages of decoders and of CEL may quote the session.
        error=f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins."),
    )
