"""The broker: logs, commits with metadata, and a group that hands out partitions in aiokafka's order."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable
from typing import Any, Protocol

from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.errors import MessageSizeTooLargeError
from aiokafka.structs import OffsetAndMetadata

LATENCY_S = 0.001
# Virtual time 0 as the broker's clock shows it, in milliseconds.
EPOCH = 1_000_000_000


class Member(Protocol):
    """A consumer in a group."""

    async def revoke(self) -> None:
        """Stop handing out records, then call back; the old assignment stays in force (aiokafka's order)."""

    async def assign_members_share(self, share: set[TopicPartition]) -> None:
        """Put an assignment in force, then call back."""


class Log:
    """One partition. Its records have the broker's time, as LogAppendTime gives it (A1)."""

    def __init__(self, tp: TopicPartition) -> None:
        self.tp = tp
        self.start = 0
        self.records: list[ConsumerRecord[bytes, bytes]] = []

    @property
    def end(self) -> int:
        return len(self.records)

    def append(
        self, value: bytes | None, key: bytes | None, headers: Any = (), timestamp: int | None = None
    ) -> ConsumerRecord[bytes, bytes]:
        record: ConsumerRecord[bytes, bytes] = ConsumerRecord(
            topic=self.tp.topic,
            partition=self.tp.partition,
            offset=self.end,
            timestamp=EPOCH + round(asyncio.get_running_loop().time() * 1000) if timestamp is None else timestamp,
            timestamp_type=1,
            key=key,
            value=value,
            checksum=None,
            serialized_key_size=len(key or b""),
            serialized_value_size=len(value or b""),
            headers=tuple(headers),
        )
        self.records.append(record)
        return record


class SimulatedBroker:
    """Topics and groups. `largest` is the most bytes of a batch, by topic; unless `present`, it takes in none."""

    def __init__(self, topics: dict[str, int]) -> None:
        self.partitions = dict(topics)
        self.logs = {
            tp: Log(tp)
            for name, count in topics.items()
            for tp in map(TopicPartition, [name] * count, range(count))
        }
        self.largest: dict[str, int] = {}
        # So many commits fail, for a reason of the broker's.
        self.refused_commits = 0
        self.present = asyncio.Event()
        self.present.set()
        self.commits: dict[str, dict[TopicPartition, OffsetAndMetadata]] = defaultdict(dict)
        self.groups: dict[str, Group] = {}

    def topic(self, name: str) -> list[ConsumerRecord[bytes, bytes]]:
        """Everything that a topic holds, partition by partition."""
        return [record for tp, log in self.logs.items() if tp.topic == name for record in log.records[log.start :]]

    def write_batch(self, tp: TopicPartition, records: list[tuple[bytes | None, bytes, Any]]) -> int:
        """Append records that go together; gives the offset of the first.

        Raises `MessageSizeTooLargeError` when they are over the topic's limit, all of them together.
        """
        size = sum(len(value) for _, value, _ in records)
        if size > self.largest.get(tp.topic, size):
            raise MessageSizeTooLargeError(f"{tp.topic}: {size} bytes")
        first = self.logs[tp].end
        for key, value, headers in records:
            self.logs[tp].append(value, key, headers)
        return first

    def group(self, name: str) -> Group:
        return self.groups.setdefault(name, Group(self))


class Group:
    """The members of a consumer group. Each change starts a new generation and a rebalance."""

    def __init__(self, broker: SimulatedBroker) -> None:
        self._broker = broker
        self._members: dict[Member, set[str]] = {}
        self._generations: dict[Member, int] = {}
        self._generation = 0
        self._turn = asyncio.Lock()
        self._rebalances: set[asyncio.Task[None]] = set()

    def is_current(self, member: Member) -> bool:
        """Whether a member may commit: those who were thrown out learn of it when they try."""
        return self._generations.get(member) == self._generation

    def join(self, member: Member, topics: set[str]) -> None:
        """Take in a member."""
        self._members[member] = topics
        self._start_rebalance()

    def leave(self, member: Member) -> None:
        """Let a member go, or throw one out without a word to it."""
        if self._members.pop(member, None) is not None:
            self._generations.pop(member, None)
            self._start_rebalance()

    def _start_rebalance(self) -> None:
        task = asyncio.get_running_loop().create_task(self._rebalance())
        self._rebalances.add(task)
        task.add_done_callback(self._rebalances.discard)

    async def _rebalance(self) -> None:
        async with self._turn:
            await self._hand_out()

    async def _hand_out(self) -> None:
        members = list(self._members)
        await _all(member.revoke() for member in members)
        self._generation += 1
        shares: dict[Member, set[TopicPartition]] = {member: set() for member in members}
        for tp in self._broker.logs:
            takers = [member for member in members if tp.topic in self._members[member]]
            if takers:
                count = self._broker.partitions[tp.topic]
                shares[takers[tp.partition * len(takers) // count]].add(tp)
        for member in members:
            self._generations[member] = self._generation
        await _all(member.assign_members_share(share) for member, share in shares.items())


async def _all(calls: Any) -> None:
    waiting: list[Awaitable[None]] = list(calls)
    await asyncio.gather(*waiting)
