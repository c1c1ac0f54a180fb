"""R1: the recorder killed before and after each of its effects: transaction, dead letter, commit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from aiokafka import TopicPartition

from consumers import record as record_process
from consumers.health import Health
from consumers.record import METERS, Recorder, rubric_counts
from monitor.config import Settings
from monitor.metrics import Meters
from monitor.rubrics import RUBRICS
from monitor.store import Record, Store
from tests.consumers.record_place import content, direct
from tests.unit.store.builders import addendum, decision, judgement, policy, unscored

SETTINGS = Settings(store={"batch": 4})  # type: ignore[arg-type]
DECISIONS, JUDGEMENTS = SETTINGS.topics.decisions, SETTINGS.topics.judgements
GOOD: list[Record] = [policy(), decision("a"), unscored("a"), decision("b"), addendum("b"), judgement("b"),
                      judgement("a"), decision("c"), decision("c", stratum="other")]  # fmt: skip
BAD: list[bytes | None] = [b"not json", None, msgspec.json.encode(decision("light", weight16=1))]


class Broker:
    """Two topics of one partition each, what was committed, and the dead letters by key."""

    def __init__(self) -> None:
        self.log: dict[TopicPartition, list[bytes | None]] = {
            TopicPartition(topic, 0): [
                msgspec.json.encode(item) for item in GOOD if (type(item).__name__ == "Judgement") == judged
            ]
            for topic, judged in ((DECISIONS, False), (JUDGEMENTS, True))
        }
        self.log[TopicPartition(DECISIONS, 0)][2:2] = BAD
        self.committed = dict.fromkeys(self.log, 0)
        self.letters: dict[bytes, bytes] = {}


class Life:
    """One life of a recorder. It ends at its effect number `at`, before that took place or just `after`."""

    def __init__(self, broker: Broker, at: int | None, *, after: bool) -> None:
        self.broker = broker
        self._at = at
        self._after = after
        self._effects = 0
        self._position = dict(broker.committed)
        self.dead = asyncio.Event()

    def take_place(self, apply: Callable[[], Any]) -> asyncio.Future[Any]:
        """Give what an effect gives, or never anything when this life is over."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        last = self._effects == self._at
        self._effects += 1
        if self.dead.is_set() or (last and not self._after):
            self.dead.set()
            return future
        result = apply()
        if last:
            self.dead.set()
        else:
            future.set_result(result)
        return future

    def in_thread(self, work: Callable[[], Any], *, name: str) -> asyncio.Future[Any]:
        return self.take_place(work)

    async def send_and_wait(self, topic: str, value: bytes, *, key: bytes, headers: Any) -> None:
        await self.take_place(lambda: self.broker.letters.__setitem__(key, value))

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        await self.take_place(lambda: self.broker.committed.update(offsets))

    async def getmany(self, *, timeout_ms: int, max_records: int) -> dict[TopicPartition, list[Any]]:
        await asyncio.sleep(0)
        for place, values in self.broker.log.items():
            start = self._position[place]
            if start < len(values):
                end = self._position[place] = min(start + max_records, len(values))
                return {place: [_record(place, offset, values[offset]) for offset in range(start, end)]}
        await asyncio.sleep(timeout_ms / 100_000)
        return {}

    def assignment(self) -> set[TopicPartition]:
        return set(self.broker.log)

    def paused(self) -> set[TopicPartition]:
        return set()

    def pause(self, *_: Any) -> None:
        """Pausing changes nothing here: each fetch is asked for."""

    resume = pause

    def highwater(self, place: TopicPartition) -> int:
        return len(self.broker.log[place])


def _record(place: TopicPartition, offset: int, value: bytes | None) -> Any:
    return SimpleNamespace(
        topic=place.topic, partition=0, offset=offset, key=b"k", value=value, timestamp=1_700_000_000_000
    )


async def live(patch: pytest.MonkeyPatch, life: Life, file: Path) -> bool:
    """Record until all is committed; False when the life ended before that."""
    patch.setattr(record_process, "in_thread", life.in_thread)
    opening = partial(Store.open, f"sqlite:///{file}", rubrics=rubric_counts(RUBRICS))
    meters = Meters(METERS, version="test", process="record")
    health = Health(time.monotonic)
    recorder = Recorder(SETTINGS, meters, open_store=opening, reader=life, writer=life, health=health)
    task = asyncio.create_task(recorder.run(asyncio.Event()))
    broker = life.broker
    async with asyncio.timeout(30):
        while not life.dead.is_set() and broker.committed != {
            place: len(log) for place, log in broker.log.items()
        }:
            assert not task.done(), task.exception()
            await asyncio.sleep(0.001)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return not life.dead.is_set()


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_r1_a_kill_at_any_effect_counts_nothing_twice_and_loses_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, after: bool
) -> None:
    wanted = direct(tmp_path / "direct.sqlite", GOOD)
    lives = 0
    for at in range(100):
        broker, file = Broker(), tmp_path / f"{at}.sqlite"
        whole = await live(monkeypatch, Life(broker, at, after=after), file)
        if file.exists():
            nothing_is_committed_that_is_not_there(broker, file)
        if not whole:
            assert await live(monkeypatch, Life(broker, None, after=False), file)
        assert content(file) == wanted
        places = [f"{DECISIONS}/0/{offset}".encode() for offset in (2, 3, 4)]
        assert broker.letters == {key: value or b"" for key, value in zip(places, BAD, strict=True)}
        lives += 1
        if whole:
            break
    assert lives > 10  # opening, transactions, three letters, commits


def nothing_is_committed_that_is_not_there(broker: Broker, file: Path) -> None:
    _, rows = content(file)
    assert len(rows["judgements"]) >= broker.committed[TopicPartition(JUDGEMENTS, 0)]
    passed = broker.committed[TopicPartition(DECISIONS, 0)]
    for offset, value in enumerate(broker.log[TopicPartition(DECISIONS, 0)][:passed]):
        if value in BAD:
            assert f"{DECISIONS}/0/{offset}".encode() in broker.letters
        elif value and b'"type":"decision"' in value:
            assert msgspec.json.decode(value)["session_id"] in {row[0] for row in rows["decisions"]}
