"""The judge on a real Kafka (J1, J3, J5; DESIGN section 7)."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from aiokafka import TopicPartition

from consumers.dead_letters import MAX_BYTES
from consumers.health import Health
from consumers.judge import METERS, serve
from consumers.kafka import event_key
from consumers.screening import RESULTS
from monitor.decision import repeat_id
from monitor.errors import JudgeFatal, JudgeUnavailable
from monitor.judgement import Skipped, Stage, Unscored, Verdict, decode_judgement
from monitor.judging.prices import NUSD
from monitor.judging.screen import audited
from monitor.metrics import Meters
from tests.consumers.judge_place import Place, Scripted, job, until
from tests.services import messages_api as api
from tests.services.kafka import KafkaBroker


async def test_every_job_is_judged_and_committed(kafka: KafkaBroker, topic_prefix: str) -> None:
    place = Place(kafka, topic_prefix, **{"topics.job_partitions": 3, "judge.concurrency": 16})
    await place.create()
    jobs = {f"s{number}": job(f"s{number}", urgent=number % 10 == 0) for number in range(300)}
    await place.write(jobs.values())
    meters = Meters(METERS, version="test", process="judge")
    health, stop = Health(time.monotonic), asyncio.Event()
    began = time.monotonic()
    task = asyncio.create_task(serve(place.settings, meters, stop, health))
    value = meters.registry.get_sample_value
    await until(lambda: value("backslide_judgements_total", {"rubric": "correction", "kind": "verdict"}) == 300)
    print(f"300 jobs in {time.monotonic() - began:.1f} s, start included")
    await until(lambda: place.has_committed(300))
    for topic in (place.topic("jobs_urgent"), place.topic("jobs_routine")):
        await until(lambda topic=topic: value("backslide_lag_seconds", {"topic": topic}) == 0)  # type: ignore[misc]
    assert health.is_ready == (True, "")
    assert health.is_alive[0]
    stop.set()
    await asyncio.wait_for(task, 15)
    assert not health.is_ready[0]
    assert await place.judged() == dict.fromkeys(jobs, 1)
    for record in await place.read("judgements"):
        item = decode_judgement(record.value)
        assert record.key == event_key("default", item.session_id)
        source = jobs[item.session_id]
        assert (item.job_id, item.content_hash) == (source.job_id, source.content_hash)
        assert isinstance(item.result, Verdict)
        assert item.outcomes.measures["reverted"].trials == 1
        assert item.judge == "lexical"
    answered = {"provider": "lexical", "model": "lexical-1", "error_type": "none"}
    assert value("backslide_judge_requests_total", answered) == 300
    assert value("backslide_commits_failed_total") == 0
    assert value("backslide_judge_in_flight") == 0


async def test_slots_are_bounded_and_urgent_jobs_go_first(kafka: KafkaBroker, topic_prefix: str) -> None:
    """J3: 2 in flight, at most 4 offsets past the lowest unfinished, routine partitions wait meanwhile."""
    place = Place(kafka, topic_prefix, **{"judge.concurrency": 2})
    await place.create()
    await place.write(job(f"r{number}") for number in range(20))
    model = Scripted()
    model.held = None
    async with place.worker(model) as running:
        consumer = running.worker._consumer
        routine = TopicPartition(place.topic("jobs_routine"), 0)
        await until(lambda: len(model.started) == 2)
        await until(lambda: routine in consumer.paused())
        assert await consumer.position(routine) == 4
        await place.write(job(f"u{number}", urgent=True) for number in range(4))
        await until(lambda: running.worker._queue.waiting == 6)
        await asyncio.sleep(0.5)  # a few polls, all of them without room
        assert await consumer.position(routine) == 4
        assert running.health.is_alive[0]
        assert running.sample("judge_in_flight") == 2
        model.held = set()
        await until(lambda: place.has_committed(24))
        assert model.peak == 2
    assert model.started[:6] == ["r0", "r1", "u0", "u1", "u2", "u3"]
    assert await place.judged() == dict.fromkeys(model.started, 1)


async def test_the_commit_stops_at_the_lowest_unfinished_job(kafka: KafkaBroker, topic_prefix: str) -> None:
    place = Place(kafka, topic_prefix)
    await place.create()
    await place.write(job(f"s{number}") for number in range(30))
    model = Scripted()
    model.held = {"s2"}
    async with place.worker(model) as running:
        await until(lambda: place.has_committed(2))
        await until(lambda: running.verdicts == 9)
        await asyncio.sleep(1.5)  # longer than a commit interval
        assert await place.committed() == 2
        assert len(model.started) == 10  # s0 to s9: 8 offsets from s2 on
        await until(lambda: (running.sample("lag_seconds", topic=place.topic("jobs_routine")) or 0) > 1)
        model.held = set()
        await until(lambda: place.has_committed(30))
    assert await place.judged() == {f"s{number}": 1 for number in range(30)}


async def test_a_kill_loses_nothing(kafka: KafkaBroker, topic_prefix: str, tmp_path: Path) -> None:
    """Section 7: SIGKILL twice and SIGTERM once in the middle of a backlog, with a second member beside."""
    place = Place(kafka, topic_prefix, **{"topics.job_partitions": 4})
    await place.create()
    names = [f"s{number}" for number in range(400)]
    await place.write(job(name, urgent=at % 7 == 0) for at, name in enumerate(names))

    async def progressed(count: int) -> bool:
        return len(await place.judged()) >= count

    children = [place.process(tmp_path, "first")]
    for name, after, kill in [("second", 60, True), ("third", 140, False), ("fourth", 220, True)]:
        await until(lambda after=after: progressed(after))  # type: ignore[misc]
        await asyncio.to_thread(children[-1].kill if kill else children[-1].stop)
        children.append(place.process(tmp_path, name))
    children.append(place.process(tmp_path, "beside"))
    await until(lambda: place.has_committed(400), 90)
    for child in children[-2:]:
        await asyncio.to_thread(child.stop)
    judged = await place.judged()
    assert set(judged) == set(names)
    doubles = sum(judged.values()) - 400
    print(f"{doubles} judged twice of 400")
    # Each of the five changes of members can bring back 8 offsets a partition at most, on 8 partitions.
    assert doubles <= 5 * 8 * 8
    contents = {(item.session_id, item.content_hash, item.job_id) for item in await place.judgements()}
    assert len(contents) == 400


async def test_a_redelivered_job_attaches_to_the_running_one(kafka: KafkaBroker, topic_prefix: str) -> None:
    """J3: calls outlive a revocation, and what was answered lately isn't asked again."""
    place = Place(kafka, topic_prefix, **{"topics.job_partitions": 2})
    await place.create()
    names = [f"s{number}" for number in range(40)]
    await place.write(job(name) for name in names)
    model = Scripted()
    model.held = None
    async with place.worker(model) as running:
        await until(lambda: model.running == 4)
        consumer = running.worker._consumer
        async with place.intruder():
            await until(lambda: len(consumer.assignment()) == 2)  # of 4
            assert model.running == 4
            assert await place.committed() == 0
        await until(lambda: len(consumer.assignment()) == 4)
        assert model.running == 4
        model.held = set(model.started[:1])
        await until(lambda: running.verdicts >= 8)
        async with place.intruder():
            await until(lambda: len(consumer.assignment()) == 2)
        await until(lambda: len(consumer.assignment()) == 4)
        model.held = set()
        await until(lambda: place.has_committed(40))
        assert running.sample("judge_in_flight") == 0
    assert sorted(model.started) == sorted(names)
    assert await place.judged() == dict.fromkeys(names, 1)


