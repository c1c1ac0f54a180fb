"""The sampler on a real Kafka (S1 to S4, J5): what goes in, what must come out, and what a kill may do."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec

from consumers.dead_letters import MAX_BYTES
from monitor.decision import Decision, PolicyLoaded, decode_decision, decode_job
from monitor.metrics import Meters
from tests.consumers.broker_io import until
from tests.consumers.sample_place import (
    ALL,
    ASSISTANTS,
    PARTITIONS,
    Place,
    addendum,
    encoded,
    expected,
    session,
    values_of,
)
from tests.services.kafka import KafkaBroker


async def test_each_session_gives_its_decision_and_jobs(kafka: KafkaBroker, topic_prefix: str) -> None:
    place = Place(kafka, topic_prefix)
    await place.create()
    records = [session(number) for number in range(3_000)]
    late = [addendum(number) for number in range(20)]
    await place.write(encoded(records) + [(item.session_id, msgspec.json.encode(item)) for item in late])
    started = time.perf_counter()
    async with place.sampler() as (meters, _):

        def counted() -> float:
            return sum(
                sample.value
                for family in meters.registry.collect()
                for sample in family.samples
                if sample.name == "backslide_decisions_total"
            )

        await until(lambda: counted() == 3_000)
        seconds = time.perf_counter() - started
        await until(lambda: place.has_committed(3_020))
        await until(lambda: meters.registry.get_sample_value(
            "backslide_lag_seconds", {"topic": place.settings.topics.sessions}) == 0.0)  # fmt: skip
    decisions, jobs = expected(records)
    got = values_of(await place.read("decisions"))
    policies = [value for value in got if isinstance(decode_decision(value), PolicyLoaded)]
    assert [got[value] for value in policies] == [PARTITIONS]  # one for each reader
    assert got == Counter([*decisions, *policies * PARTITIONS, *(msgspec.json.encode(item) for item in late)])
    urgent, routine = await place.read("jobs_urgent"), await place.read("jobs_routine")
    assert values_of([*urgent, *routine]) == Counter(jobs)
    assert len(urgent) == 60 * 4  # escalated: all of them, by each rubric
    for priority, batch in (("urgent", urgent), ("routine", routine)):
        for record in batch:
            job = decode_job(record.value)
            assert job.priority == priority
            assert record.key == job.job_id.encode()
    for record in await place.read("decisions"):
        item = decode_decision(record.value)
        if isinstance(item, Decision):
            assert record.key == item.session_id.encode()  # as it came
    assert await place.read("dead_letters") == []
    print(f"3,000 sessions in {seconds:.1f} s, start included")


async def test_a_kill_loses_nothing_and_doubles_are_identical(
    kafka: KafkaBroker, topic_prefix: str, tmp_path: Path
) -> None:
    """S3: SIGKILL three times and SIGTERM once in the middle of a backlog; a second process joins."""
    place = Place(kafka, topic_prefix)
    await place.create()
    records = [session(number) for number in range(6_000)]
    decisions, jobs = expected(records)
    await place.write(encoded(records[:3_000]))

    async def progressed(count: int) -> bool:
        return len({item.session_id for item in await place.decisions()}) >= count

    children = [place.process(tmp_path, "first")]
    for name, after, kill in [
        ("second", 300, True),
        ("third", 1_000, True),
        ("fourth", 1_800, False),
        ("fifth", 2_400, True),
    ]:
        await until(lambda after=after: progressed(after))  # type: ignore[misc]
        await asyncio.to_thread(children[-1].kill if kill else children[-1].stop)
        children.append(place.process(tmp_path, name))
    children.append(place.process(tmp_path, "beside"))
    await place.write(encoded(records[3_000:]))
    await until(lambda: progressed(6_000))
    await until(lambda: place.has_committed(6_000))
    for child in children[-2:]:
        await asyncio.to_thread(child.stop)

    got = values_of(await place.read("decisions"))
    loaded = [value for value in got if isinstance(decode_decision(value), PolicyLoaded)]
    assert len(loaded) == 1  # several copies, all alike
    doubles = sum(got.values()) - got[loaded[0]] - 6_000
    del got[loaded[0]]
    assert set(got) == decisions  # nothing lost, nothing that differs
    assert set(values_of(await place.read("jobs_urgent", "jobs_routine"))) == jobs
    print(f"{doubles} identical doubles of 6,000")
    assert doubles < 1_500


async def test_what_is_no_session_becomes_a_dead_letter(kafka: KafkaBroker, topic_prefix: str) -> None:
    place = Place(kafka, topic_prefix)
    await place.create()
    good = session(1)
    broken: list[tuple[str, bytes | None]] = [
        ("a", b"not json at all"),
        ("b", b'{"type":"mystery"}'),
        ("c", b"\xff\xfe"),
        (
            "d",
            b'{"type":"session","content":{"tenant":"t"},"span":{"partition":0,"first":0,"last":1,"closed_at":1}}',
        ),
        ("e", b"[" * 100_000),
        ("f", None),
    ]
    await place.write([*broken, *encoded([good])])
    async with place.sampler() as (meters, _):
        await until(lambda: place.has_committed(len(broken) + 1))
        assert meters.registry.get_sample_value("backslide_dead_letters_total", {"stage": "sample"}) == len(broken)
    letters = await place.read("dead_letters")
    assert values_of(letters) == Counter((value or b"")[:MAX_BYTES] for _, value in broken)
    sources = {(record.partition, record.offset): record.value for record in await place.read("sessions")}
    for letter in letters:
        headers = {name: value.decode() for name, value in letter.headers}
        assert {"error", "reason", "topic", "partition", "offset", "stage"} <= set(headers)
        assert headers["topic"] == place.settings.topics.sessions
        assert headers["stage"] == "sample"
        position = (int(headers["partition"]), int(headers["offset"]))
        assert (sources[position] or b"")[:MAX_BYTES] == letter.value
        assert letter.key.decode() == f"{headers['topic']}/{position[0]}/{position[1]}"
    assert [item.session_id for item in await place.decisions()] == ["s1"]


async def test_a_new_policy_is_published_and_a_broken_one_refused(
    kafka: KafkaBroker, topic_prefix: str, tmp_path: Path
) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(ALL)
    place = Place(kafka, topic_prefix, policy=str(path))
    await place.create()

    def reloads(meters: Meters, result: str) -> float | None:
        return meters.registry.get_sample_value("backslide_policy_reloads_total", {"result": result})

    async with place.sampler() as (meters, _):
        await place.write(encoded([session(1)]))
        await until(lambda: place.has_committed(1))

        path.write_text(ALL.replace("rate: 1", "rate: 7"))
        await until(lambda: reloads(meters, "refused") == 1)
        await place.write(encoded([session(2)]))
        await until(lambda: place.has_committed(2))

        path.write_text(ALL.replace("base", "fresh"))
        await until(lambda: reloads(meters, "loaded") == 1)
        await place.write(encoded([session(3)]))
        await until(lambda: place.has_committed(3))
    by_session = {item.session_id: item for item in await place.decisions()}
    assert {name: item.stratum for name, item in by_session.items()} == {"s1": "base", "s2": "base", "s3": "fresh"}
    found = [decode_decision(record.value) for record in await place.read("decisions")]
    published = {item.policy: item for item in found if isinstance(item, PolicyLoaded)}
    assert set(published) == {by_session["s1"].policy, by_session["s3"].policy}
    assert published[by_session["s3"].policy].strata[0].name == "fresh"
    assert published[by_session["s3"].policy].assistants == ASSISTANTS


async def test_what_the_broker_finds_too_large_goes_on_as_a_stub(
    kafka: KafkaBroker, topic_prefix: str, tmp_path: Path
) -> None:
    """J5: a large job becomes a decision in the stratum `error`, a large decision goes without its transcript."""
    path = tmp_path / "policy.yaml"
    path.write_text(ALL)
    place = Place(kafka, topic_prefix, policy=str(path))
    place.values["topics"]["max_message_bytes"] = 400_000  # the client's own limit
    place.values["assembly"] = {"max_bytes": 50_000, "max_event_bytes": 50_000}
    await place.create(jobs_routine={"max.message.bytes": "200000"}, decisions={"max.message.bytes": "100000"})
    sizes = {1: 10, 2: 25_000, 3: 50_000, 4: 90_000}  # characters a turn, six turns
    await place.write(encoded(session(number, "x" * size) for number, size in sizes.items()))
    async with place.sampler():
        await until(lambda: place.has_committed(4))
    found = {item.session_id: item for item in await place.decisions()}
    assert {name: (item.stratum, item.selected, item.content is not None) for name, item in found.items()} == {
        "s1": ("base", True, True),
        "s2": ("base", True, False),  # 150 kB: a job, and a decision without the transcript
        "s3": ("error", False, False),  # 300 kB: refused by the broker
        "s4": ("error", False, False),  # 540 kB: refused by the client
    }
    jobs = [decode_job(record.value) for record in await place.read("jobs_routine")]
    assert sorted(job.session_id for job in jobs) == ["s1", "s2"]


async def test_a_failed_send_ends_the_process_and_commits_nothing_past_it(
    kafka: KafkaBroker, topic_prefix: str, tmp_path: Path
) -> None:
    """S3: urgent jobs are refused for good here, so no offset may pass an escalated session."""
    place = Place(kafka, topic_prefix)
    await place.create(jobs_urgent={"message.timestamp.before.max.ms": "0"})
    await place.write(encoded(session(number) for number in range(50, 500)))
    child = place.process(tmp_path, "fails")
    await until(lambda: not child.alive)
    assert "SamplerFailed" in child.tail() or "the sampler failed" in child.tail()
    escalated = {
        (record.partition, record.offset)
        for record in await place.read("sessions")
        if int(record.key.decode().removeprefix("s")) % 50 == 0
    }
    committed = await place.committed()
    for partition, offset in escalated:
        assert committed.get(partition, 0) <= offset
    assert not any(item.stratum == "escalated" for item in await place.decisions())


async def test_an_outage_of_the_broker_is_waited_out_and_a_stop_in_it_is_bounded(
    fresh_kafka: Callable[..., KafkaBroker], topic_prefix: str, tmp_path: Path
) -> None:
    broker = fresh_kafka(heap="256m")
    place = Place(broker, topic_prefix)
    await place.create()
    records = [session(number) for number in range(2_000)]
    await place.write(encoded(records))

    async def progressed(count: int) -> bool:
        return len(await place.decisions()) >= count

    child = place.process(tmp_path, "waits")
    await until(lambda: progressed(200))
    await asyncio.to_thread(broker.kill)
    await asyncio.sleep(5.0)
    await asyncio.to_thread(broker.start)
    await until(lambda: progressed(2_000))
    assert child.alive  # the same process went on

    await place.write(encoded([session(2_001)]))
    await until(lambda: place.has_committed(2_001))
    await asyncio.to_thread(broker.kill)
    started = time.monotonic()
    await asyncio.to_thread(child.stop, 30.0)
    assert time.monotonic() - started < 15.0
    await asyncio.to_thread(broker.start)
    decisions, jobs = expected([*records, session(2_001)])
    got = [record.value for record in await place.read("decisions")]
    assert {value for value in got if isinstance(decode_decision(value), Decision)} == decisions
    assert set(values_of(await place.read("jobs_urgent", "jobs_routine"))) == jobs
    lines = len(child.log.read_text().splitlines())
    assert lines < 150, "an outage of seconds must not flood the log"
    print(f"{lines} lines of log over two outages")
