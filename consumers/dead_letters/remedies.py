"""What to do about a dead letter, by the stage that put it aside and its reason. Pure."""

from __future__ import annotations

from typing import Final

_FOREIGN: Final = "not written by Backslide: find out who writes to this topic; drop it"
_JOB: Final = (
    "the jobs topic holds something that is no job of this version: was it written by a newer one? Upgrade"
)

REMEDIES: Final[dict[tuple[str, str], str]] = {
    ("assemble", "undecodable"): "mend the producer; mend the bytes and replay them with --value, or drop it",
    (
        "assemble",
        "unknown_type",
    ): "a newer kind of event, or a typing error: upgrade and replay, or mend the producer",
    ("assemble", "invalid_field"): "mend the producer; mend the bytes and replay them with --value, or drop it",
    ("assemble", "too_large"): "raise assembly.max_event_bytes and replay, or let the producer send less",
    ("assemble", "orphan"): "no turn of its session came in time: replay it if the turns came later, or drop it",
    (
        "sample",
        "undecodable",
    ): "the sessions topic holds something that is no session of this version: upgrade, replay",
    ("judge", "undecodable"): _JOB + ", and replay",
    ("judge", "unknown_rubric"): "the judge's version is older than the sampler's: upgrade it, and replay",
    (
        "judge",
        "hash_mismatch",
    ): "the job's text is not what its hash says: something changed it on its way; drop it",
    ("judge", "too_large"): "raise topics.max_message_bytes and the topics' max.message.bytes, and replay",
    (
        "judge",
        "invalid",
    ): "the judge's answer broke the rubric twice: change the model or the prompt, then replay; "
    "what is replayed is the job, not this answer",
    ("record", "undecodable"): "written by a newer version? Upgrade record, and replay",
    (
        "record",
        "rejected",
    ): "the store can't count it, for the reason in `error`: upgrade record and replay, or drop it",
}


def remedy(stage: str, reason: str) -> str:
    """Say what to do."""
    return REMEDIES.get((stage, reason), _FOREIGN if not stage else "read the error; replay it or drop it")
