"""A sampler whose broker takes one record at a time, in the order that a test chooses, and which can be killed.

Only Faust is replaced: its app, topics and stream. As Faust does, an acknowledgment commits everything before it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from aiokafka import TopicPartition
from aiokafka.errors import MessageSizeTooLargeError

from consumers import sample
from consumers.health import Health
from consumers.sample import METERS, Sampler
from monitor.config import Settings
from monitor.decision import Decision, Job, PolicyLoaded, decode_decision, decode_job
from monitor.metrics import Meters
from monitor.sampling.policy import Policy

SETTINGS = Settings(
    topics={"job_partitions": 1},  # type: ignore[arg-type]
    sampling={"salt": "grain", "reload_interval_s": 3_600.0},  # type: ignore[arg-type]
)
TOPICS = SETTINGS.topics
TURNS = 20


class Effect(msgspec.Struct):
    """A record or a commit on its way to the broker."""

    apply: Callable[[], None]
    future: asyncio.Future[None]


class Broker:
    """What outlives a process: records by topic, how often each was sent, and the committed offset of sessions.

    `limits` gives the size in bytes from which a topic refuses a record; `fails` the topic that refuses all.
    """

    def __init__(self, sessions: list[bytes | None], limits: dict[str, int] | None = None) -> None:
        self.sessions = sessions
        self.limits = limits or {}
        self.fails: str | None = None
        self.records: dict[str, list[bytes]] = {}
        self.sends = 0
        self.committed = 0

    def decisions(self) -> list[Decision]:
        """Give the decisions in the order of the log."""
        found = [decode_decision(value) for value in self.records.get(TOPICS.decisions, [])]
        return [item for item in found if isinstance(item, Decision)]

    def policies(self) -> list[PolicyLoaded]:
        found = [decode_decision(value) for value in self.records.get(TOPICS.decisions, [])]
        return [item for item in found if isinstance(item, PolicyLoaded)]

    def jobs(self) -> list[Job]:
        values = self.records.get(TOPICS.jobs_urgent, []) + self.records.get(TOPICS.jobs_routine, [])
        return [decode_job(value) for value in values]

    def take(self, topic: str, value: bytes) -> None:
        self.sends += 1
        if len(value) > self.limits.get(topic, 1 << 30):
            raise MessageSizeTooLargeError
        if topic == self.fails:
            raise ConnectionError("the broker said no")
        self.records.setdefault(topic, []).append(value)


class App:
    """Stands for the Faust app of one process."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.pending: list[Effect] = []
        self.rebalancing = False
        self.crash_reason: BaseException | None = None
        self._crashed = asyncio.Event()
        self._agent: Any = None
        self.on_partitions_revoked = SimpleNamespace(connect=lambda *_, **__: None)
        place = TopicPartition(TOPICS.sessions, 0)
        self.consumer = SimpleNamespace(assignment=lambda: {place}, highwater=lambda _: len(broker.sessions))

    def agent(self, *_: Any, **__: Any) -> Callable[[Any], None]:
        def declare(function: Any) -> None:
            self._agent = function

        return declare

    async def start(self) -> None:
        self._task = asyncio.create_task(self._agent(Stream(self)))

    async def stop(self) -> None:
        self._task.cancel()

    def offer(self, apply: Callable[[], None]) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.pending.append(Effect(apply, future))
        return future


class Topic:
    def __init__(self, app: App, name: str) -> None:
        self._app = app
        self._name = name

    async def send(self, *, value: bytes, **_: Any) -> asyncio.Future[None]:
        return self._app.offer(lambda: self._app.broker.take(self._name, value))


class Stream:
    def __init__(self, app: App) -> None:
        self._app = app

    def noack(self) -> Stream:
        return self

    async def events(self) -> AsyncIterator[Any]:
        broker = self._app.broker
        for offset in range(broker.committed, len(broker.sessions)):
            message = SimpleNamespace(
                topic=TOPICS.sessions, partition=0, offset=offset, tp=TopicPartition(TOPICS.sessions, 0),
                timestamp=1.0, key=None, value=broker.sessions[offset],
            )  # fmt: skip
            yield SimpleNamespace(message=message)
        await asyncio.Event().wait()

    async def ack(self, event: Any) -> None:
        def commit() -> None:
            broker.committed = max(broker.committed, event.message.offset + 1)

        broker = self._app.broker
        await self._app.offer(commit)


class Process:
    """One life of the sampler. Nothing that it sends arrives before `step`."""

    def __init__(self, patch: pytest.MonkeyPatch, broker: Broker, policy: Policy) -> None:
        self.app = App(broker)
        patch.setattr(sample, "create_app", lambda *_: self.app)
        patch.setattr(sample, "raw_topic", Topic)
        policies: Any = SimpleNamespace(policy=policy, poll=lambda: None)
        meters = Meters(METERS, version="test", process="sample")
        self.sampler = Sampler(SETTINGS, meters, policies, Health(time.monotonic))
        self.starting = asyncio.create_task(self.sampler.start())

    async def settle(self) -> list[Effect]:
        """Let the process go on until it can only wait; give what is on its way."""
        for _ in range(TURNS):
            await asyncio.sleep(0)
        return self.app.pending

    def step(self, place: int) -> None:
        """Let one thing arrive, and the process hear of it."""
        effect = self.app.pending.pop(place)
        try:
            effect.apply()
        except Exception as error:  # noqa: BLE001 - the broker's answer
            effect.future.set_exception(error)
        else:
            effect.future.set_result(None)

    async def run(self) -> None:
        """Let everything arrive in the order in which it is sent."""
        while await self.settle():
            self.step(0)

    async def kill(self) -> None:
        """End it as SIGKILL does: nothing that is on its way arrives, nothing is tidied up."""
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
