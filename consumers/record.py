"""The recorder: decisions and judgements in, rows and totals out. It alone counts (R1).

Offsets are committed after the transaction that holds their records. So a kill at any moment makes records come
again, and the store takes what comes again for free. While the store is down the recorder keeps its batch and its
place in the group, commits nothing, says so, and tries again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import msgspec
import structlog
from aiokafka import ConsumerRebalanceListener, TopicPartition

from consumers import dead_letters, topics
from consumers.daemon_thread import in_thread
from consumers.expected_cost import expected_cost
from consumers.health import Health
from consumers.kafka import consumer, producer
from consumers.lag import Lag
from consumers.membership import LeftBehind, Membership
from monitor.config import Settings
from monitor.decision import decode_decision
from monitor.errors import StoreError
from monitor.judgement import decode_judgement
from monitor.judging.open import judge_name
from monitor.judging.screen import screened
from monitor.metrics import Meters
from monitor.rubrics import RUBRICS
from monitor.rubrics.base import Rubric
from monitor.store import Record, RecordReport, RubricCounts, Screened, Store
from monitor.store.connect import check_url

T = TypeVar("T")

METERS: Final[tuple[str, ...]] = (
    "recorded",
    "dead_letters",
    "lag_seconds",
    "last_recorded_timestamp_seconds",
    "store_up",
    "commits_failed",
)
STAGE: Final = "record"
# Longer than any healthy transaction; from then on readiness says what is being waited for.
SLOW_S: Final = 5.0
RETRY_S: Final = (0.5, 10.0)
# All that is in hand when the stop comes, and then each of the clients: under 10 s together.
DRAIN_S: Final = 4.0
EXPIRE_EVERY_S: Final = 3_600.0
DAY_S: Final = 86_400.0
CLOSE_S: Final = 1.5

_THE_STORE: Final = "the store"
_UNDECODABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
# What `recorded{kind}` counts, and where a report says it.
_KINDS: Final = {
    "policy": "policies",
    "decision": "decisions",
    "addendum": "addenda",
    "judgement": "judgements",
    "duplicate": "duplicates",
}


class Recorder:
    """One recorder. `reader` and `writer` are started aiokafka clients; `clock` gives Unix seconds, for lag.

    `open_store` opens the store, and may block and raise `StoreError`.
    """

    def __init__(
        self,
        settings: Settings,
        meters: Meters,
        *,
        open_store: Callable[[], Store],
        reader: Any,
        writer: Any,
        health: Health,
        clock: Callable[[], float] = time.time,
    ) -> None:
        names = settings.topics
        self._batch = settings.store.batch
        self._retention = settings.store
        self._expire_at = clock() + EXPIRE_EVERY_S
        self._dead_letters = names.dead_letters
        self._decoders: dict[str, Callable[[bytes], Record]] = {
            names.decisions: decode_decision,
            names.judgements: decode_judgement,
        }
        self._meters = meters
        self._open_store = open_store
        self._reader = reader
        self._writer = writer
        self._health = health
        self._clock = clock
        self._lag = Lag(self._decoders)
        self._joined = False
        self._opened = False
        self._trouble = ""
        self._log = structlog.get_logger().bind(process=STAGE)

    async def run(self, stop: asyncio.Event) -> None:
        """Record until `stop` is set, then finish and commit the batch in hand within `DRAIN_S`."""
        self._zeros()
        stopping = asyncio.ensure_future(stop.wait())
        self._member = Membership(self._reader, stopping, batch=self._batch, drain_s=DRAIN_S, tick=self._observe)
        store: Store | None = None
        try:
            store = await self._insist(self._open_store)
            self._opened = True
            while not stopping.done():
                if records := await self._member.poll():
                    await self._take(store, records)
                await self._expire(store)
                self._observe()
        except LeftBehind:
            self._log.warning("left_work_behind", reason=self._trouble or "stopped")
        finally:
            stopping.cancel()
            if store is not None:
                store.close()

    def assigned(self, partitions: set[TopicPartition]) -> None:
        """Note what the group gave to this member."""
        self._joined = True
        self._lag.keep(partitions)
        self._log.info("assigned", partitions=len(partitions))

    def _zeros(self) -> None:
        for kind in _KINDS:
            self._meters.counter("recorded", kind=kind)
        self._meters.counter("dead_letters", stage=STAGE)
        self._meters.gauge("store_up").set(0)
        self._observe()

    async def _take(self, store: Store, records: Sequence[Any]) -> None:
        """Put aside what can't be taken in, store the rest, and only then commit all of it."""
        for record in reversed(records):
            self._lag.reach(_place(record), record.offset, record.timestamp)
        batch: list[tuple[Any, Record]] = []
        for record in records:
            try:
                batch.append((record, self._decode(record)))
            except _UNDECODABLE as error:
                await self._set_aside(record, "undecodable", f"{type(error).__name__}: {error}")
        report = await self._store(store, [decoded for _, decoded in batch])
        for rejected in report.rejected:
            record = next(record for record, decoded in batch if decoded is rejected.record)
            await self._set_aside(record, "rejected", rejected.error)
        if not await self._member.commit({_place(record): record.offset + 1 for record in records}):
            self._meters.counter("commits_failed").inc()
            self._log.info("commit_failed")
        self._mended()
        for record in records:
            self._lag.reach(_place(record), record.offset + 1, record.timestamp)

    async def _expire(self, store: Store) -> None:
        """Once an hour, remove text and rows whose time is over (R5)."""
        now = self._clock()
        if now < self._expire_at:
            return
        self._expire_at = now + EXPIRE_EVERY_S
        expired = await self._insist(
            lambda: store.expire(
                text_before=now - self._retention.text_retention_d * DAY_S,
                rows_before=now - self._retention.verdict_retention_d * DAY_S,
            )
        )
        self._log.info("expired", texts=expired.texts, segments=expired.segments)

    def _decode(self, record: Any) -> Record:
        if record.value is None:
            raise msgspec.DecodeError("no value")
        return self._decoders[record.topic](record.value)

    async def _store(self, store: Store, batch: list[Record]) -> RecordReport:
        if not batch:
            return RecordReport()
        report = await self._insist(lambda: store.record(batch))
        self._meters.gauge("last_recorded_timestamp_seconds").set(self._clock())
        for kind, field in _KINDS.items():
            self._meters.counter("recorded", kind=kind).inc(getattr(report, field))
        return report

    async def _insist(self, work: Callable[[], T]) -> T:
        """Do something with the store until it succeeds; nothing is committed meanwhile."""
        wait, longest = RETRY_S
        while True:
            try:
                result = await self._member.hold(in_thread(work, name="store"), _THE_STORE)
            except StoreError as error:
                self._meters.gauge("store_up").set(0)
                self._trouble = str(error)
                self._log.warning("store_down", error=str(error), retry_in_s=wait)
            else:
                self._meters.gauge("store_up").set(1)
                self._mended()
                return result
            await self._member.pause(wait)
            wait = min(wait * 2, longest)

    async def _set_aside(self, record: Any, reason: str, error: str) -> None:
        sending = dead_letters.send(
            self._writer, self._dead_letters, record, stage=STAGE, reason=reason, error=error
        )
        await self._member.hold(asyncio.ensure_future(sending), "the broker, to put a dead letter aside")
        self._mended()
        self._meters.counter("dead_letters", stage=STAGE).inc()
        # The error's text stays in the letter: it may quote what users said.
        position = f"{record.topic}/{record.partition}/{record.offset}"
        self._log.warning("dead_letter", position=position, reason=reason)

    def _mended(self) -> None:
        if self._trouble:
            self._log.info("mended", trouble=self._trouble)
            self._trouble = ""

    def _observe(self, waiting_for: str = "", seconds: float = 0.0) -> None:
        """Keep liveness, readiness and lag up to date."""
        self._health.beat()
        if seconds >= SLOW_S:
            self._trouble = f"waiting for {waiting_for} for {seconds:.0f} s"
            if waiting_for == _THE_STORE:
                self._meters.gauge("store_up").set(0)
        reason = self._trouble
        if not reason and not self._joined:
            reason = "joining the consumer group"
        elif not reason and not self._opened:
            reason = "opening the store"
        self._health.ready(not reason, reason)
        for topic, age in self._lag.ages(self._highwaters(), self._clock()).items():
            self._meters.gauge("lag_seconds", topic=topic).set(age)

    def _highwaters(self) -> dict[TopicPartition, int | None]:
        return {partition: self._reader.highwater(partition) for partition in self._reader.assignment()}


