"""The topics: what they are called, how they must be set up, creating and checking them.

`backslide topics create` makes what is missing, `backslide topics check` compares what is there; every process
runs the same check at its start. A finding names the topic, the setting, and the command that mends it.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import TopicAlreadyExistsError, for_code

from consumers.kafka import admin, consumer, partition_for
from monitor.config import Settings
from monitor.errors import TopicError

HOUR_MS = 3_600_000
SAMPLE = 200
ATTEMPTS = 15


class TopicSpec(msgspec.Struct, kw_only=True, frozen=True):
    """One topic. `at_least` names the configs that may be larger than asked for."""

    name: str
    partitions: int
    configs: dict[str, str]
    at_least: frozenset[str] = frozenset({"retention.ms", "max.message.bytes"})


class Finding(msgspec.Struct, kw_only=True, frozen=True):
    """What is wrong with a topic, and what to do."""

    topic: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"topic {self.topic}: {self.problem}; {self.remedy}"


def topic_specs(settings: Settings) -> tuple[TopicSpec, ...]:
    """Give every topic as it has to be (A1, A9, J5)."""
    topics, assembly = settings.topics, settings.assembly
    age_ms = round(assembly.max_age_s * 1000)
    events_ms = max(round(topics.events_retention_h * HOUR_MS), 2 * age_ms)
    own = {"retention.ms": str(events_ms + age_ms), "max.message.bytes": str(topics.max_message_bytes)}
    events = {
        "retention.ms": str(events_ms),
        "max.message.bytes": str(topics.max_event_message_bytes),
        "message.timestamp.type": "LogAppendTime",
    }
    batches = {**own, "retention.ms": str(3 * 24 * HOUR_MS)}
    dead = {**own, "retention.ms": str(30 * 24 * HOUR_MS)}
    specs = (
        TopicSpec(name=topics.events, partitions=topics.event_partitions, configs=events),
        TopicSpec(name=topics.sessions, partitions=topics.event_partitions, configs=own),
        TopicSpec(name=topics.jobs_urgent, partitions=topics.job_partitions, configs=own),
        TopicSpec(name=topics.jobs_routine, partitions=topics.job_partitions, configs=own),
        TopicSpec(name=topics.decisions, partitions=topics.job_partitions, configs=own),
        TopicSpec(name=topics.judgements, partitions=topics.job_partitions, configs=own),
        TopicSpec(name=topics.dead_letters, partitions=1, configs=dead),
    )
    # One partition: the order of the notes decides.
    noted = TopicSpec(name=topics.batches, partitions=1, configs=batches)
    return (*specs, noted) if settings.judge.batch.enabled else specs


async def create(settings: Settings) -> list[str]:
    """Create the topics that are missing and give their names. Raises `TopicError` when the broker refuses."""
    client = admin(settings)
    await client.start()
    try:
        existing = set(await client.list_topics())
        missing = [spec for spec in topic_specs(settings) if spec.name not in existing]
        if missing:
            await _create(client, missing, settings.topics.replication_factor)
            await _until_listed(client, {spec.name for spec in missing})
    finally:
        await client.close()
    return [spec.name for spec in missing]


async def _until_listed(client: AIOKafkaAdminClient, names: set[str]) -> None:
    """Wait until the broker itself knows of new topics: its controller does so a moment earlier."""
    for _ in range(100):
        if names <= set(await client.list_topics()):
            return
        await asyncio.sleep(0.1)
    raise TopicError(f"topics {', '.join(sorted(names))}: created, but the broker doesn't list them after 10 s")


async def _create(client: AIOKafkaAdminClient, specs: list[TopicSpec], replication: int) -> None:
    new = [NewTopic(spec.name, spec.partitions, replication, topic_configs=spec.configs) for spec in specs]
    response = await client.create_topics(new)
    for name, code, *detail in response.topic_errors:
        error = for_code(code)
        if code and error is not TopicAlreadyExistsError:
            message = next((part for part in detail if part), error.__name__)
            raise TopicError(f"topic {name}: could not be created: {message}")


async def check(settings: Settings, names: set[str] | None = None) -> list[Finding]:
    """Compare topics (all, or those named) with what they have to be, and give what is wrong."""
    specs = [spec for spec in topic_specs(settings) if names is None or spec.name in names]
    client = admin(settings)
    await client.start()
    try:
        existing = set(await client.list_topics())
        there = [spec for spec in specs if spec.name in existing]
        partitions = await _partition_counts(client, [spec.name for spec in there])
        configs = await _configs(client, [spec.name for spec in there])
    finally:
        await client.close()
    findings = [_missing(spec) for spec in specs if spec.name not in existing]
    for spec in there:
        findings.extend(_compare(spec, partitions[spec.name], configs.get(spec.name, {})))
    return findings


async def require(settings: Settings, names: set[str]) -> None:
    """Raise `TopicError` with every finding. Does nothing with `topics.check: false`."""
    if not settings.topics.check:
        return
    findings = await check(settings, names)
    if findings:
        raise TopicError("\n".join(str(finding) for finding in findings))


async def misrouted_share(settings: Settings) -> dict[int, tuple[int, int]]:
    """Look at the newest keyed records of the source topic: partition -> (wrongly placed, looked at).

    librdkafka clients place keys by CRC32 unless told `partitioner=murmur2_random` (A8).
    """
    name = settings.topics.events
    reader = consumer(settings, None)
    await reader.start()
    try:
        numbers = await partitions_of(reader, name)
        return await _sample(reader, [TopicPartition(name, number) for number in sorted(numbers)])
    finally:
        await reader.stop()


async def partitions_of(reader: Any, name: str) -> set[int]:
    """Give a topic's partitions as the brokers have them now; none when it is missing (and it stays so)."""
    for _ in range(ATTEMPTS):
        await reader._client.force_metadata_update()  # noqa: SLF001 - aiokafka has no public call that waits for it
        found = set(reader.partitions_for_topic(name) or ())
        if found:
            return found
        await asyncio.sleep(0.2)  # a broker hears of a new topic a little later than its controller
    return set()


