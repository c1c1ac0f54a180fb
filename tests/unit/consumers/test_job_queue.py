"""Jobs in hand (J3): attach, revoke, urgent first, room, commits. Properties under any order of events."""

from __future__ import annotations

from typing import Any

import msgspec
from aiokafka import TopicPartition
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from consumers.job_queue import JobQueue, Work
from monitor.decision import Job

URGENT, ROUTINE = "urgent", "routine"


class Record(msgspec.Struct):
    topic: str
    partition: int
    offset: int
    key: bytes | None = None
    value: bytes | None = None


def job(name: str, content_hash: str = "h") -> Job:
    return Job(
        job_id=name, tenant="t", session_id=name, segment="e", rubric="r", stratum="s",
        priority="routine", content_hash=content_hash, content=msgspec.Raw(b"{}"),
    )  # fmt: skip


def deliver(queue: JobQueue, topic: str, offset: int, name: str, *, content_hash: str = "h") -> None:
    claim = queue.claim(TopicPartition(topic, 0), offset, 1_000 + offset)
    queue.add(job(name, content_hash), Record(topic, 0, offset), claim)


def started(queue: JobQueue) -> Work:
    work = queue.start()
    assert work is not None
    return work


def committable(queue: JobQueue, topic: str = ROUTINE) -> int | None:
    tp = TopicPartition(topic, 0)
    return queue.committable({tp}).get(tp)


def test_urgent_jobs_start_first_and_slots_are_bounded() -> None:
    queue = JobQueue(2, URGENT)
    for offset in range(2):
        deliver(queue, ROUTINE, offset, f"r{offset}")
    deliver(queue, URGENT, 0, "u0")
    assert [started(queue).job.job_id for _ in range(2)] == ["u0", "r0"]
    assert queue.start() is None
    assert (queue.running, queue.waiting) == (2, 1)


def test_deferred_jobs_have_slots_and_offsets_of_their_own() -> None:
    queue = JobQueue(2, URGENT, deferred=10)
    for offset in range(10):
        deliver(queue, ROUTINE, offset, f"r{offset}")
    for offset in range(3):
        deliver(queue, URGENT, offset, f"u{offset}")
    names = [started(queue).job.job_id for _ in range(12)]
    assert names == ["u0", "u1", *(f"r{offset}" for offset in range(10))]
    assert queue.start() is None
    partitions = [TopicPartition(URGENT, 0), TopicPartition(ROUTINE, 0)]
    # The routine partition is full; urgent jobs queue, and are polled for all the same.
    assert queue.wanted(partitions) == {partitions[0]: 1}


def test_routine_partitions_do_not_wait_for_urgent_jobs_when_they_are_deferred() -> None:
    queue = JobQueue(1, URGENT, deferred=4)
    for offset in range(2):
        deliver(queue, URGENT, offset, f"u{offset}")
    started(queue)
    assert queue.wanted([TopicPartition(ROUTINE, 0)]) == {TopicPartition(ROUTINE, 0): 4}


def test_the_commit_stops_at_the_lowest_unfinished_offset() -> None:
    queue = JobQueue(3, URGENT)
    for offset in range(10, 13):
        deliver(queue, ROUTINE, offset, f"r{offset}")
    first, second, third = (started(queue) for _ in range(3))
    queue.finish(second, answered=True)
    queue.finish(third, answered=True)
    assert committable(queue) == 10
    assert queue.reached()[TopicPartition(ROUTINE, 0)] == (10, 1_010, True)
    queue.finish(first, answered=True)
    assert committable(queue) == 13
    assert queue.reached()[TopicPartition(ROUTINE, 0)] == (13, 1_012, False)


def test_a_redelivered_job_attaches_and_is_settled_with_the_running_one() -> None:
    queue = JobQueue(2, URGENT)
    deliver(queue, ROUTINE, 5, "a")
    work = started(queue)
    queue.revoke([TopicPartition(ROUTINE, 0)])
    assert committable(queue) is None
    deliver(queue, ROUTINE, 5, "a")  # the partition came back
    deliver(queue, ROUTINE, 6, "a")  # and the sampler had sent it twice
    assert queue.waiting == 0
    assert committable(queue) == 5
    queue.finish(work, answered=True)
    assert committable(queue) == 7


