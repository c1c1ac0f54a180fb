"""A8: our murmur2 is that of the Java clients and of aiokafka."""

from __future__ import annotations

import pytest
from aiokafka.partitioner import murmur2
from hypothesis import example, given
from hypothesis import strategies as st

from consumers.kafka import partition_for


@given(st.binary(max_size=300), st.integers(1, 10_000))
@example(b"", 7)
def test_a8_a_key_goes_where_aiokafka_puts_it(key: bytes, partitions: int) -> None:
    assert partition_for(key, partitions) == (murmur2(key) & 0x7FFFFFFF) % partitions


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        # From the unit tests of Apache Kafka's Utils.murmur2.
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    ],
)
def test_a8_known_values_of_the_java_client(key: bytes, hashed: int) -> None:
    assert partition_for(key, 2**31) == hashed & 0x7FFFFFFF