class _Assignments(ConsumerRebalanceListener):  # type: ignore[misc] # aiokafka has no types
    """Tells the recorder what it was given; a batch of a lost partition may still be stored."""

    def __init__(self, assigned: Callable[[set[TopicPartition]], None]) -> None:
        self._assigned = assigned

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        """Do nothing."""

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        """Pass the new assignment on."""
        self._assigned(assigned)


async def serve(settings: Settings, meters: Meters, stop: asyncio.Event, health: Health) -> None:
    """Run the recorder until `stop` is set, and leave within 10 s; `meters` must hold `METERS`.

    Raises `ConfigError` when `judge.model` or `judge.screen.model` names no judge or `store.url` no database,
    `TopicError` for a wrong topic, and aiokafka's errors when the broker can't be reached at the start or refuses;
    the process should end then, and be started again.
    """
    names = settings.topics
    check_url(settings.store.url)
    opening = partial(_open, settings, judge_name(settings.judge), _screened(settings))
    await topics.require(settings, {names.decisions, names.judgements, names.dead_letters})
    reader = consumer(settings, STAGE, auto_offset_reset="earliest")
    writer = producer(settings)
    recorder = Recorder(settings, meters, open_store=opening, reader=reader, writer=writer, health=health)
    reader.subscribe([names.decisions, names.judgements], listener=_Assignments(recorder.assigned))
    try:
        await writer.start()
        await reader.start()
        await recorder.run(stop)
    finally:
        health.ready(False, "stopping")
        await _close(reader)
        await _close(writer)


def _open(settings: Settings, judge: str, screen: Screened | None) -> Store:
    """Open the store, and say what judging will cost with it."""
    store = Store.open(settings.store.url, rubrics=rubric_counts(RUBRICS), judge=judge, screen=screen)
    expected_cost(settings, judge, store)
    return store


def _screened(settings: Settings) -> Screened | None:
    screen = settings.judge.screen
    return Screened(judge=judge_name(screen), rubrics=screened(screen)) if screen.model else None


def rubric_counts(rubrics: Mapping[str, Rubric]) -> dict[str, RubricCounts]:
    """Say what each rubric can count, for the zero totals of a policy (R3)."""
    return {name: RubricCounts(measures=rubric.measures, scores=rubric.scores) for name, rubric in rubrics.items()}


async def _close(client: Any) -> None:
    """Close a Kafka client, in a bounded time: without its broker it may wait for ever."""
    closing = asyncio.ensure_future(client.stop())
    await asyncio.wait({closing}, timeout=CLOSE_S)
    if not closing.done():
        closing.cancel()
        await asyncio.wait({closing}, timeout=0.1)


def _place(record: Any) -> TopicPartition:
    return TopicPartition(record.topic, record.partition)


__all__ = ["METERS", "Recorder", "rubric_counts", "serve"]
