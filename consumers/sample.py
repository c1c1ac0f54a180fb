"""The sampler on Faust: finished sessions in; jobs, then decisions out (S1 to S4).

A decision is the commit point: it is sent after the broker has acknowledged every job that it lists, and its
session's offset is acknowledged after the broker has acknowledged the decision, in the order of the stream. So a
kill at any moment replays sessions, and the same sessions give the same bytes again.

Faust commits past an unacknowledged event and acknowledges the event of a body that raises. Therefore the agent
acknowledges by hand and in order, never raises, and whatever goes wrong ends the process without `app.stop()`:
nothing may be committed after a failure.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

import msgspec
import structlog

from consumers import topics
from consumers.dead_letters import letter
from consumers.faust_app import RecordTooLarge, create_app, deliver, raw_topic, stop_within
from consumers.health import Health
from consumers.kafka import event_key
from consumers.lag import Lag
from monitor.config import Settings
from monitor.decision import Decision, Job
from monitor.errors import BackslideError
from monitor.metrics import Meters
from monitor.rubrics import RUBRICS
from monitor.sampling.decide import decide, oversized, without_content
from monitor.sampling.policy import RESERVED_STRATA, Policy
from monitor.sampling.policy_file import PolicyFile, Reload
from monitor.session import Addendum, FinishedRecord, decode_record

METERS: Final = ("decisions", "policy_reloads", "dead_letters", "lag_seconds")
STAGE: Final = "sample"
STOP_S: Final = 8.0
_WATCH_S: Final = 0.5


class SamplerFailed(BackslideError):
    """The sampler can't go on. End the process at once, awaiting nothing more; a restart replays what is open."""

    end_at_once = True


