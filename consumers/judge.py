"""The judge: jobs in, judgements out (J3, J5). Slow, costly calls that fail, kept out of the poll loop.

The poll loop only takes jobs in hand; each is judged by a task of its own, and its offset is finished after the
broker has acknowledged its judgement. A commit goes up to the lowest unfinished offset of a partition. So a kill
at any moment brings jobs again, never loses one. There is no lock: the queue changes only between awaits (A6).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final

import structlog
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import CommitFailedError, IllegalStateError

from consumers import kafka, topics
from consumers.batching import Loop, batching
from consumers.delivery import KINDS, STAGE, Delivery
from consumers.health import Health
from consumers.job_judge import UNREADABLE, InvalidJob, JobJudge
from consumers.job_queue import Claim, JobQueue, Work
from consumers.judge_check import JudgeCheck
from consumers.lag import Lag
from consumers.screening import METERS as SCREEN_METERS
from consumers.screening import announce, screening
from monitor.config import Settings
from monitor.decision import Job, decode_job
from monitor.judgement import Judgement, Unscored
from monitor.judging.accounting import METERS as CALL_METERS
from monitor.judging.accounting import CallMeter, count_repairs, show_gate
from monitor.judging.open import open_judge
from monitor.judging.prices import price_of
from monitor.judging.repeat import repeat_of, repeatable
from monitor.metrics import Meters
from monitor.rubrics import configured
from monitor.sampling.policy_file import PolicyFile

METERS: Final = (
    "lag_seconds",
    "judgements",
    "judge_in_flight",
    "dead_letters",
    "commits_failed",
    *CALL_METERS,
    *SCREEN_METERS,
)
COMMIT_S: Final = 1.0
STOP_S: Final = 5.0
_POLL_MS: Final = 100
_WATCH_S: Final = 0.5
_REVOKE_S: Final = 3.0


async def serve(settings: Settings, meters: Meters, stop: asyncio.Event, health: Health) -> None:
    """Judge until `stop` is set, then finish what is under way within `judge.drain_s`, and leave the group.

    `meters` must hold `METERS`. Raises `ConfigError` or `TopicError` at the start, and whatever makes going on
    impossible later: the process is to end then, and what wasn't committed comes again.
    """
    names = settings.topics
    model = open_judge(settings.judge)  # first: a wrong name or key is to be seen without a broker
    check = JudgeCheck(model, settings.judge, meters)
    try:
        price = price_of(model.name, settings.judge.prices)
        asked = await check.first()
        rubrics = configured(settings.rubrics)
        policy = PolicyFile(settings.sampling.policy, rubrics=rubrics).policy
        strata = [item.name for item in policy.strata]
        announce(model, price)
        on_call = CallMeter(meters, model, rubrics=rubrics, strata=strata)
        on_same_family = meters.counter("judge_same_family", provider=model.provider, model=model.model).inc
        watching = asyncio.create_task(check.watch(asked), name="judge-check")
        try:
            async with AsyncExitStack() as open_:
                screener = await open_.enter_async_context(
                    screening(settings.judge, meters, model, on_call, strata)
                )
                needed = {names.jobs_urgent, names.jobs_routine, names.judgements, names.dead_letters}
                await topics.require(
                    settings, needed | ({names.batches} if settings.judge.batch.enabled else set())
                )
                batches = await open_.enter_async_context(batching(settings, model, price, on_call))
                judge = JobJudge(
                    settings.judge,
                    model,
                    price=price,
                    rubrics=rubrics,
                    on_call=on_call,
                    on_same_family=on_same_family,
                    post=batches.post,
                    screener=screener,
                )
                await Worker(settings, meters, health, judge, beside=batches.loops).run(stop)
        finally:
            watching.cancel()
    finally:
        await model.aclose()


class Worker(ConsumerRebalanceListener):  # type: ignore[misc] # aiokafka is untyped
    """One member of the group. Made inside a running loop; `run` once.

    `beside` runs as long as it does, and ends it by failing. `wall` gives Unix seconds, for lag only.
    """

    def __init__(
        self,
        settings: Settings,
        meters: Meters,
        health: Health,
        judge: JobJudge,
        *,
        beside: Iterable[Loop] = (),
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._beside = tuple(beside)
        self._settings = settings
        self._meters = meters
        self._health = health
        self._judge = judge
        self._wall = wall
        self._log = structlog.get_logger().bind(process=STAGE)
        self._topics = (settings.topics.jobs_urgent, settings.topics.jobs_routine)
        batch = settings.judge.batch
        self._queue = JobQueue(
            settings.judge.concurrency,
            settings.topics.jobs_urgent,
            deferred=batch.max_in_flight if batch.enabled else None,
        )
        self._committed: dict[TopicPartition, int] = {}
        self._lag = Lag(self._topics)
        self._reached: dict[TopicPartition, int] = {}
        self._jobs: set[asyncio.Task[None]] = set()
        self._letters: set[asyncio.Task[None]] = set()
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._rebalancing = True
        self._stopping = False
        self._down: str | None = None
        self._consumer: AIOKafkaConsumer = kafka.consumer(
            settings,
            STAGE,
            auto_offset_reset="earliest",
            partition_assignment_strategy=(RangePartitionAssignor,),
            # Pausing throws away what was fetched ahead, so fetch little; a large record comes whole all the same.
            max_partition_fetch_bytes=1_048_576,
            # A resumed partition waits for the fetch under way on the others.
            fetch_max_wait_ms=_POLL_MS,
        )
        self._producer: AIOKafkaProducer = kafka.producer(settings)
        self._delivery = Delivery(settings.topics, self._producer, meters)

    async def run(self, stop: asyncio.Event) -> None:
        """Judge until `stop` is set, drain, commit and leave. Raises what ended it otherwise."""
        self._declare()
        self._health.ready(False, "joining the consumer group")
        loops: list[asyncio.Task[None]] = []
        try:
            await self._producer.start()
            await self._consumer.start()
            # Only now: `start` would wait for an assignment, deaf to `stop`.
            self._consumer.subscribe(self._topics, listener=self)
            own = (self._poll, self._commits, self._watch)
            loops = [asyncio.create_task(self._guarded(loop)) for loop in (*own, *self._beside)]
            await self._until(stop.wait())
            self._health.ready(False, "stopping")
            self._stopping = True
            self._judge.stop()
            if self._judge.post is not None:
                await self._until(self._judge.post.stop(), self._settings.judge.drain_s)
            # The loops go on meanwhile: polling keeps the membership, what finishes is committed.
            await self._until(self._drained(), self._settings.judge.drain_s)
        finally:
            await self._leave(loops)

    # -- taking jobs in hand -------------------------------------------------------------------------------

    async def _poll(self) -> None:
        while True:
            self._health.beat()
            room = self._pause_and_resume()
            # No await may come between this one and taking the records in hand.
            batches = await self._consumer.getmany(timeout_ms=_POLL_MS, max_records=room)
            for tp, records in batches.items():
                for record in records:
                    self._take(record, self._queue.claim(tp, record.offset, record.timestamp))
            self._start()

    def _pause_and_resume(self) -> int:
        """Let the consumer poll what there is room for; give how many records to ask for at most."""
        assigned = self._consumer.assignment()
        closed = self._stopping or self._judge.down is not None
        wanted = {} if closed else self._queue.wanted(assigned)
        paused = self._consumer.paused()
        self._consumer.pause(*(assigned - paused - wanted.keys()))
        self._consumer.resume(*(paused & wanted.keys()))
        return min(wanted.values(), default=1)

    def _take(self, record: Any, claim: Claim) -> None:
        try:
            job = decode_job(record.value or b"")
        except UNREADABLE as error:
            # The kind of error alone: messages of decoders may quote the record.
            self._spawn(self._letters, partial(self._put_aside, record, claim, type(error).__name__))
            return
        self._queue.add(job, record, claim)

    async def _put_aside(self, record: Any, claim: Claim, error: str) -> None:
        await self._delivery.dead_letter(record, "undecodable", error)
        claim.settle()

    # -- judging -------------------------------------------------------------------------------------------

    def _start(self) -> None:
        while not self._stopping and self._judge.down is None and (work := self._queue.start()) is not None:
            self._spawn(self._jobs, partial(self._work, work))
        self._meters.gauge("judge_in_flight").set(self._queue.running)

    async def _work(self, work: Work) -> None:
        try:
            outcome = await self._judged(work, work.job)
            if isinstance(outcome, Judgement):
                count_repairs(self._meters, outcome)
                await self._delivery.judgement(work, outcome)
                if await self._repeated(work, outcome):
                    self._queue.finish(work, answered=not isinstance(outcome.result, Unscored))
            elif isinstance(outcome, InvalidJob):
                await self._delivery.dead_letter(work.record, outcome.reason, str(outcome), work.job)
                self._queue.finish(work, answered=False)
        finally:
            self._queue.drop(work)
        self._start()

    async def _repeated(self, work: Work, first: Judgement) -> bool:
        """Ask a second time about the jobs that this is due for; False when that had to be given up.

        The job is finished after it, so that a kill loses no second judgement, and the totals don't depend on it.
        """
        job = repeat_of(work.job, self._settings.judge.repeat_share)
        if job is None or not repeatable(first):
            return True
        outcome = await self._judged(work, job)
        if isinstance(outcome, Judgement):
            await self._delivery.repeat(work, outcome)
        return outcome is not None

    async def _judged(self, work: Work, job: Job) -> Judgement | InvalidJob | None:
        try:
            return await self._judge.judge(job, deferred=not work.urgent)
        except InvalidJob as error:
            return error

    # -- committing ----------------------------------------------------------------------------------------

    async def _commits(self) -> None:
        while True:
            await asyncio.sleep(COMMIT_S)
            await self._commit(self._queue.committable(self._consumer.assignment()))

    async def _commit(self, offsets: dict[TopicPartition, int]) -> None:
        fresh = {tp: offset for tp, offset in offsets.items() if self._committed.get(tp) != offset}
        if not fresh:
            return
        try:
            await self._consumer.commit(fresh)
        except (CommitFailedError, IllegalStateError) as error:
            # Others own these partitions now, or soon: the revocation clears up, and the jobs come again.
            self._meters.counter("commits_failed").inc()
            self._log.warning("commit_failed", error=type(error).__name__)
        else:
            self._committed.update(fresh)

    # -- rebalancing (aiokafka only logs what is raised in here) -------------------------------------------

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Forget the partitions, then commit what they had finished; jobs being judged go on."""
        self._rebalancing = True
        gone = set(revoked)
        offsets = self._queue.committable(gone)
        self._queue.revoke(gone)
        self._lag.keep(())
        self._reached.clear()
        try:
            await asyncio.wait_for(self._commit(offsets), _REVOKE_S)
        except TimeoutError:
            self._log.warning("revoked_without_commit", partitions=len(gone))
        except Exception as error:  # noqa: BLE001 - anything unexpected has to end the process
            self._fail(error)
        self._committed.clear()

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Pause before anything is polled if the judge is down: the assignment is in force already."""
        self._pause_and_resume()
        self._rebalancing = False
        self._log.info("assigned", partitions=len(set(assigned)))

    # -- watching ------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        while True:
            if self._rebalancing:
                self._health.beat()  # `getmany` waits for the new assignment, and liveness isn't the broker's
            self._measure_lag()
            show_gate(self._meters, self._judge.gate, time.monotonic())
            self._report(self._judge.down or self._judge.batches_down)
            await asyncio.sleep(_WATCH_S)

    def _measure_lag(self) -> None:
        assigned = self._consumer.assignment()
        for tp, (offset, timestamp, in_hand) in self._queue.reached().items():
            # All finished and nothing new since then: what the lag knows of that partition still holds.
            if in_hand or self._reached.get(tp) != offset:
                self._lag.reach(tp, offset, timestamp)
            self._reached[tp] = offset
        ends = {tp: self._consumer.highwater(tp) for tp in assigned}
        for topic, age in self._lag.ages(ends, self._wall()).items():
            self._meters.gauge("lag_seconds", topic=topic).set(age)

    def _report(self, down: str | None) -> None:
        if (down is None) != (self._down is None):
            self._log.warning("judge_down" if down else "judge_up", reason=down)
        self._down = down
        if not self._stopping:
            reason = down or ("rebalancing" if self._rebalancing else "")
            self._health.ready(not reason, reason)

    # -- starting and stopping -----------------------------------------------------------------------------

    def _declare(self) -> None:
        """Make the zero series."""
        self._meters.counter("dead_letters", stage=STAGE)
        for rubric in self._judge.rubrics:
            self._meters.counter("judge_repairs", rubric=rubric)
            for name in KINDS:
                self._meters.counter("judgements", rubric=rubric, kind=name)
        for topic in self._topics:
            self._meters.gauge("lag_seconds", topic=topic).set(0)

    async def _until(self, event: Coroutine[Any, Any, Any], seconds: float | None = None) -> None:
        """Wait for an event, so long at most. Raises what failed meanwhile."""
        task = asyncio.ensure_future(event)
        await asyncio.wait({task, self._failed}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        task.cancel()
        if self._failed.done():
            self._failed.result()

    async def _drained(self) -> None:
        while self._jobs or self._letters:
            await asyncio.wait(self._jobs | self._letters)

    async def _leave(self, loops: list[asyncio.Task[None]]) -> None:
        """End everything, commit what is finished, and leave the group; each step is bounded."""
        left = [*loops, *self._jobs, *self._letters]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        self._meters.gauge("judge_in_flight").set(0)
        if self._failed.done():
            self._failed.exception()  # seen: `_until` has raised it, or the process was stopping anyway
        if loops:
            await self._bounded(self._commit(self._queue.committable(self._consumer.assignment())))
        await self._bounded(self._consumer.stop())
        await self._bounded(self._producer.stop())

    async def _bounded(self, step: Coroutine[Any, Any, None]) -> None:
        # `wait_for` is no bound where canceling waits for the broker as well.
        task = asyncio.ensure_future(step)
        done, _ = await asyncio.wait({task}, timeout=STOP_S)
        error = task.exception() if done and not task.cancelled() else None
        if error is not None or not done:
            self._log.warning("stopped_untidily", error=type(error).__name__ if error else "timeout")
            task.cancel()

    def _spawn(self, among: set[asyncio.Task[None]], work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        task = asyncio.create_task(self._guarded(work))
        among.add(task)
        task.add_done_callback(among.discard)

    async def _guarded(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - whatever fails in a task ends the process
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if not self._failed.done():
            self._failed.set_exception(error)
