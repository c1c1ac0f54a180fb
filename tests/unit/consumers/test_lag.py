"""Lag in seconds: never negative, 0 when caught up, no alarm by silence."""

from aiokafka import TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from consumers.lag import Lag

ONE, TWO, OTHER = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("other", 0)


def test_the_partition_furthest_behind_speaks_for_its_topic() -> None:
    lag = Lag(["t", "other"])
    lag.reach(ONE, 5, 90_000)
    lag.reach(TWO, 5, 70_000)
    assert lag.ages({ONE: 9, TWO: 9}, 100.0) == {"t": 30.0, "other": 0.0}
    assert lag.ages({ONE: 9, TWO: 5}, 100.0) == {"t": 10.0, "other": 0.0}


def test_a_record_after_a_long_silence_is_not_a_long_lag() -> None:
    lag = Lag(["t"])
    lag.reach(ONE, 5, 1_000)
    assert lag.ages({ONE: 5}, 3_600.0) == {"t": 0.0}
    assert lag.ages({ONE: 6}, 3_600.5) == {"t": 0.5}


def test_a_partition_that_was_taken_away_no_longer_counts() -> None:
    lag = Lag(["t"])
    lag.reach(ONE, 5, 1_000)
    lag.keep({TWO})
    assert lag.ages({ONE: 9, TWO: 9}, 100.0) == {"t": 0.0}


def test_without_a_known_end_nothing_is_claimed() -> None:
    lag = Lag(["t"])
    lag.reach(ONE, 5, 1_000)
    assert lag.ages({ONE: None}, 100.0) == {"t": 0.0}


@given(
    st.lists(st.tuples(st.sampled_from([ONE, TWO, OTHER]), st.integers(0, 50), st.floats(0, 1e6)), max_size=20),
    st.dictionaries(st.sampled_from([ONE, TWO, OTHER]), st.none() | st.integers(0, 50)),
    st.floats(0, 1e3),
)
def test_ages_are_never_negative_and_zero_when_nothing_is_left(
    steps: list[tuple[TopicPartition, int, float]], ends: dict[TopicPartition, int | None], now: float
) -> None:
    lag = Lag(["t", "other"])
    reached: dict[TopicPartition, int] = {}
    for partition, offset, timestamp in steps:
        lag.reach(partition, offset, timestamp)
        reached[partition] = offset
    behind = {
        partition.topic
        for partition, end in ends.items()
        if partition in reached and end is not None and end > reached[partition]
    }
    ages = lag.ages(ends, now)
    assert set(ages) == {"t", "other"}
    assert all(age >= 0 for age in ages.values())
    assert all(ages[topic] == 0 for topic in set(ages) - behind)
