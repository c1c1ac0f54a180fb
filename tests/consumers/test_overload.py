"""More than fits: what stays open is bounded by the log (A2), and one busy partition holds up no other."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from itertools import islice
from pathlib import Path

from monitor.events import encode
from tests.consumers.assemble_place import PARTITIONS, AssemblePlace
from tests.consumers.broker_io import until
from tests.consumers.test_assemble_input import end, home, key_of, turn
from tests.services.kafka import KafkaBroker

PINNED = 1_000_000
ROUNDS, PADDING = 100, b"x" * 800


def padded(name: str, number: int) -> bytes:
    return encode(turn(name, number)).replace(b"hello", PADDING)


def names(partition: int, count: int) -> list[str]:
    return list(islice((name for name in map("s{}".format, itertools.count()) if home(name) == partition), count))


async def test_a2_sessions_that_never_end_hold_no_more_of_the_log_than_is_allowed(
    kafka: KafkaBroker, topic_prefix: str, tmp_path: Path
) -> None:
    place = AssemblePlace(kafka, topic_prefix, tmp_path, gap_s=60.0, max_pinned_bytes=PINNED)
    await place.create()
    endless = names(0, 40)
    events = [(key_of(name), padded(name, number), 0) for number in range(ROUNDS) for name in endless]
    await place.produce(events)
    size = len(events[0][1])
    assert len(events) * size > 3 * PINNED
    async with place.running() as running:
        await until(lambda: running.value("events_total", event_type="turn") == len(events))
        assert running.value("sessions_closed_total", reason="pinned") >= 2 * len(endless)
        # What a restart has to read again, and so what is in memory, is within the bound.
        await until(lambda: pinned_is_committed(place, len(events) - PINNED // size))
        await place.send(end(name) for name in endless)
        await until(lambda: running.value("open_sessions") == 0)
    out = Counter(each.turn_id for view in await place.views() for each in view.turns)
    assert out == Counter(f"{name}-{number}" for name in endless for number in range(ROUNDS))


async def pinned_is_committed(place: AssemblePlace, offset: int) -> bool:
    commits = await place.commits()
    return 0 in commits and commits[0][0] >= offset


async def test_a_hot_partition_holds_up_no_other_and_its_lag_is_seen(
    kafka: KafkaBroker, topic_prefix: str, tmp_path: Path
) -> None:
    place = AssemblePlace(kafka, topic_prefix, tmp_path)
    await place.create()
    hot = names(0, 3_000)
    await place.produce((key_of(name), padded(name, number), 0) for name in hot for number in range(4))
    later = time.time() + 30  # in the log's own time, so that no tick has to come
    calm = [name for partition in range(1, PARTITIONS) for name in names(partition, 3)]
    await place.send(turn(name, 0) for name in calm)
    await place.send(turn(name, 1, ts=later) for name in calm)
    topic = place.settings.topics.events
    highest, read = 0.0, []
    async with place.running() as running:
        while (turns := running.value("events_total", event_type="turn")) < 4 * len(hot) + 2 * len(calm):
            highest = max(highest, running.value("lag_seconds", topic=topic))
            if running.value("sessions_closed_total", reason="inactivity") >= len(calm):
                read.append(turns)
            await asyncio.sleep(0.01)
        await until(lambda: running.value("lag_seconds", topic=topic) == 0)
    assert highest > 0
    assert read[0] < 4 * len(hot)
