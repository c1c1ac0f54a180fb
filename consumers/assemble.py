"""The `assemble` process: events in, finished sessions out, by rules A1 to A10 on aiokafka.

There is no lock. State changes only between awaits, and the rebalance callbacks follow A6 to the letter: `revoked`
takes the state out first and commits for it afterwards; `assigned` pauses first, starts loading as a task and
returns. Whatever goes wrong in there ends the process without a commit; a restart replays.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Final

import structlog
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError
from aiokafka.structs import OffsetAndMetadata

from consumers import topics
from consumers.collection import seldom_collected
from consumers.health import Health
from consumers.kafka import admin, consumer, producer
from consumers.partition import STAGE, PartitionState
from consumers.read_back import Committed, Loaded, last_commit, load
from monitor.config import Settings
from monitor.errors import BackslideError, TopicError
from monitor.events import EVENT_ERRORS, EVENT_TYPES
from monitor.metrics import Meters
from monitor.session import CLOSE_REASONS

METERS: Final = (
    "events",
    "events_invalid",
    "events_duplicate",
    "events_late",
    "events_orphaned",
    "events_rerouted",
    "events_clock_skew",
    "sessions_closed",
    "open_sessions",
    "lag_seconds",
    "commits_failed",
    "commits_below_log_start",
    "dead_letters",
)
REVOKE_S: Final = 5.0
STOP_S: Final = 6.0
CLOSE_S: Final = 2.0
BATCH: Final = 500
OBSERVE_S: Final = 0.1


class AssemblerStalled(BackslideError):
    """A partition with lag made no progress (A10): the process has to be restarted."""


async def serve(settings: Settings, meters: Meters, stop: asyncio.Event, health: Health) -> None:
    """Assemble until `stop` is set, then commit what is safe and leave.

    Raises `TopicError` at the start, and whatever makes going on unsafe later.
    """
    names = {settings.topics.events, settings.topics.sessions, settings.topics.dead_letters}
    await topics.require(settings, names)
    assemble = Assemble(settings, meters, health)
    with seldom_collected():
        try:
            await assemble.start()
            await assemble.run(stop)
        finally:
            await assemble.close()


class Assemble(ConsumerRebalanceListener):  # type: ignore[misc] # aiokafka is untyped
    """One member of the group: owns some partitions of the source topic."""

    def __init__(
        self,
        settings: Settings,
        meters: Meters,
        health: Health,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._meters = meters
        self._health = health
        self._clock = clock
        self._wall = wall
        self._group = f"{settings.kafka.group_prefix}-{STAGE}"
        self._log = structlog.get_logger().bind(process=STAGE)
        self._states: dict[TopicPartition, PartitionState] = {}
        self._tokens: dict[TopicPartition, object] = {}
        self._loading: dict[TopicPartition, asyncio.Task[None]] = {}
        self._load_slots = asyncio.Semaphore(4)
        self._fatal: BaseException | None = None
        self._failed = asyncio.Event()
        self._partitions = 0
        self._observe_at = 0.0
        self._consumer: AIOKafkaConsumer = consumer(
            settings,
            STAGE,
            # Every position is sought explicitly; falling off the log has to be seen, not papered over (A9).
            auto_offset_reset="none",
            partition_assignment_strategy=(RangePartitionAssignor,),
        )
        self._producer: AIOKafkaProducer = producer(settings)
        self._admin: AIOKafkaAdminClient = admin(settings)
        self._declare()

    def _declare(self) -> None:
        """Make the zero series, so that a first failure is an increase and not an appearance."""
        for kind in EVENT_TYPES:
            self._meters.counter("events", event_type=kind)
            if kind not in {"turn", "tick"}:
                self._meters.counter("events_orphaned", event_type=kind)
        for reason in EVENT_ERRORS:
            self._meters.counter("events_invalid", reason=reason)
        for reason in CLOSE_REASONS:
            self._meters.counter("sessions_closed", reason=reason)
        for direction in ("future", "past"):
            self._meters.counter("events_clock_skew", direction=direction)
        self._meters.counter("dead_letters", stage=STAGE)

    async def start(self) -> None:
        """Connect and join the group. Raises `TopicError` without the source topic."""
        await self._producer.start()
        await self._admin.start()
        await self._consumer.start()
        found = await topics.partitions_of(self._consumer, self._settings.topics.events)
        self._partitions = len(found)
        if not found:
            raise TopicError(f"topic {self._settings.topics.events}: is missing; run `backslide topics create`")
        self._consumer.subscribe([self._settings.topics.events], listener=self)

    async def run(self, stop: asyncio.Event) -> None:
        """Read, apply, tick and commit until `stop` is set or something fatal happens."""
        reading = asyncio.create_task(self._read(), name="read")
        commits = asyncio.create_task(self._commit_regularly(), name="commit")
        stopping = asyncio.create_task(stop.wait(), name="stop")
        failing = asyncio.create_task(self._failed.wait(), name="fail")
        tasks = (reading, commits, stopping, failing)
        try:
            # `getmany` ignores its timeout while a rebalance is on: neither a stop nor a failure may wait for it.
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        self._raise_fatal()
        for result in results:
            if isinstance(result, Exception):
                raise result
        self._health.ready(False, "stopping")
        await asyncio.wait({asyncio.create_task(self._commit())}, timeout=STOP_S)

    async def close(self) -> None:
        """Leave the group and disconnect, each within a bound."""
        for task in self._loading.values():
            task.cancel()
        for state in self._states.values():
            state.outbox.close()
        closing = (self._consumer.stop(), self._admin.close(), self._producer.stop())
        await asyncio.wait({asyncio.ensure_future(each) for each in closing}, timeout=CLOSE_S)

    # -- reading -------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        while True:
            self._raise_fatal()
            batch = await self._consumer.getmany(timeout_ms=200, max_records=BATCH)
            now = self._clock()
            for tp, records in batch.items():
                # Records of a partition that is still loading are read again: its task seeks.
                state = self._states.get(tp)
                if state is not None:
                    state.apply(records, now)
            # With records at hand `getmany` never suspends: fetches, sends and heartbeats need their turn.
            await asyncio.sleep(0)
            # Looking around after each batch of a backlog would cost as much as a tenth of the batch.
            if now >= self._observe_at or sum(map(len, batch.values())) < BATCH:
                self._observe_at = now + OBSERVE_S
                self._health.beat()
                self._observe(now, await self._caught_up())
            await self._make_room()

    async def _caught_up(self) -> set[TopicPartition]:
        """Give the partitions read to their end, which need not be behind a record: transactions leave markers."""
        found = set()
        for tp in list(self._states):
            highwater = self._consumer.highwater(tp)
            # `position` waits when a partition is taken away, but for the ones that we have it is at hand.
            if highwater is not None and tp in self._states and await self._consumer.position(tp) >= highwater:
                found.add(tp)
        return found

    async def _make_room(self) -> None:
        for state in list(self._states.values()):
            while state.outbox.full and not await state.outbox.room(1.0):
                self._health.beat()
                self._raise_fatal()

    def _observe(self, now: float, caught_up: set[TopicPartition]) -> None:
        """Tick idle partitions, watch for stalls and a changed partition count, and set the gauges."""
        count = len(self._consumer.partitions_for_topic(self._settings.topics.events) or ())
        if count not in {0, self._partitions}:
            raise TopicError(
                f"topic {self._settings.topics.events}: has {count} partitions, had {self._partitions}; "
                "sessions would be torn apart: move to a new topic (topics.events) and `backslide topics create`"
            )
        unix_time = oldest = self._wall()
        for tp, state in self._states.items():
            if tp in caught_up:
                self._tick(state, now)
            elif self._consumer.highwater(tp) is not None:
                self._check_stall(tp, state, now)
                oldest = min(oldest, state.last_timestamp / 1000 if state.last_timestamp else oldest)
        topic = self._settings.topics.events
        self._meters.gauge("lag_seconds", topic=topic).set(max(unix_time - oldest, 0.0))
        self._meters.gauge("open_sessions").set(sum(state.open_sessions for state in self._states.values()))
        loading = len(self._loading)
        waiting = self._consumer.assignment() - self._states.keys()
        ready = not loading and not waiting
        self._health.ready(ready, "" if ready else f"loading {max(loading, len(waiting))} partitions")

    def _check_stall(self, tp: TopicPartition, state: PartitionState, now: float) -> None:
        silent = now - state.active_at
        if silent > self._settings.assembly.stall_timeout_s:
            raise AssemblerStalled(f"{tp.topic}[{tp.partition}]: lag and no progress for {silent:.0f} s")

    def _tick(self, state: PartitionState, now: float) -> None:
        state.active_at = now  # to have read everything is no stall, however long ago it was
        if not state.open_sessions:
            state.silent_since = now
        elif now - state.silent_since >= self._settings.assembly.tick_interval_s:
            state.tick(now)

    # -- committing ----------------------------------------------------------------------------------------

    async def _commit_regularly(self) -> None:
        while True:
            await asyncio.sleep(self._settings.assembly.commit_interval_s)
            await self._commit()

    async def _commit(self) -> None:
        await self._commit_states(dict(self._states))

    async def _commit_states(self, states: dict[TopicPartition, PartitionState]) -> None:
        """Commit the safe positions of partitions that are still ours (A7)."""
        if self._fatal is not None:
            return
        offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        for tp, state in states.items():
            offset = await state.commitable()
            if offset is not None:
                offsets[tp] = offset
        assigned = self._consumer.assignment()
        offsets = {tp: offset for tp, offset in offsets.items() if tp in assigned}
        if not offsets or self._fatal is not None:
            return
        try:
            await self._consumer.commit(offsets)
        except (CommitFailedError, IllegalStateError) as error:
            # Lost to another member: it replays from the commit before.
            self._meters.counter("commits_failed").inc()
            self._log.warning("commit_failed", error=type(error).__name__)
        except KafkaError as error:
            self._log.warning("commit_failed", error=type(error).__name__)
        else:
            for tp, offset in offsets.items():
                states[tp].committed(offset)

    # -- rebalancing ---------------------------------------------------------------------------------------

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Take the state out first, then commit for it; aiokafka only logs what is raised here."""
        states: dict[TopicPartition, PartitionState] = {}
        for tp in revoked:
            self._tokens.pop(tp, None)
            task = self._loading.pop(tp, None)
            if task is not None:
                task.cancel()
            state = self._states.pop(tp, None)
            if state is not None:
                states[tp] = state
        try:
            await asyncio.wait_for(self._commit_states(states), REVOKE_S)
        except TimeoutError:
            self._log.warning("revoked_without_commit", partitions=[tp.partition for tp in states])
        except Exception as error:  # noqa: BLE001 - anything unexpected has to end the process
            self._fail(error)
        finally:
            for state in states.values():
                state.outbox.close()

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Pause first, then load as a task; the assignment is in force before this is called (A6)."""
        try:
            self._start_loading(list(assigned))
        except Exception as error:  # noqa: BLE001 - aiokafka would only log it, and the partition stand still
            self._fail(error)

    def _start_loading(self, partitions: list[TopicPartition]) -> None:
        self._consumer.pause(*partitions)
        for tp in partitions:
            # A valid position keeps the fetcher from asking for a reset before the task has sought.
            self._consumer.seek(tp, 0)
            token = object()
            self._tokens[tp] = token
            self._loading[tp] = asyncio.create_task(self._load(tp, token), name=f"load-{tp.partition}")

    async def _load(self, tp: TopicPartition, token: object) -> None:
        try:
            async with asyncio.timeout(self._settings.assembly.load_timeout_s), self._load_slots:
                commit = await self._last_commit(tp)
                loaded = await load(self._settings, self._consumer, tp.partition, self._partitions, commit)
            if self._tokens.get(tp) is token:
                self._take_over(tp, loaded)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - A6: any failure in here is fatal
            self._fail(error)

    def _take_over(self, tp: TopicPartition, loaded: Loaded) -> None:
        if loaded.commit_lost:
            self._meters.counter("commits_below_log_start").inc()
        self._states[tp] = PartitionState(
            settings=self._settings,
            meters=self._meters,
            producer=self._producer,
            assembler=loaded.assembler,
            partition=tp.partition,
            partitions=self._partitions,
            sessions_end=loaded.sessions_end,
            truncated=loaded.truncated,
            fail=self._fail,
            now=self._clock(),
        )
        self._loading.pop(tp, None)
        self._consumer.seek(tp, loaded.start)
        self._consumer.resume(tp)
        self._log.info("partition_loaded", partition=tp.partition, start=loaded.start)

    async def _last_commit(self, tp: TopicPartition) -> Committed | None:
        if not self._settings.kafka.commit_metadata:
            return None  # without metadata the only safe start is the beginning (A4)
        return await last_commit(self._admin, self._group, tp)

    def _fail(self, error: BaseException) -> None:
        if self._fatal is None:
            self._fatal = error
            self._failed.set()
            self._log.error("fatal", error=f"{type(error).__name__}: {error}")

    def _raise_fatal(self) -> None:
        if self._fatal is not None:
            raise self._fatal
