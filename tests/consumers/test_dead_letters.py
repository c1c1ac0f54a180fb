"""Dead letters on a real broker: round trips of each stage, replay twice, a kill in the middle (J4)."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.records_to_delete import RecordsToDelete

from consumers.dead_letters.desk import WINDOW
from consumers.dead_letters.writing import letter
from consumers.record import rubric_counts
from monitor.decision import JobRef
from monitor.events import Feedback, encode
from monitor.judgement import Unscored, Verdict
from monitor.rubrics import RUBRICS
from monitor.store import Store
from monitor.store.ledger import moved
from tests.consumers.assemble_place import AssemblePlace
from tests.consumers.broker_io import until
from tests.consumers.dead_letter_desk import Command, letters, replay, states
from tests.consumers.judge_place import Place as JudgePlace
from tests.consumers.judge_place import Scripted, job
from tests.consumers.record_place import Place as RecordPlace
from tests.consumers.sample_place import ALL, encoded, session
from tests.consumers.sample_place import Place as SamplePlace
from tests.consumers.test_assemble_input import end, home, key_of, turn
from tests.services.kafka import KafkaBroker
from tests.services.process import Child
from tests.unit.consumers.dead_letters.records import Record
from tests.unit.store.builders import decision, policy, unscored


async def test_events_come_back_into_their_session_once_whatever_is_replayed(
    kafka: KafkaBroker, topic_prefix: str, tmp_path: Path
) -> None:
    place = AssemblePlace(kafka, topic_prefix, tmp_path, gap_s=60.0, max_event_bytes=1_000)
    await place.create()
    whole = encode(turn("s", 0))
    large = encode(msgspec.structs.replace(turn("s", 1), text="large " * 15_000))  # cut in its letter
    early = encode(Feedback(event_id="early", session_id="s", ts=turn("s", 1).ts, rating="down"))
    wrong = whole.replace(b'"s-0"', b'"s-2"').replace(b'"turn"', b'"tern"')
    # In the wrong partition, as a client with another partitioner would put it: a replay goes by the key.
    await place.produce([(key_of("s"), early, home("s")), (key_of("s"), wrong, (home("s") + 1) % 4)])
    async with place.running() as running:
        await until(lambda: running.value("events_orphaned_total", event_type="feedback"))
        await place.produce([(key_of("s"), large, home("s")), (key_of("s"), whole, home("s"))])
        await until(lambda: running.value("dead_letters_total", stage="assemble") == 3)
    found = {each.reason: each for each in await letters(place.settings)}
    assert found.keys() == {"orphan", "unknown_type", "too_large"}
    assert (found["orphan"].tenant, found["orphan"].session_id) == ("default", "s")
    assert found["too_large"].cut

    place.values["assembly"]["max_event_bytes"] = 200_000  # the remedy
    planned = await replay(place.settings, dry_run=True)
    assert {each.to for each in planned} == {f"{place.settings.topics.events}/{home('s')}"}
    assert await states(place.settings) == {"open": 3}
    command = Command(place.values, tmp_path)
    mended = tmp_path / "mended.json"
    mended.write_bytes(wrong.replace(b'"tern"', b'"turn"'))
    status, _, error = await command("replay", found["unknown_type"].id, "--value", str(mended))
    assert (status, error) == (0, "")
    assert [each.problem for each in await replay(place.settings)] == ["", ""]
    assert await states(place.settings) == {"replayed": 3}
    assert await replay(place.settings) == []
    async with place.running() as running:
        await until(lambda: running.value("events_total", event_type="turn") >= 3)
        # Once more, the mistake included: it is a letter again, the others are duplicates.
        assert len(await replay(place.settings, again=True)) == 3
        await until(lambda: running.value("events_duplicate_total") == 2)
        await place.send([end("s")])
        await until(lambda: running.value("sessions_closed_total", reason="ended") == 1)
    (view,) = await place.views()
    assert sorted(each.turn_id for each in view.turns) == ["s-0", "s-1", "s-2"]
    assert max(len(each.text) for each in view.turns) == 90_000
    assert [each.event_id for each in view.feedback] == ["early"]
    assert await states(place.settings) == {"open": 1, "replayed": 3}


async def test_a_session_record_that_comes_back_gives_the_same_decision(
    kafka: KafkaBroker, topic_prefix: str, tmp_path: Path
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(ALL)
    place = SamplePlace(kafka, topic_prefix, policy=str(file))
    await place.create()
    ((key, whole),) = encoded([session(3)])
    await place.write([(key, whole[:-1]), (key, whole)])
    async with place.sampler():
        await until(lambda: place.has_committed(2))
        (found,) = await letters(place.settings)
        assert (found.stage, found.reason) == ("sample", "undecodable")
        for _ in range(2):
            (done,) = await replay(place.settings, again=True, value=whole)
            # Back into the very partition: that is where `assemble` reads back what is out (A5).
            assert found.source is not None
            assert done.to.startswith(f"{found.source.topic}/{found.source.partition}/")
        await until(lambda: place.has_committed(4))
    decisions = await place.decisions()
    assert len(decisions) == 3
    assert len({msgspec.json.encode(each) for each in decisions}) == 1


@pytest.mark.parametrize("retention", [False, True])
async def test_j4_a_job_whose_answer_was_invalid_gets_one_verdict_from_a_mended_judge(
    kafka: KafkaBroker, topic_prefix: str, tmp_path: Path, retention: bool
) -> None:
    url = f"sqlite:///{tmp_path / 'store.sqlite'}"
    place = JudgePlace(kafka, topic_prefix, **{"store.url": url})
    await place.create()
    work = job("muddled", urgent=True)
    await place.write([work])
    model = Scripted()
    model.text = lambda _: "I'd rather not say."
    with closing(Store.open(url, rubrics=rubric_counts(RUBRICS), judge="scripted")) as store:
        listed = [JobRef(job_id=work.job_id, rubric="correction")]
        decided = decision(
            "muddled", work.segment, tenant="default", text=work.content, jobs=listed, priority="urgent"
        )
        async with place.worker(model):
            await until(lambda: place.has_committed(1))
            store.record([policy(), decided, *await place.judgements()])
            assert totals(store) == {"jobs_listed": 1, "unscored": 1}
            (found,) = await letters(place.settings)
            assert (found.reason, found.tenant, found.session_id) == ("invalid", "default", "muddled")
            if retention:
                await delete_records(place, place.topic("jobs_urgent"))
            model.text = lambda text: text
            (done,) = await replay(place.settings)
            assert done.to.startswith(place.topic("jobs_urgent")), done
            await until(lambda: place.has_committed(2))
            (done,) = await replay(place.settings, again=True)
            await until(lambda: place.has_committed(3))
        again = (await place.read("jobs_urgent"))[-1]
        assert (again.key, again.value) == (work.job_id.encode(), msgspec.json.encode(work))
        results = [item.result for item in await place.judgements()]
        assert isinstance(results[0], Unscored)
        assert all(isinstance(each, Verdict) for each in results[1:])
        assert len(results) >= 2  # the same process remembers that it has answered
        store.record(await place.judgements())
        assert totals(store)["verdicts"] == 1
        assert "unscored" not in totals(store)


async def test_a_judgement_that_comes_back_is_counted_once(
    kafka: KafkaBroker, topic_prefix: str, tmp_path: Path
) -> None:
    place = RecordPlace(kafka, topic_prefix, tmp_path)
    await place.create()
    whole = msgspec.json.encode(unscored("s1"))
    await place.write([policy(), decision("s1")])
    await place.write_raw([(place.settings.topics.judgements, b"t/s1", whole[:-1])])
    async with place.recorder():
        await until(lambda: place.has_committed(3))
        (found,) = await letters(place.settings)
        assert (found.stage, found.tenant, found.session_id) == ("record", "t", "s1")
        for _ in range(2):
            (done,) = await replay(place.settings, again=True, value=whole)
            assert done.problem == ""
        await until(lambda: place.has_committed(5))
        with closing(Store.open(place.settings.store.url)) as store:
            assert totals(store)["unscored"] == 1


async def test_a_replay_killed_in_the_middle_is_finished_by_the_next(
    kafka: KafkaBroker, topic_prefix: str, tmp_path: Path
) -> None:
    place = AssemblePlace(kafka, topic_prefix, tmp_path)
    await place.create()
    number = 8 * WINDOW
    await put_aside(place, (f"event {each}".encode() for each in range(number)))
    command = Command(place.values, tmp_path)
    child = Child([*command.line("replay", "--all")], tmp_path / "replay.log")
    await until(lambda: b"replayed ->" in (tmp_path / "replay.log").read_bytes(), 60.0, 0.005)
    await asyncio.to_thread(child.kill)
    before = await states(place.settings)
    assert before.get("replayed", 0) > 0
    await replay(place.settings)
    assert await states(place.settings) == {"replayed": number}
    times = Counter(record.value for record in await place.read(place.settings.topics.events))
    assert times.keys() == {f"event {each}".encode() for each in range(number)}
    assert sum(times.values()) - number <= WINDOW


async def test_what_is_no_letter_breaks_nothing(kafka: KafkaBroker, topic_prefix: str, tmp_path: Path) -> None:
    place = AssemblePlace(kafka, topic_prefix, tmp_path)
    await place.create()
    topic = place.settings.topics.dead_letters
    gone = letter(Record(topic="nowhere", offset=3, value=b"x"), stage="judge", reason="undecodable", error="")
    cut = letter(
        Record(topic=place.settings.topics.sessions, value=b"x" * 60_000), stage="sample", reason="r", error=""
    )
    await produce(place, topic, [(b"k", b"\xff who am I?", []), (b"k", None, []), gone, cut])
    found = await letters(place.settings)
    assert [each.reason for each in found] == ["foreign", "undecodable", "r"]
    problems = [each.problem for each in await replay(place.settings)]
    assert [problem.split(";")[0] for problem in problems] == [
        "not a dead letter of Backslide: it names no position to go back to",
        "topic nowhere is missing",
        f"its whole record is gone from {place.settings.topics.sessions} (retention)",
    ]
    command = Command(place.values, tmp_path)
    status, shown, error = await command("show", found[0].id, "--raw")
    assert (status, shown, error) == (0, b"\xff who am I?", "")
    status, shown, _ = await command("drop", found[0].id)
    assert (status, shown.decode().splitlines()[-1]) == (0, "1 dropped")
    status, shown, _ = await command("replay", "--all", "--json")
    assert status == 1
    assert [json.loads(line)["outcome"] for line in shown.splitlines()] == ["left", "left"]
    assert await states(place.settings) == {"dropped": 1, "open": 2}


async def test_the_command_lists_shows_and_refuses(kafka: KafkaBroker, topic_prefix: str, tmp_path: Path) -> None:
    place = AssemblePlace(kafka, topic_prefix, tmp_path)
    command = Command(place.values, tmp_path)
    status, shown, error = await command("list")
    assert (status, shown) == (1, b"")
    assert error == f"topic {place.settings.topics.dead_letters}: is missing; run `backslide topics create`"
    await place.create()
    await put_aside(place, [b'{"text": "what a user said"}', b"another"])
    first = f"{place.settings.topics.events}/2/0"

    status, shown, _ = await command("list", "--offsets", "0")
    rows = shown.decode().splitlines()
    assert (status, rows[1].split()[:4]) == (0, [first, "open", "assemble", "undecodable"])
    assert rows[2] == "1 dead letters: 1 open, 0 replayed, 0 dropped"
    assert b"what a user said" not in shown
    status, shown, _ = await command("show", first)
    assert status == 0
    assert b"what a user said" in shown
    out = tmp_path / "bytes"
    status, shown, _ = await command("show", first, "--original", "--out", str(out))
    assert (status, shown, out.read_bytes()) == (0, b"", b'{"text": "what a user said"}')

    for arguments, message in (
        (["drop", "nothing/0/0"], "no dead letter nothing/0/0"),
        (["replay", "--all", "--value", str(out)], "is for one letter, 2 are chosen"),
    ):
        _, shown, error = await command(*arguments)
        assert shown == b"", arguments
        assert message in error


async def put_aside(place: AssemblePlace, values: Any) -> None:
    """Write dead letters of partition 2 of the source topic, as `assemble` would."""
    events = place.settings.topics.events
    records = [
        letter(
            Record(topic=events, partition=2, offset=offset, key=b"default/s", value=value),
            stage="assemble",
            reason="undecodable",
            error="no JSON",
        )
        for offset, value in enumerate(values)
    ]
    await produce(place, place.settings.topics.dead_letters, records)


async def produce(place: AssemblePlace, topic: str, records: Any) -> None:
    from consumers.kafka import producer

    writer = producer(place.settings)
    await writer.start()
    try:
        sends = [await writer.send(topic, value, key=key, headers=headers) for key, value, headers in records]
        await asyncio.gather(*sends)
    finally:
        await writer.stop()


async def delete_records(place: JudgePlace, topic: str) -> None:
    """Let everything in partition 0 of a topic fall under retention."""
    client = AIOKafkaAdminClient(bootstrap_servers=place.settings.kafka.bootstrap_servers)
    await client.start()
    try:
        await client.delete_records({TopicPartition(topic, 0): RecordsToDelete(before_offset=-1)})
    finally:
        await client.close()


def totals(store: Store) -> dict[str, int]:
    """Give what is counted of the jobs, by name."""
    names: Counter[str] = Counter()
    for key, value in moved(store.totals().sums).items():
        if key.name in {"jobs_listed", "verdicts", "skipped", "unscored"}:
            names[key.name] += value
    return dict(names)