async def test_a_judge_that_refuses_its_key_pauses_the_partitions(kafka: KafkaBroker, topic_prefix: str) -> None:
    """Section 7: nothing is scored, nothing is committed, nothing spins; it goes on when someone acted."""
    place = Place(kafka, topic_prefix)
    await place.create()
    model = Scripted()
    async with place.worker(model) as running:
        await place.write([job("before")])
        await until(lambda: place.has_committed(1))
        model.error = lambda: JudgeFatal("authentication", "the key is not valid")
        await place.write(job(f"s{number}") for number in range(20))
        await until(lambda: not running.health.is_ready[0])
        assert "authentication" in running.health.is_ready[1]
        consumer = running.worker._consumer
        await until(lambda: consumer.paused() == consumer.assignment())
        await asyncio.sleep(2.5)
        assert await place.committed() == 1
        assert await place.judged() == {"before": 1}
        assert consumer.paused() == consumer.assignment()
        # A first round of 4, then one probe after each pause of 0.4 and 0.8 s.
        assert len(model.started) <= 1 + 4 + 6
        assert not running.health.is_ready[0]
        model.error = None
        await until(lambda: place.has_committed(21))
        await until(lambda: running.health.is_ready[0])
    assert await place.judged() == {"before": 1} | {f"s{number}": 1 for number in range(20)}
    assert all(isinstance(item.result, Verdict) for item in await place.judgements())