async def _sample(reader: Any, partitions: list[TopicPartition]) -> dict[int, tuple[int, int]]:
    reader.assign(partitions)
    ends, starts = await reader.end_offsets(partitions), await reader.beginning_offsets(partitions)
    for partition in partitions:
        reader.seek(partition, max(starts[partition], ends[partition] - SAMPLE))
    found = {partition.partition: (0, 0) for partition in partitions}
    while not await _all_read(reader, ends):
        batch = await reader.getmany(timeout_ms=1_000)
        if not batch:
            break
        for partition, records in batch.items():
            keyed = [record for record in records if record.key is not None]
            wrong = sum(partition_for(record.key, len(partitions)) != partition.partition for record in keyed)
            before = found[partition.partition]
            found[partition.partition] = (before[0] + wrong, before[1] + len(keyed))
    return found


async def _all_read(reader: Any, ends: dict[TopicPartition, int]) -> bool:
    return all([await reader.position(partition) >= end for partition, end in ends.items()])


async def _partition_counts(client: AIOKafkaAdminClient, names: list[str]) -> dict[str, int]:
    if not names:
        return {}
    described = await client.describe_topics(names)
    return {topic["topic"]: len(topic["partitions"]) for topic in described}


async def _configs(client: AIOKafkaAdminClient, names: list[str]) -> dict[str, dict[str, str]]:
    if not names:
        return {}
    resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
    found: dict[str, dict[str, str]] = {}
    for response in await client.describe_configs(resources):
        for resource in response.resources:
            error_code, _, _, name, entries = resource[:5]
            if error_code:
                raise TopicError(f"topic {name}: its settings can't be read: {for_code(error_code).__name__}")
            found[name] = {entry[0]: str(entry[1]) for entry in entries}
    return found


def _missing(spec: TopicSpec) -> Finding:
    return Finding(topic=spec.name, problem="is missing", remedy="run `backslide topics create`")


def _compare(spec: TopicSpec, partitions: int, configs: dict[str, str]) -> list[Finding]:
    findings = []
    if partitions != spec.partitions:
        problem = f"has {partitions} partitions, the settings say {spec.partitions}"
        remedy = (
            "set topics.event_partitions or topics.job_partitions to what it has, or move to a new topic: "
            "a count that changes while sessions are open tears them apart"
        )
        findings.append(Finding(topic=spec.name, problem=problem, remedy=remedy))
    for key, wanted in spec.configs.items():
        actual = configs.get(key)
        if actual is None or not _satisfies(actual, wanted, at_least=key in spec.at_least):
            relation = "at least " if key in spec.at_least else ""
            remedy = f"run `kafka-configs --alter --topic {spec.name} --add-config {key}={wanted}`"
            problem = f"has {key} = {actual}, needed is {relation}{wanted}"
            findings.append(Finding(topic=spec.name, problem=problem, remedy=remedy))
    return findings


def _satisfies(actual: str, wanted: str, *, at_least: bool) -> bool:
    if not at_least:
        return actual == wanted
    # A retention of -1 is for ever.
    return int(actual) < 0 or int(actual) >= int(wanted)
