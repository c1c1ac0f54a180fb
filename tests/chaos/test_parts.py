"""The parts of the harness: load with a known truth, plans that a seed repeats, a proxy that fails on demand."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import islice

import msgspec
import pytest

from consumers.kafka import partition_for
from monitor.errors import InvalidEvent
from monitor.events import EventDecoder
from tests.chaos.check import Report
from tests.chaos.faults import FAULTS, STORES
from tests.chaos.load import Load, Truth
from tests.chaos.network import Proxy
from tests.chaos.plan import plan_round
from tests.chaos.results import Result, table
from tests.services.ports import Port

PARTITIONS = 4
PARCELS = list(Load(3, "r0", 30.0, PARTITIONS).parcels(1_000_000.0))


def test_the_same_seed_gives_the_same_load() -> None:
    same, other = (Load(seed, "r0", 30.0, PARTITIONS).parcels(1_000_000.0) for seed in (3, 4))
    assert list(islice(same, 300)) == PARCELS[:300]
    assert list(islice(other, 300)) != PARCELS[:300]


def test_load_is_as_untidy_as_promised() -> None:
    good = [parcel for parcel in PARCELS if parcel.event_id is not None]
    tenants = Counter(session_id for _, session_id in {parcel.session for parcel in good})
    assert max(tenants.values()) > 1, "equal session ids under several tenants"
    assert max(Counter((parcel.session, parcel.event_id) for parcel in good).values()) > 1, "duplicates"
    wrong = [p for p in good if p.partition not in {None, partition_for(p.key, PARTITIONS)}]
    assert wrong, "misrouted keys"
    times = [msgspec.json.decode(parcel.value)["ts"] for parcel in good]
    assert times != sorted(times), "disorder"
    kinds = {msgspec.json.decode(parcel.value)["type"] for parcel in good}
    assert kinds >= {"turn", "escalation", "feedback", "session_end"}


def test_only_garbage_can_not_be_decoded_and_truth_leaves_it_out() -> None:
    decoder, truth = EventDecoder(), Truth()
    for parcel in PARCELS:
        truth.note(parcel)
        if parcel.event_id is None:
            with pytest.raises(InvalidEvent):
                decoder.decode(parcel.value)
        else:
            decoder.decode(parcel.value)
    assert truth.records == len(PARCELS)
    sent = {(parcel.session, parcel.event_id) for parcel in PARCELS if parcel.event_id is not None}
    assert sum(map(len, truth.sent.values())) == len(sent) < len(PARCELS)


@pytest.mark.parametrize("store", STORES)
def test_a_campaign_draws_every_fault_of_its_store_and_can_be_repeated(store: str) -> None:
    plans = [plan_round(1, number, store) for number in range(200)]
    assert plans == [plan_round(1, number, store) for number in range(200)]
    assert len({plan.seed for plan in plans}) == 200
    drawn = Counter(name for plan in plans for name in plan.faults)
    assert drawn.keys() == {name for name, fault in FAULTS.items() if store in fault.stores}
    assert 40 < sum(len(plan.faults) > 1 for plan in plans) < 100
    assert all(len(set(plan.faults)) == len(plan.faults) for plan in plans)


def test_only_some_faults() -> None:
    plans = [plan_round(1, number, "sqlite", ("kill", "stop")) for number in range(20)]
    assert {name for plan in plans for name in plan.faults} == {"kill", "stop"}


def result(fault: str, *, lost: int = 0, truncated: int = 0, differing: int = 0, doubled: int = 0) -> Result:
    return Result(
        number=0,
        seed=0,
        faults=[fault],
        lane=0,
        events=1_000,
        sessions=10,
        jobs=5,
        copies=3,
        superseded=0,
        report=Report(lost=lost, truncated=truncated, differing=differing, doubled=doubled),
        recovery_s=2.0,
        took_s=9.0,
        exits=[],
    )


def test_the_table_adds_up() -> None:
    text = table([result("kill", lost=1, truncated=2), result("kill", doubled=4), result("stop", differing=8)])
    rows = {line.split("|")[1].strip(): line.split("|")[2:-1] for line in text.splitlines()}
    assert [cell.strip() for cell in rows["kill"]] == ["2", "2,000", "20", "3", "0", "4", "6", "2.0 s", "2.0 s"]
    assert [cell.strip() for cell in rows["all"]][:6] == ["3", "3,000", "30", "3", "8", "4"]


def test_a_report_with_a_finding_is_not_clean() -> None:
    report = Report()
    assert report.clean
    report.add("lost", "sessions", [])
    assert report.clean
    report.add("lost", "sessions", [("acme", "s1", "e1")])
    assert (report.clean, report.findings) == (False, ["lost: 1 sessions: acme/s1/e1"])


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(100):
        writer.write(chunk)
    writer.close()


async def ask(connection: tuple[asyncio.StreamReader, asyncio.StreamWriter], word: bytes) -> bytes:
    reader, writer = connection
    writer.write(word)
    return await reader.readexactly(len(word))


async def test_the_proxy_lets_through_holds_back_and_refuses() -> None:
    target, front = Port(), Port()
    server = await asyncio.start_server(echo, "127.0.0.1", target.number)
    proxy = Proxy(front.number, target.number)
    await proxy.start()
    old = await asyncio.open_connection("127.0.0.1", front.number)
    assert await ask(old, b"one") == b"one"

    await proxy.become("silent")
    answer = asyncio.create_task(ask(old, b"two"))
    fresh = await asyncio.open_connection("127.0.0.1", front.number)
    other = asyncio.create_task(ask(fresh, b"three"))
    await asyncio.wait({answer, other}, timeout=0.3)
    assert not answer.done()
    assert not other.done()
    await proxy.become("open")
    assert (await answer, await other) == (b"two", b"three")

    await proxy.become("refusing")
    assert await old[0].read(10) == b""
    with pytest.raises(OSError, match="Connect call failed"):
        await asyncio.open_connection("127.0.0.1", front.number)
    await proxy.become("open")
    assert await ask(await asyncio.open_connection("127.0.0.1", front.number), b"four") == b"four"
    await proxy.stop()
    server.close()