async def test_an_open_breaker_starts_no_job_and_a_stop_does_not_wait_for_it(
    kafka: KafkaBroker, topic_prefix: str
) -> None:
    place = Place(kafka, topic_prefix, **{"judge.attempt_timeout_s": 5.0})
    await place.create()
    model = Scripted()
    model.error = lambda: JudgeUnavailable("overloaded", "come back later", retry_after=3_600.0)
    async with place.worker(model) as running:
        await place.write(job(f"s{number}") for number in range(20))
        await until(lambda: "overloaded" in running.health.is_ready[1])
        began = time.monotonic()
        running.stop.set()
        await asyncio.wait_for(running.task, 10)
        assert time.monotonic() - began < 5
    assert await place.judged() == {}
    assert await place.committed() == 0


async def test_what_is_too_large_for_the_broker_goes_on_as_a_stub(kafka: KafkaBroker, topic_prefix: str) -> None:
    """J5: refused by the client, then by the broker; never sent again as it was."""
    small = {"topics.max_message_bytes": 65_536, "assembly.max_bytes": 1_000, "assembly.max_event_bytes": 1_000}
    place = Place(kafka, topic_prefix, **{"topics.check": False, **small})
    await place.create(judgements=30_000)
    model = Scripted()
    model.text = lambda text: text + " " * 13_000
    async with place.worker(model):
        await place.write([job("client", corrections=6)])  # 78 kB of raw answers
        await until(lambda: place.has_committed(1))
        await place.write([job("broker", corrections=3)])  # 39 kB
        await until(lambda: place.has_committed(2))
        await place.write([job("fits")])
        await until(lambda: place.has_committed(3))
    found = {item.session_id: item for item in await place.judgements()}
    assert {name: len(item.attempts) for name, item in found.items()} == {"client": 6, "broker": 3, "fits": 1}
    assert len(found["fits"].attempts[0].raw) > 13_000
    for name, events in (("client", 6), ("broker", 3)):
        item = found[name]
        assert all(attempt.raw.startswith("[left out: 1") for attempt in item.attempts)
        assert isinstance(item.result, Verdict)
        assert len(item.result.data["events"]) == events
        assert item.outcomes.measures["reverted"].trials == events
    assert await place.read("dead_letters") == []


async def test_what_can_not_be_judged_becomes_a_dead_letter(kafka: KafkaBroker, topic_prefix: str) -> None:
    place = Place(kafka, topic_prefix)
    await place.create()
    good = job("good")
    unknown = msgspec.json.encode(job("unknown", rubric="manners"))
    twisted = msgspec.json.encode(msgspec.structs.replace(good, content_hash="0" * 32, job_id="other"))
    sent: list[bytes | None] = [
        b"no json", b'{"job_id":1}', b"\xff\xfe", b"[" * 100_000, None, unknown, twisted,
    ]  # fmt: skip
    await place.write_raw("jobs_routine", [(b"k", value) for value in sent])
    await place.write([good, job("muddled")])
    model = Scripted()
    model.text = lambda text: "I'd rather not say." if model.started[-1] == "muddled" else text
    async with place.worker(model) as running:
        await until(lambda: place.has_committed(9))
        assert running.sample("dead_letters_total", stage="judge") == 8
        assert running.sample("judge_repairs_total", rubric="correction") == 1
        assert running.sample("judgements_total", rubric="correction", kind="unscored") == 1
    letters = {}
    for record in await place.read("dead_letters"):
        headers = {name: value.decode() for name, value in record.headers}
        assert headers["stage"] == "judge"
        assert record.key.decode() == f"{place.topic('jobs_routine')}/0/{headers['offset']}"
        letters[int(headers["offset"])] = (headers["reason"], record.value)
    cut = [(value or b"")[:MAX_BYTES] for value in sent]
    reasons = ["undecodable"] * 5 + ["unknown_rubric", "hash_mismatch"]
    assert letters == dict(enumerate(zip(reasons, cut, strict=True))) | {8: ("invalid", b"I'd rather not say.")}
    results = {item.session_id: item.result for item in await place.judgements()}
    assert isinstance(results["good"], Verdict)
    assert isinstance(results["muddled"], Unscored)
    assert results["muddled"].reason == "invalid"


