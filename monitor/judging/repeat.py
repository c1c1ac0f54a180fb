"""Asking a second time, to see how far a judge agrees with itself (its noise: some have no temperature).

A small share of live jobs, picked by a coin on the job's id, is judged twice. The second judgement has a run of
its own in its job id, so that no decision lists it and no rate counts it; the store compares the two.
"""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from monitor.decision import Job, repeat_id
from monitor.judgement import Judgement, Unscored

_SIDES: Final = 1 << 64


def repeat_of(job: Job, share: float) -> Job | None:
    """Give the job that asks again about a live job, if it is one of those to be repeated; else None."""
    if job.run != "live" or not repeated(job.job_id, share):
        return None
    return msgspec.structs.replace(job, job_id=repeat_id(job.job_id), run="repeat")


def repeated(job_id: str, share: float) -> bool:
    """Say whether a job is among the `share` (0 to 1) of jobs to be repeated: always the same, and nested."""
    coin = hashlib.blake2b(job_id.encode(), digest_size=8, person=b"repeat").digest()
    return int.from_bytes(coin, "big") < share * _SIDES


def repeatable(first: Judgement) -> bool:
    """Say whether a first judgement is one to be repeated: the judge gave it, not a screen in its place."""
    return not isinstance(first.result, Unscored) and (first.screen is None or not first.screen.out)
