"""J3: the judge's offsets, stepped: answers, sends, commits and a rebalance in every order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from aiokafka import TopicPartition

from consumers import kafka
from consumers.health import Health
from consumers.job_judge import JobJudge
from consumers.judge import METERS, Worker
from monitor.config import Settings
from monitor.judgement import decode_judgement
from monitor.judging.model import Completion, JudgeRequest
from monitor.metrics import Meters
from tests.unit.consumers.explore import Choose, explore
from tests.unit.consumers.test_job_judge import job, prompt
from tests.unit.judging.politeness import POLITE, Politeness

SETTINGS = Settings(judge={"concurrency": 2})  # type: ignore[arg-type]
PLACE = TopicPartition(SETTINGS.topics.jobs_routine, 0)
JOBS = [msgspec.structs.replace(job("Gladly."), job_id=name) for name in ("first", "second")]
TURNS = 20


class Waiting:
    """Calls that have no answer yet."""

    def __init__(self) -> None:
        self.pending: list[tuple[Callable[[], Any], asyncio.Future[Any]]] = []

    def offer(self, apply: Callable[[], Any]) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.pending.append((apply, future))
        return future

    def answer(self, place: int) -> None:
        apply, future = self.pending.pop(place)
        future.set_result(apply())


class Model:
    """The judge: its answers wait to be let out."""

    name, provider, model = "fake", "fake", "fake-1"

    def __init__(self, waiting: Waiting) -> None:
        self._waiting = waiting
        self.asked = 0

    async def complete(self, request: JudgeRequest, *, timeout: float) -> Completion:  # noqa: ASYNC109
        self.asked += 1
        answer: Completion = await self._waiting.offer(lambda: Completion(text=POLITE))
        return answer

    async def aclose(self) -> None:
        """Nothing is open."""


class Place:
    """A worker between a topic of two jobs and a broker that takes one record at a time."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.waiting = Waiting()
        self.judged: list[str] = []
        self.committed = 0
        self.model = Model(self.waiting)
        self._owned = {PLACE}
        consumer = SimpleNamespace(
            assignment=lambda: self._owned, commit=self._commit, paused=set, pause=_nothing, resume=_nothing
        )
        patch.setattr(kafka, "consumer", lambda *_, **__: consumer)
        patch.setattr(kafka, "producer", lambda *_, **__: SimpleNamespace(send_and_wait=self._send))
        judge = JobJudge(SETTINGS.judge, self.model, rubrics={"politeness": Politeness()}, prompt=prompt)
        meters = Meters(METERS, version="test", process="judge")
        self.worker = Worker(SETTINGS, meters, Health(time.monotonic), judge)

    async def _send(self, topic: str, value: bytes, **_: Any) -> None:
        await self.waiting.offer(lambda: self.judged.append(decode_judgement(value).job_id))

    async def _commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.committed = offsets[PLACE]

    def deliver(self) -> None:
        """Poll: all records from the committed offset on."""
        for offset in range(self.committed, len(JOBS)):
            record = SimpleNamespace(
                topic=PLACE.topic, partition=0, offset=offset, key=None, value=msgspec.json.encode(JOBS[offset])
            )
            self.worker._take(record, self.worker._queue.claim(PLACE, offset, 1_000))
        self.worker._start()

    async def commit(self) -> None:
        await self.worker._commit(self.worker._queue.committable({PLACE}))

    async def rebalance(self) -> None:
        """Lose the partition, which commits, and get it back."""
        await self.worker.on_partitions_revoked([PLACE])
        await self.worker.on_partitions_assigned([PLACE])
        self.deliver()

    async def settle(self) -> int:
        for _ in range(TURNS):
            await asyncio.sleep(0)
        assert not self.worker._failed.done()
        assert {JOBS[offset].job_id for offset in range(self.committed)} <= set(self.judged), "committed too far"
        return len(self.waiting.pending)

    async def kill(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


def _nothing(*_: Any) -> None:
    """Accept any partitions."""


async def test_j3_a_rebalance_at_any_moment_neither_asks_twice_nor_commits_early(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def life(choose: Choose) -> None:
        place = Place(monkeypatch)
        place.deliver()
        others = [place.rebalance, place.rebalance, place.commit]
        while (pending := await place.settle()) or others:
            # Two rebalances are alike, so only the first of what is left is offered.
            choice = choose(pending + bool(others))
            if choice < pending:
                place.waiting.answer(choice)
            else:
                await others.pop(0)()
        await place.commit()
        assert place.committed == len(JOBS)
        assert place.model.asked == len(JOBS)
        assert sorted(place.judged) == ["first", "second"]
        await place.kill()

    assert await explore(life) > 50


async def test_j3_a_kill_at_any_step_brings_the_job_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def life(choose: Choose) -> None:
        place = Place(monkeypatch)
        place.deliver()
        while pending := await place.settle():
            choice = choose(pending + 1)
            if choice == pending:
                break
            place.waiting.answer(choice)
            await place.settle()
            await place.commit()
        await place.kill()
        again = Place(monkeypatch)
        again.committed, again.judged = place.committed, place.judged
        again.deliver()
        while await again.settle():
            again.waiting.answer(0)
        await again.commit()
        assert set(again.judged) == {"first", "second"}
        assert again.committed == len(JOBS) or not again.worker._queue.committable({PLACE})
        await again.kill()

    assert await explore(life) > 10