def test_a_job_finished_after_its_partition_went_away_settles_nothing_of_the_new_one() -> None:
    queue = JobQueue(2, URGENT)
    deliver(queue, ROUTINE, 5, "a")
    work = started(queue)
    queue.revoke([TopicPartition(ROUTINE, 0)])
    deliver(queue, ROUTINE, 4, "b")
    queue.finish(work, answered=True)
    assert committable(queue) == 4


def test_a_queued_job_goes_with_its_partition() -> None:
    queue = JobQueue(2, URGENT)
    deliver(queue, ROUTINE, 5, "a")
    deliver(queue, URGENT, 9, "a")
    deliver(queue, ROUTINE, 6, "b")
    queue.revoke([TopicPartition(ROUTINE, 0)])
    assert started(queue).job.job_id == "a"  # the urgent topic delivered it too
    assert queue.start() is None


def test_an_answered_job_is_not_asked_again_but_a_failed_one_is() -> None:
    queue = JobQueue(2, URGENT, remembered=1)
    for at, (name, answered) in enumerate([("a", True), ("b", False)]):
        deliver(queue, ROUTINE, at, name)
        queue.finish(started(queue), answered=answered)
    deliver(queue, ROUTINE, 2, "a")
    assert queue.start() is None
    assert committable(queue) == 3
    deliver(queue, ROUTINE, 3, "a", content_hash="other")
    deliver(queue, ROUTINE, 4, "b")
    for name in ("a", "b"):
        work = started(queue)
        assert work.job.job_id == name
        queue.finish(work, answered=True)
    deliver(queue, ROUTINE, 5, "a")  # only the last one is remembered
    assert started(queue).job.job_id == "a"


def test_a_job_given_up_is_not_committed_and_may_come_again() -> None:
    queue = JobQueue(2, URGENT)
    deliver(queue, ROUTINE, 0, "a")
    queue.drop(started(queue))
    assert committable(queue) == 0
    assert queue.running == 0
    deliver(queue, ROUTINE, 1, "a")
    assert started(queue).job.job_id == "a"


def test_routine_partitions_wait_while_urgent_jobs_queue_for_a_slot() -> None:
    queue = JobQueue(2, URGENT)
    both = [TopicPartition(URGENT, 0), TopicPartition(ROUTINE, 0)]
    deliver(queue, URGENT, 0, "u0")
    deliver(queue, URGENT, 1, "u1")
    work = [started(queue) for _ in range(2)]
    assert set(queue.wanted(both)) == set(both)  # no slot, but nothing urgent waits for one
    deliver(queue, URGENT, 2, "u2")
    assert set(queue.wanted(both)) == {TopicPartition(URGENT, 0)}
    queue.finish(work[0], answered=True)
    assert set(queue.wanted(both)) == set(both)


def test_a_full_partition_waits_until_half_of_its_room_is_free() -> None:
    queue, tp = JobQueue(4, URGENT), TopicPartition(ROUTINE, 0)
    for offset in range(8):
        deliver(queue, ROUTINE, offset, f"r{offset}")
    assert queue.wanted([tp]) == {}
    work = [started(queue) for _ in range(4)]
    for item in work[:3]:
        queue.finish(item, answered=True)
    assert queue.wanted([tp]) == {}  # room for 3
    queue.finish(work[3], answered=True)
    assert queue.wanted([tp]) == {tp: 4}


