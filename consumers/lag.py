"""How far a consumer is behind, in seconds rather than in records: that is what an alert can be set on."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from aiokafka import TopicPartition


class Lag:
    """Where a consumer stands in each partition. Pure. A topic's age is that of its partition furthest behind."""

    def __init__(self, topics: Iterable[str]) -> None:
        self._topics = tuple(topics)
        self._reached: dict[TopicPartition, tuple[int, float]] = {}

    def reach(self, partition: TopicPartition, offset: int, timestamp_ms: float) -> None:
        """Note the next offset to process, and the time of the record there, or of the one before it."""
        self._reached[partition] = (offset, timestamp_ms / 1000)

    def keep(self, partitions: Collection[TopicPartition]) -> None:
        """Forget all other partitions: they are someone else's now."""
        self._reached = {place: reached for place, reached in self._reached.items() if place in partitions}

    def ages(self, ends: Mapping[TopicPartition, int | None], now: float) -> dict[str, float]:
        """Give the seconds behind of each topic, 0 when caught up; `ends` is the end of each assigned partition.

        A partition of which nothing has come yet is not counted. One that is caught up is so as of `now`, so that
        the first record after an hour of silence doesn't look like an hour of lag.
        """
        ages = dict.fromkeys(self._topics, 0.0)
        for place, end in ends.items():
            if place not in self._reached:
                continue
            offset, time = self._reached[place]
            if end is None or end <= offset:
                self._reached[place] = (offset, now)
            else:
                ages[place.topic] = max(ages[place.topic], now - time, 0.0)
        return ages