async def test_a_stop_drains_what_is_under_way_and_nothing_else(kafka: KafkaBroker, topic_prefix: str) -> None:
    place = Place(kafka, topic_prefix, **{"judge.drain_s": 2.0})
    await place.create()
    await place.write(job(f"s{number}") for number in range(20))
    model = Scripted()
    model.held = None
    async with place.worker(model) as running:
        await until(lambda: model.running == 4)
        running.stop.set()
        await asyncio.sleep(0.5)
        assert not running.health.is_ready[0]
        model.held = {"s2"}
        began = time.monotonic()
        await asyncio.wait_for(running.task, 10)
        assert 1.0 < time.monotonic() - began < 4.0  # s2 keeps it for the rest of the two seconds
    assert model.started == ["s0", "s1", "s2", "s3"]
    assert await place.judged() == {"s0": 1, "s1": 1, "s3": 1}
    assert await place.committed() == 2
    async with place.worker(model):
        await until(lambda: place.has_committed(20))
    assert set(await place.judged()) == {f"s{number}" for number in range(20)}


async def test_an_outage_of_the_broker_is_waited_out(
    fresh_kafka: Callable[..., KafkaBroker], topic_prefix: str
) -> None:
    broker = fresh_kafka(heap="256m")
    place = Place(broker, topic_prefix, **{"topics.job_partitions": 2})
    await place.create()
    names = [f"s{number}" for number in range(60)]
    await place.write(job(name) for name in names)
    model = Scripted()
    model.delay = 0.2
    async with place.worker(model) as running:
        await until(lambda: running.verdicts >= 8)
        await asyncio.to_thread(broker.kill)
        await asyncio.sleep(5.0)
        await asyncio.to_thread(broker.start)
        await until(lambda: place.has_committed(60))
        assert not running.task.done()
    assert set(await place.judged()) == set(names)
    assert sorted(model.started) == sorted(names)  # what was under way or answered wasn't asked again


async def test_a_failed_send_ends_the_worker_and_commits_nothing_past_it(
    kafka: KafkaBroker, topic_prefix: str
) -> None:
    place = Place(kafka, topic_prefix)
    await place.create()
    model = Scripted()
    await place.write([job("s0")])
    failed = None
    try:
        async with place.worker(model) as running:
            await running.worker._producer.stop()
            await place.write([job("s1")])
            await asyncio.wait({running.task}, timeout=20)
    except Exception as error:  # noqa: BLE001 - whatever it is, it has to come out
        failed = error
    assert failed is not None
    judged = await place.judged()
    assert await place.committed() <= len(judged)
    assert "s1" not in judged


async def test_the_canonical_line_holds_ids_and_no_text(kafka: KafkaBroker, topic_prefix: str) -> None:
    from structlog.testing import capture_logs

    place = Place(kafka, topic_prefix)
    await place.create()
    source = job("s7", urgent=True)
    await place.write([source])
    with capture_logs() as lines:
        async with place.worker(Scripted()):
            await until(lambda: place.has_committed(1))
    (line,) = [line for line in lines if line["event"] == "judged"]
    assert line["job_id"] == source.job_id
    assert (line["session_id"], line["segment"]) == ("s7", "s7-0")
    assert (line["kind"], line["reason"], line["priority"]) == ("verdict", None, "urgent")
    assert (line["attempts"], line["judge"], line["stub"]) == (1, "scripted", False)
    assert "people" not in json.dumps(lines, default=str)


