"""Loading a partition: its last commit, and the finished sessions that it has to know (A4, A5)."""

from __future__ import annotations

from typing import Any

import msgspec
import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from consumers.kafka import consumer
from consumers.offsets import CommitNote, decode_note
from monitor.assembly import SessionAssembler
from monitor.config import Settings, assembly_policy
from monitor.errors import TopicError
from monitor.session import decode_record


class Loaded(msgspec.Struct, kw_only=True):
    """A partition ready to be replayed from `start`; `sessions_end` ends what was read back.

    `truncated`: the log begins behind the place to start from. `commit_lost`: that place was a commit (A9).
    """

    assembler: SessionAssembler
    start: int
    sessions_end: int
    truncated: bool
    commit_lost: bool


class Committed(msgspec.Struct, kw_only=True, frozen=True):
    """The last commit of a partition; with no `note` the replay starts at the beginning."""

    offset: int
    note: CommitNote | None


async def last_commit(client: AIOKafkaAdminClient, group: str, partition: TopicPartition) -> Committed | None:
    """Read a partition's commit with its metadata, which the consumer's own call leaves out."""
    found = await client.list_consumer_group_offsets(group, partitions=[partition])
    commit = found.get(partition)
    if commit is None or commit.offset < 0:
        return None
    return Committed(offset=commit.offset, note=decode_note(commit.metadata))


async def load(
    settings: Settings, source: AIOKafkaConsumer, partition: int, partitions: int, commit: Committed | None
) -> Loaded:
    """Build the assembler of a partition: read back what is out already, and say where the replay starts.

    Raises `TopicError` when the partition count changed since the commit (A8), or the topic was made anew.
    """
    tp = TopicPartition(settings.topics.events, partition)
    note = commit.note if commit else None
    if note is not None and note.partitions != partitions:
        raise TopicError(
            f"topic {tp.topic}: had {note.partitions} partitions at the last commit, has {partitions} now; "
            "sessions would be torn apart: move to a new topic (topics.events) and run `backslide topics create`"
        )
    log_start = (await source.beginning_offsets([tp]))[tp]
    wanted = commit.offset if commit and note else 0
    log_end = (await source.end_offsets([tp]))[tp]
    if wanted > log_end:
        raise TopicError(
            f"topic {tp.topic}: partition {partition} ends at {log_end}, before the last commit at {wanted}: was "
            "the topic made anew? Choose another kafka.group_prefix, or delete the old consumer group"
        )
    truncated = wanted < log_start
    start = max(wanted, log_start)
    assembler = SessionAssembler(
        assembly_policy(settings),
        partition=partition,
        stream_time=note.time if note else None,
        truncated_until=note.truncated_until if note else None,
    )
    end = await _read_back(settings, assembler, partition, note.bound if note else 0)
    assembler.resume_at(start, truncated=truncated)
    commit_lost = truncated and commit is not None
    if commit_lost:
        structlog.get_logger().error(
            "log_truncated", partition=partition, committed=wanted, log_start=log_start, lost=log_start - wanted
        )
    return Loaded(assembler=assembler, start=start, sessions_end=end, truncated=truncated, commit_lost=commit_lost)


async def _read_back(settings: Settings, assembler: SessionAssembler, partition: int, bound: int) -> int:
    """Restore from the same-numbered partition of the sessions topic, from `bound` to its end; give the end."""
    tp = TopicPartition(settings.topics.sessions, partition)
    reader = consumer(settings, None, auto_offset_reset="earliest")
    await reader.start()
    try:
        reader.assign([tp])
        position = max(bound, (await reader.beginning_offsets([tp]))[tp])
        end = (await reader.end_offsets([tp]))[tp]
        reader.seek(tp, position)
        while position < end:
            batch = await reader.getmany(tp, timeout_ms=1_000)
            for record in batch.get(tp, ()):
                _restore(assembler, record)
            position = await reader.position(tp)
            # Some brokers understate the end; the fetch itself knows better.
            end = max(end, reader.highwater(tp) or 0)
        return int(end)
    finally:
        await reader.stop()


def _restore(assembler: SessionAssembler, record: Any) -> None:
    try:
        assembler.restore(decode_record(record.value or b""), record.offset)
    except msgspec.DecodeError as error:
        structlog.get_logger().warning("unreadable_session_record", offset=record.offset, error=str(error))
