"""Jobs in hand: what is queued, what is being judged, what may be committed, what to poll for. Pure (J3).

A job stands here once, whoever delivers it and how often: under its id and the hash of its content. Each delivery
is a `Claim` on an offset; all claims of a job are settled together when its judgement is with the broker. A
revocation takes the claims of its partitions away. It does not stop a job that is being judged, so a redelivery
attaches to it. Claims hold on to their partition's own record of offsets: settling one of a partition that was
taken away, and perhaps came back, changes nothing.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Collection, Iterable
from typing import Final, TypeAlias

import msgspec
from aiokafka import TopicPartition

from consumers.dead_letters import Placed
from consumers.offsets import UnfinishedOffsets
from monitor.decision import Job

JobKey: TypeAlias = tuple[str, str]
REMEMBERED: Final = 4_096


class PartitionJobs:
    """The offsets of one partition in hand, from `start` on, with their records' timestamps (Unix ms)."""

    def __init__(self, start: int) -> None:
        self._offsets = UnfinishedOffsets(start)
        self._times: dict[int, int] = {}
        self._newest = 0

    def begin(self, offset: int, timestamp: int) -> None:
        """Take an offset in hand. Offsets come in order."""
        self._offsets.begin(offset)
        self._times[offset] = self._newest = timestamp

    def finish(self, offset: int) -> None:
        """Put an offset down."""
        del self._times[offset]
        self._offsets.finish(offset)

    @property
    def committable(self) -> int:
        """The lowest unfinished offset: everything below it may be committed."""
        return self._offsets.committable

    @property
    def span(self) -> int:
        """How many offsets there are from the lowest unfinished one to the newest."""
        return self._offsets.span

    @property
    def oldest(self) -> int | None:
        """Timestamp of the lowest unfinished record; None when all are finished."""
        return self._times.get(self._offsets.committable)

    @property
    def newest(self) -> int:
        """Timestamp of the newest record."""
        return self._newest


class Claim(msgspec.Struct, frozen=True, eq=False):
    """One delivered record that waits for its job."""

    partition: PartitionJobs
    offset: int

    def settle(self) -> None:
        """Let the commit pass this record."""
        self.partition.finish(self.offset)


class Work(msgspec.Struct, kw_only=True, eq=False):
    """A job in hand. `record` is its first delivery: it names the position in dead letters."""

    job: Job
    record: Placed
    urgent: bool
    claims: list[Claim]

    @property
    def key(self) -> JobKey:
        """What a redelivery is known by."""
        return self.job.job_id, self.job.content_hash


