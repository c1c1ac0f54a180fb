"""`assemble` on a real broker: A1 to A10 under kills, and bad input."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from monitor.events import SessionEnd, SessionEvent, Turn
from monitor.session import SessionRecord, decode_content
from tests.consumers.assemble_place import AssemblePlace
from tests.consumers.broker_io import until
from tests.services.kafka import KafkaBroker


def conversation(number: int, start: float, turns: int = 6) -> list[SessionEvent]:
    session_id, tenant = f"s{number // 2}", f"t{number % 2}"  # two tenants with equal session ids
    events: list[SessionEvent] = [
        Turn(
            event_id=f"{number}-{index}",
            session_id=session_id,
            tenant=tenant,
            ts=start + index * 0.05,
            turn_id=f"{number}-{index}",
            turn_index=index,
            role="user" if index % 2 == 0 else "assistant",
            text=f"turn {index} of {number}",
        )
        for index in range(turns)
    ]
    end = SessionEnd(event_id=f"{number}-end", session_id=session_id, tenant=tenant, ts=start + turns * 0.05)
    return [*events, end] if number % 3 else events


def traffic(sessions: int, seconds: float, seed: int) -> Iterator[SessionEvent]:
    """Overlapping sessions with 1 % duplicates and disorder, in the order in which they are sent."""
    rng = random.Random(seed)
    base = time.time()
    sends: list[tuple[float, int, SessionEvent]] = []
    for number in range(sessions):
        start = number / sessions * seconds
        for event in conversation(number, base + start):
            at = event.ts - base + rng.choice([0, 0, 0, 0.1, 0.3])
            sends.append((at, len(sends), event))
            if rng.random() < 0.01:
                sends.append((at + rng.random(), len(sends), event))
    for _, _, event in sorted(sends, key=lambda item: item[:2]):
        yield event


async def check_exact(place: AssemblePlace, sessions: int) -> int:
    """Every session once in effect, whole, all copies byte-equal; gives the number of surplus copies."""
    copies: dict[tuple[str, str, str], list[bytes]] = {}
    turns: dict[tuple[str, str], list[list[str]]] = {}
    for record in await place.finished():
        if isinstance(record, SessionRecord):
            content = decode_content(record.content)
            key = (content.tenant, content.session_id, content.segment)
            copies.setdefault(key, []).append(bytes(record.content) + repr(record.span).encode())
    for view in await place.views():
        found = turns.setdefault((view.tenant, view.session_id), [])
        ids = [turn.turn_id for turn in view.turns]
        if ids not in found:
            found.append(ids)
    assert [key for key, values in copies.items() if len(set(values)) > 1] == [], "copies differ"
    expected = {
        (f"t{number % 2}", f"s{number // 2}"): [[f"{number}-{index}" for index in range(6)]]
        for number in range(sessions)
    }
    assert turns == expected
    return sum(len(values) - 1 for values in copies.values())


async def closed(place: AssemblePlace) -> int:
    return len({(view.tenant, view.session_id) for view in await place.views()})


async def test_a5_kill_rejoin_stop_and_continue_leave_sessions_exact(
    kafka: KafkaBroker, topic_prefix: str, tmp_path: Path
) -> None:
    import asyncio

    # A sender that hiccups on a busy machine is silence to the log; it must not outlast the grace time.
    place = AssemblePlace(kafka, topic_prefix, tmp_path, grace_s=3.0, gap_s=6.0)
    await place.create()
    sending = asyncio.create_task(place.send(traffic(1_500, 25.0, seed=1), rate=440))
    with closing(place.worker("one")) as one, closing(place.worker("two")) as two:
        await asyncio.sleep(9)
        one.kill()
        await asyncio.sleep(1)
        with closing(place.worker("three")) as three:
            await asyncio.sleep(4)
            two.signal(signal.SIGSTOP)
            await asyncio.sleep(9)
            two.signal(signal.SIGCONT)
            await sending
            assert await asyncio.to_thread(three.stop) == 0
            await until(lambda: closed_all(place, 1_500), 60, 1.0)
            assert two.alive
            assert await asyncio.to_thread(two.stop) == 0
    await check_exact(place, 1_500)


async def closed_all(place: AssemblePlace, sessions: int) -> bool:
    return await closed(place) == sessions