async def test_a_repeated_job_is_judged_twice_and_counted_once(kafka: KafkaBroker, topic_prefix: str) -> None:
    """The second judgement is a run of its own; the job is finished when both are with the broker."""
    place = Place(kafka, topic_prefix, **{"judge.repeat_share": 1.0})
    await place.create()
    await place.write([job("a"), job("b")])
    model = Scripted()
    async with place.worker(model) as running:
        await until(lambda: len(model.started) == 4)
        await until(lambda: place.has_committed(2))

        async def written() -> bool:
            return len(await place.read("judgements")) == 4

        await until(written)
        assert running.verdicts == 2
    items = [decode_judgement(record.value) for record in await place.read("judgements")]
    for name in ("a", "b"):
        runs = {item.run: item.job_id for item in items if item.session_id == name}
        assert runs == {"live": job(name).job_id, "repeat": repeat_id(job(name).job_id)}


async def test_a_screen_is_asked_first_over_the_wire_and_charged_by_its_own_name(
    kafka: KafkaBroker, topic_prefix: str
) -> None:
    """Of 30 sessions in which it finds nothing those that the coin picks are judged in full, and no others."""

    def looks(request: api.Received) -> api.Reply:
        urgent = "the name is look" in json.dumps(request.body["messages"])
        usage = {"input_tokens": 900, "output_tokens": 20}
        answer = {"quote": "I said 5 people" if urgent else "", "look": urgent}
        return api.message(json.dumps(answer), usage=usage)

    with api.MessagesApi(otherwise=looks) as server:
        screen = {
            "judge.screen.model": "anthropic:claude-haiku-5-5",
            "judge.screen.api_key": api.API_KEY,
            "judge.screen.base_url": server.base_url,
            "judge.screen.audit_share": 0.25,
            "judge.repeat_share": 1.0,
        }
        place = Place(kafka, topic_prefix, **screen)
        await place.create()
        jobs = [job("look", urgent=True), *(job(f"s{number}") for number in range(30))]
        drawn = {item.session_id for item in jobs[1:] if audited(item.job_id, 4)}
        await place.write(jobs)
        meters = Meters(METERS, version="test", process="judge")
        stop = asyncio.Event()
        value = meters.registry.get_sample_value
        task = asyncio.create_task(serve(place.settings, meters, stop, Health(time.monotonic)))
        counted = {"rubric": "correction", "kind": "skipped"}
        await until(lambda: value("backslide_judgements_total", counted) == 30 - len(drawn))
        await until(lambda: place.has_committed(31))
        stop.set()
        await asyncio.wait_for(task, 15)
    live = {item.session_id: item for item in await place.judgements() if item.run == "live"}
    assert len(live) == 31
    for name, item in live.items():
        assert item.screen is not None
        assert (item.judge, item.screen.judge) == ("lexical", "anthropic:claude-haiku-5-5")
        assert item.screen.cost_nusd > 0 == item.cost_nusd
        if name == "look":
            assert (item.screen.verdict, item.outcomes.stage) == ("look", Stage())
        elif name in drawn:
            assert (item.screen.audited, item.outcomes.stage) == (True, Stage(found=4, judged=1))
        if name in drawn | {"look"}:
            assert isinstance(item.result, Verdict)
        else:
            assert item.result == Skipped(reason="screened_out")
    repeated = [item for item in await place.judgements() if item.run == "repeat"]
    assert {item.session_id for item in repeated} == drawn | {"look"}
    assert [item.screen for item in repeated if item.screen is not None] == []
    came = [(name, {"rubric": "correction", "result": name}) for name in RESULTS]
    assert {name: count for name, of in came if (count := value("backslide_screenings_total", of))} == {
        "look": 1,
        "audited": len(drawn),
        "screened_out": 30 - len(drawn),
    }
    spent = {"rubric": "correction", "stratum": "base", "judge": "anthropic:claude-haiku-5-5"}
    cost = sum(item.screen.cost_nusd for item in live.values() if item.screen is not None)
    assert value("backslide_judge_cost_usd_total", spent) == pytest.approx(cost / NUSD)
    asked = {"provider": "anthropic", "model": "claude-haiku-5-5", "error_type": "none"}
    assert value("backslide_judge_requests_total", asked) == 31