class Sampler:
    """One sampler process. `start` it, then `run_until` a stop event; both raise `SamplerFailed`.

    `policies` holds the policy in force; `health` is told of readiness; `clock` gives Unix seconds, for lag only.
    """

    def __init__(
        self,
        settings: Settings,
        meters: Meters,
        policies: PolicyFile,
        health: Health,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        salt = settings.sampling.salt
        self._settings = settings
        self._meters = meters
        self._policies = policies
        self._policy = policies.policy
        self._salt = salt.get_secret_value().encode() if salt else b""
        self._health = health
        self._clock = clock
        self._log = structlog.get_logger().bind(process=STAGE)
        self._published = asyncio.Event()
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._slots = asyncio.Semaphore(settings.sampling.window)
        self._window: asyncio.Queue[tuple[Any, asyncio.Task[None]]] = asyncio.Queue()
        self._lag = Lag([settings.topics.sessions])
        self._tasks: set[asyncio.Task[None]] = set()
        self._app = create_app(settings, STAGE)
        names = settings.topics
        self._decisions = raw_topic(self._app, names.decisions)
        self._urgent = raw_topic(self._app, names.jobs_urgent)
        self._routine = raw_topic(self._app, names.jobs_routine)
        self._dead_letters = raw_topic(self._app, names.dead_letters)
        self._stream: Any = None
        self._app.on_partitions_revoked.connect(self._forget, weak=False)
        self._app.agent(raw_topic(self._app, names.sessions), name=STAGE, concurrency=1)(self._agent())

    async def start(self) -> None:
        """Join the group and publish the policy; the first session is taken up after that."""
        self._health.ready(False, "joining the consumer group")
        try:
            await self._app.start()
            await self._publish(self._policy)
        except Exception as error:
            raise SamplerFailed(f"the sampler could not start: {error}") from error
        self._published.set()
        for result in ("loaded", "unchanged", "refused"):
            self._meters.counter("policy_reloads", result=result)
        self._meters.counter("dead_letters", stage=STAGE)
        for work in (self._acknowledge(), self._reload(), self._watch()):
            self._spawn(work)

    async def run_until(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set, then leave the group within a few seconds.

        Raises `SamplerFailed` when a send failed, Faust crashed, or the stop did not come to an end.
        """
        waits: set[asyncio.Future[Any]] = {
            asyncio.ensure_future(stop.wait()),
            asyncio.ensure_future(self._app._crashed.wait()),  # noqa: SLF001 - Faust tells of a crash only here
            self._failed,
        }
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits - {self._failed}:
            wait.cancel()
        self._health.ready(False, "stopping")
        self._raise_failure()
        # Faust waits for the window to empty, so the acknowledging task goes on meanwhile.
        stopped = await stop_within(self._app, STOP_S)
        self._raise_failure()
        for task in self._tasks:
            task.cancel()
        if not stopped:
            raise SamplerFailed(f"the sampler did not leave the group within {STOP_S:.0f} s")

    def _raise_failure(self) -> None:
        error: BaseException | None = None
        if self._failed.done():
            error = self._failed.exception()
        elif self._app._crashed.is_set():  # noqa: SLF001
            error = self._app.crash_reason
        else:
            return
        for task in self._tasks:
            task.cancel()
        raise SamplerFailed(f"the sampler failed: {type(error).__name__}") from error

    def _fail(self, error: BaseException) -> None:
        if not self._failed.done():
            self._failed.set_exception(error)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(self._guarded(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:
            self._fail(error)
            raise

    def _agent(self) -> Callable[[Any], Coroutine[Any, Any, None]]:
        async def sample(stream: Any) -> None:
            await self._published.wait()
            self._stream = stream.noack()
            async for event in self._stream.events():
                # Never raises: Faust would acknowledge the event.
                await self._slots.acquire()
                self._window.put_nowait((event, self._spawn(self._handle(event.message))))

        return sample

    async def _acknowledge(self) -> None:
        """Acknowledge events in stream order, each after the broker has everything that came of it."""
        while True:
            event, task = await self._window.get()
            await task
            await self._stream.ack(event)
            message = event.message
            self._lag.reach(message.tp, message.offset + 1, 1000 * (message.timestamp or self._clock()))
            self._slots.release()

    async def _handle(self, message: Any) -> None:
        raw = message.value
        try:
            record = _decode(raw)
            if isinstance(record, Addendum):
                await deliver(self._decisions, message.key, raw)
                return
            decision, jobs = decide(
                record, self._policy, salt=self._salt, assistants=self._settings.sampling.assistants
            )
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            await self._set_aside(message, error)
            return
        await self._send(message.key, decision, jobs)

    async def _send(self, key: bytes | None, decision: Decision, jobs: list[Job]) -> None:
        """Send a session's jobs, and when the broker has them all, its decision (S3)."""
        key = key or event_key(decision.tenant, decision.session_id)
        try:
            await _all(self._send_job(job) for job in jobs)
        except RecordTooLarge:
            self._log.warning("job_too_large", session_id=decision.session_id, segment=decision.segment)
            decision = oversized(decision)
        try:
            await deliver(self._decisions, key, msgspec.json.encode(decision))
        except RecordTooLarge:
            self._log.warning("decision_too_large", session_id=decision.session_id, segment=decision.segment)
            decision = without_content(decision)
            await deliver(self._decisions, key, msgspec.json.encode(decision))
        self._count(decision.stratum, selected=decision.selected).inc()

    async def _send_job(self, job: Job) -> None:
        topic = self._urgent if job.priority == "urgent" else self._routine
        await deliver(topic, job.job_id.encode(), msgspec.json.encode(job))

    async def _set_aside(self, message: Any, error: Exception) -> None:
        """Send a record that can't be taken in to the dead letters, keyed by position: a replay gives the same."""
        # The kind of error alone: messages of decoders may quote the record.
        kind = type(error).__name__
        key, value, headers = letter(message, stage=STAGE, reason="undecodable", error=kind)
        await deliver(self._dead_letters, key, value, headers)
        self._meters.counter("dead_letters", stage=STAGE).inc()
        self._log.warning("dead_letter", position=key.decode(), error=kind)

    async def _reload(self) -> None:
        """Look at the policy file again and again; a new policy is published before it decides anything."""
        while True:
            await asyncio.sleep(self._settings.sampling.reload_interval_s)
            reload = await asyncio.to_thread(self._policies.poll)
            if reload is not None:
                await self._take(reload)

    async def _take(self, reload: Reload) -> None:
        if reload.result == "loaded":
            await self._publish(reload.policy)
            self._policy = reload.policy
        if reload.result == "refused":
            self._log.error("policy_refused", reason=reload.reason, policy=self._policy.version)
        self._meters.counter("policy_reloads", result=reload.result).inc()

    async def _publish(self, policy: Policy) -> None:
        record = policy.published(self._settings.sampling.assistants)
        for name in (*(stratum.name for stratum in policy.strata), *RESERVED_STRATA):
            for selected in (True, False):
                self._count(name, selected=selected)
        value, key = msgspec.json.encode(record), f"policy/{policy.version}".encode()
        # To every partition: a reader of any of them learns of the policy before its first decision (R3).
        partitions = range(self._settings.topics.job_partitions)
        await _all(deliver(self._decisions, key, value, partition=number) for number in partitions)
        self._log.info("policy_loaded", policy=policy.version)

    async def _watch(self) -> None:
        """Keep readiness and lag up to date."""
        while True:
            self._health.beat()
            if self._app.rebalancing:
                self._health.ready(False, "rebalancing")
            else:
                self._health.ready(True, "")
            self._measure_lag()
            await asyncio.sleep(_WATCH_S)

    def _measure_lag(self) -> None:
        consumer = self._app.consumer
        ends = {tp: consumer.highwater(tp) for tp in consumer.assignment()}
        for topic, age in self._lag.ages(ends, self._clock()).items():
            self._meters.gauge("lag_seconds", topic=topic).set(age)

    async def _forget(self, *_: Any, **__: Any) -> None:
        """Drop positions at a revocation: others may process those partitions from here on."""
        self._lag.keep(())

    def _count(self, stratum: str, *, selected: bool) -> Any:
        return self._meters.counter("decisions", stratum=stratum, selected=str(selected).lower())


async def serve(settings: Settings, meters: Meters, stop: asyncio.Event, health: Health) -> None:
    """Run the sampler until `stop` is set; `meters` must hold `METERS`.

    Raises `TopicError` or `PolicyError` when a topic or the policy is wrong at the start, and `SamplerFailed`,
    after which the process must end at once (`os._exit`): awaiting anything might let Faust commit.
    """
    names = settings.topics
    policies = PolicyFile(settings.sampling.policy, rubrics=RUBRICS)
    await topics.require(
        settings, {names.sessions, names.decisions, names.jobs_urgent, names.jobs_routine, names.dead_letters}
    )
    if settings.sampling.salt is None:
        structlog.get_logger().warning("no_salt", process=STAGE, remedy="set sampling.salt to a random secret")
    sampler = Sampler(settings, meters, policies, health)
    await sampler.start()
    await sampler.run_until(stop)


def _decode(raw: bytes | None) -> FinishedRecord:
    if raw is None:
        raise msgspec.DecodeError("no value")
    return decode_record(raw)


async def _all(sends: Any) -> None:
    """Wait for all, then raise the first error: none may be under way when the decision is sent."""
    results = await asyncio.gather(*sends, return_exceptions=True)
    errors = [result for result in results if isinstance(result, BaseException)]
    # Too large is an answer; anything else is a failure and goes first.
    for error in sorted(errors, key=lambda error: isinstance(error, RecordTooLarge)):
        raise error
