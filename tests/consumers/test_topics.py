"""Topics: created once as they have to be, and every deviation a finding with what to do (A1, A8, A9, J5)."""

from __future__ import annotations

from pathlib import Path

import pytest
from aiokafka.admin import NewTopic
from hypothesis import given
from hypothesis import strategies as st

from consumers import topics
from consumers.kafka import event_key, partition_for
from consumers.topics import TopicSpec, topic_specs
from monitor.config import load
from monitor.errors import TopicError
from tests.consumers.assemble_place import PARTITIONS, AssemblePlace
from tests.services.kafka import KafkaBroker

HOUR_MS = 3_600_000


@given(retention_h=st.floats(0.1, 10_000), age_h=st.floats(0.1, 1_000))
def test_a9_retention_covers_what_a_replay_may_need(retention_h: float, age_h: float) -> None:
    values = {"topics.events_retention_h": retention_h, "assembly.max_age_s": age_h * 3_600}
    settings = load(None, {**values, "store.verdict_retention_d": 10_000.0})
    specs = {spec.name: spec for spec in topic_specs(settings)}
    events, sessions = (
        int(specs[name].configs["retention.ms"]) for name in (settings.topics.events, settings.topics.sessions)
    )
    age = age_h * HOUR_MS
    assert events >= 2 * age - 1
    assert sessions >= events + age - 2


def test_a1_a5_time_is_the_brokers_and_sessions_have_the_partitions_of_events() -> None:
    settings = load(None, {"topics.event_partitions": 7, "topics.job_partitions": 3})
    specs = {spec.name: spec for spec in topic_specs(settings)}
    assert specs[settings.topics.events].configs["message.timestamp.type"] == "LogAppendTime"
    assert specs[settings.topics.events].partitions == specs[settings.topics.sessions].partitions == 7
    assert specs[settings.topics.jobs_urgent].partitions == 3
    assert len(specs) == 7


async def test_create_makes_what_is_missing_and_leaves_the_rest(
    kafka: KafkaBroker, topic_prefix: str, tmp_path: Path
) -> None:
    place = AssemblePlace(kafka, topic_prefix, tmp_path)
    settings, names = place.settings, {spec.name for spec in topic_specs(place.settings)}
    missing = await topics.check(settings)
    assert {finding.topic for finding in missing} == names
    assert all(str(finding).endswith("is missing; run `backslide topics create`") for finding in missing)
    with pytest.raises(TopicError) as caught:
        await topics.require(settings, {settings.topics.events, settings.topics.sessions})
    assert len(str(caught.value).splitlines()) == 2
    assert set(await topics.create(settings)) == names
    assert await topics.create(settings) == []
    assert await topics.check(settings) == []
    await topics.require(settings, names)


async def test_each_wrong_setting_is_a_finding_with_its_remedy(
    kafka: KafkaBroker, topic_prefix: str, tmp_path: Path
) -> None:
    place = AssemblePlace(kafka, topic_prefix, tmp_path)
    settings = place.settings
    events, sessions = settings.topics.events, settings.topics.sessions
    async with place.admin() as client:
        generous = {"retention.ms": "-1", "max.message.bytes": "16000000", "message.timestamp.type": "CreateTime"}
        meager = {"retention.ms": "1000", "max.message.bytes": "1000"}
        await client.create_topics(
            [
                NewTopic(events, PARTITIONS, 1, topic_configs=generous),
                NewTopic(sessions, PARTITIONS - 1, 1, topic_configs=meager),
            ]
        )
    await topics.create(settings)
    wanted: dict[str, TopicSpec] = {spec.name: spec for spec in topic_specs(settings)}
    found = {str(finding) for finding in await topics.check(settings)}
    configs = wanted[sessions].configs
    assert found == {
        (
            f"topic {events}: has message.timestamp.type = CreateTime, needed is LogAppendTime; "
            f"run `kafka-configs --alter --topic {events} --add-config message.timestamp.type=LogAppendTime`"
        ),
        (
            f"topic {sessions}: has 3 partitions, the settings say 4; set topics.event_partitions or "
            "topics.job_partitions to what it has, or move to a new topic: a count that changes while sessions "
            "are open tears them apart"
        ),
        *(
            f"topic {sessions}: has {key} = 1000, needed is at least {configs[key]}; "
            f"run `kafka-configs --alter --topic {sessions} --add-config {key}={configs[key]}`"
            for key in ("retention.ms", "max.message.bytes")
        ),
    }
    with pytest.raises(TopicError, match="LogAppendTime"):
        await topics.require(settings, {events})
    # The remedy is one.
    await place.configure(
        events, retention_ms="-1", max_message_bytes="16000000", message_timestamp_type="LogAppendTime"
    )
    await topics.require(settings, {events})
    place.values["topics"]["check"] = False
    await topics.require(place.settings, {sessions})


async def test_a_refusal_by_the_broker_names_the_topic(
    kafka: KafkaBroker, topic_prefix: str, tmp_path: Path
) -> None:
    place = AssemblePlace(kafka, topic_prefix, tmp_path)
    place.values["topics"]["replication_factor"] = 3
    with pytest.raises(TopicError, match=r"topic .*: could not be created: .*replication factor"):
        await topics.create(place.settings)
    place.values["topics"].update(replication_factor=1, events="no spaces allowed")
    with pytest.raises(TopicError, match=r"topic no spaces allowed: could not be created: Topic name is invalid"):
        await topics.create(place.settings)


async def test_a8_misrouted_keys_are_seen_and_ticks_are_not(
    kafka: KafkaBroker, topic_prefix: str, tmp_path: Path
) -> None:
    place = AssemblePlace(kafka, topic_prefix, tmp_path)
    await place.create()
    assert await topics.misrouted_share(place.settings) == dict.fromkeys(range(PARTITIONS), (0, 0))
    keys = [event_key("t", f"s{number}") for number in range(100)]
    home = {key: partition_for(key, PARTITIONS) for key in keys}
    await place.produce((key, b"{}", None) for key in keys)  # aiokafka's own choice
    await place.produce((None, b'{"type":"tick","ts":1}', number) for number in range(PARTITIONS))
    expected = {number: sum(home[key] == number for key in keys) for number in range(PARTITIONS)}
    assert await topics.misrouted_share(place.settings) == {number: (0, seen) for number, seen in expected.items()}
    await place.produce((key, b"{}", 0) for key in keys)
    shares = await topics.misrouted_share(place.settings)
    assert shares[0] == (100 - expected[0], 100 + expected[0])
    await place.produce((keys[0], b"{}", home[keys[0]]) for _ in range(300))
    assert (await topics.misrouted_share(place.settings))[home[keys[0]]] == (0, 200)  # the newest ones count