def test_all_partitions_of_a_kind_share_one_bound_on_what_is_queued() -> None:
    """A job carries its transcript, so memory must not grow with the number of partitions."""
    queue = JobQueue(4, URGENT)
    routine = [TopicPartition(ROUTINE, number) for number in range(3)]
    for at in range(8):
        claim = queue.claim(routine[at % 2], at // 2, at)
        queue.add(job(f"r{at}"), Record(ROUTINE, at % 2, at // 2), claim)
    urgent = TopicPartition(URGENT, 0)
    assert queue.wanted([*routine, urgent]) == {urgent: 8}
    work = [started(queue) for _ in range(4)]
    assert queue.wanted(routine) == dict.fromkeys(routine, 4)
    for item in work:
        queue.finish(item, answered=True)
    assert queue.wanted(routine) == dict.fromkeys(routine, 4)  # four are queued still


def test_a_slow_job_at_the_head_leaves_the_rest_of_the_room_in_use() -> None:
    queue, tp = JobQueue(4, URGENT), TopicPartition(ROUTINE, 0)
    for offset in range(8):
        deliver(queue, ROUTINE, offset, f"r{offset}")
    queue.wanted([tp])
    first, slow, *others = (started(queue) for _ in range(4))
    for item in (first, *others):
        queue.finish(item, answered=True)
    for _ in range(4):
        queue.finish(started(queue), answered=True)
    assert queue.wanted([tp]) == {tp: 1}
    deliver(queue, ROUTINE, 8, "r8")
    assert queue.wanted([tp]) == {}
    queue.finish(slow, answered=True)
    assert queue.wanted([tp]) == {tp: 7}


class Model(RuleBasedStateMachine):
    """A log of two topics with two partitions, delivered, judged, revoked and committed in any order.

    The model keeps its own books: which records were delivered since the last assignment, and which jobs have a
    result. No commit may pass a record of a job without one, and in the end every record can be committed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.queue = JobQueue(3, URGENT, remembered=4)
        self.parts = [TopicPartition(topic, number) for topic in (URGENT, ROUTINE) for number in range(2)]
        # Some jobs lie in the log twice, as a restarted sampler leaves them.
        self.log = {tp: [f"{tp.topic}{tp.partition}-{at // 2}" for at in range(40)] for tp in self.parts}
        self.next = dict.fromkeys(self.parts, 0)
        self.committed = dict.fromkeys(self.parts, 0)
        self.running: list[Work] = []
        self.results: set[str] = set()

    def poll(self) -> int:
        wanted = self.queue.wanted(self.parts)
        assert all(room >= 1 for room in wanted.values())
        # As the worker does: no more in all than the fullest of them has room for, since they share a bound.
        most = min(wanted.values(), default=0)
        count = 0
        for tp in wanted:
            at = self.next[tp]
            if count < most and at < len(self.log[tp]):
                claim = self.queue.claim(tp, at, at)
                self.queue.add(job(self.log[tp][at]), Record(tp.topic, tp.partition, at), claim)
                self.next[tp] = at + 1
                count += 1
        return count

    @rule()
    def polls(self) -> None:
        self.poll()

    @rule()
    def starts(self) -> None:
        work = self.queue.start()
        if work is not None:
            assert all(work.key != other.key for other in self.running), "judged twice at the same time"
            self.running.append(work)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), answered=st.booleans())
    def finishes(self, data: Any, answered: bool) -> None:
        work = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        self.results.add(work.job.job_id)
        self.queue.finish(work, answered=answered)

    @rule()
    def commits(self) -> None:
        for tp, offset in self.queue.committable(set(self.parts)).items():
            assert self.committed[tp] <= offset <= self.next[tp]
            assert set(self.log[tp][:offset]) <= self.results
            self.committed[tp] = offset

    @rule()
    def rebalances(self) -> None:
        self.queue.revoke(self.parts)
        self.next = dict(self.committed)

    @invariant()
    def bounds(self) -> None:
        assert self.queue.running == len(self.running) <= 3
        assert self.queue.waiting <= 2 * 6
        for tp, (offset, _, _) in self.queue.reached().items():
            assert self.next[tp] - offset <= 6

    def teardown(self) -> None:
        for _ in range(1_000):
            polled = self.poll()
            while (work := self.queue.start()) is not None:
                self.running.append(work)
            for work in self.running:
                self.results.add(work.job.job_id)
                self.queue.finish(work, answered=True)
            self.running.clear()
            if not polled and not self.queue.waiting:
                break
        self.commits()
        assert self.committed == {tp: len(log) for tp, log in self.log.items()}
        assert self.queue.running == 0


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