class JobQueue:
    """All jobs of one process. At most `concurrency` run; `urgent_topic` names the topic that goes first.

    With `deferred` routine jobs have so many slots of their own, in which they may wait for hours, and as many
    offsets past the lowest unfinished one: they neither take a slot from an urgent job nor wait for one.
    """

    def __init__(
        self,
        concurrency: int,
        urgent_topic: str,
        *,
        deferred: int | None = None,
        remembered: int = REMEMBERED,
    ) -> None:
        self._concurrency = concurrency
        self._deferred = deferred
        self._urgent_topic = urgent_topic
        self._remembered = remembered
        self._partitions: dict[TopicPartition, PartitionJobs] = {}
        self._work: dict[JobKey, Work] = {}
        self._urgent: deque[Work] = deque()
        self._routine: deque[Work] = deque()
        self._running: dict[JobKey, bool] = {}  # whether it is an urgent one
        self._full: set[TopicPartition] = set()
        self._answered: OrderedDict[JobKey, None] = OrderedDict()

    @property
    def running(self) -> int:
        """How many jobs are being judged."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """How many jobs are queued."""
        return len(self._urgent) + len(self._routine)

    def claim(self, partition: TopicPartition, offset: int, timestamp: int) -> Claim:
        """Take a record in hand: until the claim is settled, nothing past the record is committed."""
        jobs = self._partitions.get(partition)
        if jobs is None:
            jobs = self._partitions[partition] = PartitionJobs(offset)
        jobs.begin(offset, timestamp)
        return Claim(jobs, offset)

    def add(self, job: Job, record: Placed, claim: Claim) -> None:
        """Queue a job; attach to it if it is in hand already; settle it at once if it was answered lately."""
        key = (job.job_id, job.content_hash)
        known = self._work.get(key)
        if known is not None:
            known.claims.append(claim)
        elif key in self._answered:
            claim.settle()
        else:
            urgent = record.topic == self._urgent_topic
            work = self._work[key] = Work(job=job, record=record, urgent=urgent, claims=[claim])
            self._line(urgent=urgent).append(work)

    def start(self) -> Work | None:
        """Give the next job to judge, urgent ones first; None without one, or without a free slot."""
        for urgent in (True, False):
            line = self._line(urgent=urgent)
            if line and self._free(urgent=urgent):
                work = line.popleft()
                self._running[work.key] = urgent
                return work
        return None

    def finish(self, work: Work, *, answered: bool) -> None:
        """Settle a job whose outcome is with the broker.

        `answered`: there is a result that a redelivery needn't ask for again. One that the judge failed on is
        forgotten instead, so that it can be sent in once more.
        """
        self.drop(work)
        for claim in work.claims:
            claim.settle()
        if answered:
            self._answered[work.key] = None
            if len(self._answered) > self._remembered:
                self._answered.popitem(last=False)

    def drop(self, work: Work) -> None:
        """Give a running job up without an outcome: its records are not committed and come again."""
        self._running.pop(work.key, None)
        self._work.pop(work.key, None)

    def revoke(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget partitions and the queued jobs that only they delivered."""
        gone = {jobs for tp in partitions if (jobs := self._partitions.pop(tp, None)) is not None}
        self._full.clear()
        for work in list(self._work.values()):
            work.claims = [claim for claim in work.claims if claim.partition not in gone]
            if not work.claims and work.key not in self._running:
                del self._work[work.key]
                self._line(urgent=work.urgent).remove(work)

    def committable(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Give the offset to commit for each of these partitions that has delivered anything."""
        return {tp: jobs.committable for tp, jobs in self._partitions.items() if tp in partitions}

    def reached(self) -> dict[TopicPartition, tuple[int, int, bool]]:
        """Give where each partition stands: the lowest unfinished offset, a timestamp, and whether it is in hand.

        The timestamp (Unix ms) is that of the record there, or when all are finished of the newest one.
        """
        return {
            tp: (jobs.committable, jobs.newest if jobs.oldest is None else jobs.oldest, jobs.oldest is not None)
            for tp, jobs in self._partitions.items()
        }

    def wanted(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Give the partitions to poll, and for each how many records there is room for (at least 1).

        A partition that ran full waits until half of its room is free again, or nothing of its kind is queued:
        each pause throws away what was fetched ahead. Routine ones also wait while urgent jobs queue for a slot.
        """
        rooms = {tp: self._room(tp) for tp in partitions}
        for tp, room in rooms.items():
            if room <= 0:
                self._full.add(tp)
            elif room >= self._limit(urgent=self._is_urgent(tp)) // 2 or not self._line(
                urgent=self._is_urgent(tp)
            ):
                self._full.discard(tp)
        hold = self._deferred is None and bool(self._urgent) and not self._free(urgent=True)
        return {
            tp: room
            for tp, room in rooms.items()
            if tp not in self._full and not (hold and not self._is_urgent(tp))
        }

    def _free(self, *, urgent: bool) -> bool:
        """Say whether there is a slot; without a lane of their own routine jobs take what urgent ones leave."""
        if self._deferred is None:
            return len(self._running) < self._concurrency
        running = sum(kind == urgent for kind in self._running.values())
        return running < (self._concurrency if urgent else self._deferred)

    def _limit(self, *, urgent: bool) -> int:
        """Give how many offsets past the lowest unfinished one, and queued jobs, there may be (J3)."""
        return 2 * self._concurrency if urgent or self._deferred is None else self._deferred

    def _room(self, partition: TopicPartition) -> int:
        jobs = self._partitions.get(partition)
        urgent = self._is_urgent(partition)
        limit = self._limit(urgent=urgent)
        # The second bound keeps memory in check: a job carries its transcript.
        return min(limit - (jobs.span if jobs else 0), limit - len(self._line(urgent=urgent)))

    def _is_urgent(self, partition: TopicPartition) -> bool:
        return bool(partition.topic == self._urgent_topic)

    def _line(self, *, urgent: bool) -> deque[Work]:
        return self._urgent if urgent else self._routine
