"""Dead letters carry the raw bytes, why, and where from."""

from __future__ import annotations

import hashlib

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from consumers.dead_letters import MAX_BYTES, letter


class Held(msgspec.Struct):
    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


records = st.builds(
    Held,
    topic=st.sampled_from(["chat.events", "backslide.sessions"]),
    partition=st.integers(0, 99),
    offset=st.integers(0, 2**40),
    key=st.none() | st.binary(max_size=2_000),
    value=st.none() | st.binary(max_size=200),
)


@given(record=records, error=st.text(max_size=3_000))
def test_everything_needed_to_find_and_resend_a_record_is_there(record: Held, error: str) -> None:
    key, value, headers = letter(record, stage="assemble", reason="undecodable", error=error)
    found = dict(headers)
    assert len(found) == len(headers)
    assert key == f"{record.topic}/{record.partition}/{record.offset}".encode()
    assert value == (record.value or b"")
    assert found["topic"].decode() == record.topic
    assert int(found["partition"]) == record.partition
    assert int(found["offset"]) == record.offset
    assert found["stage"] == b"assemble"
    assert found["reason"] == b"undecodable"
    assert error.encode("utf-8", "replace").startswith(found["error"])
    assert found.get("key") == (None if record.key is None else record.key[:1_024])
    assert not found.keys() & {"length", "blake2b"}


@given(surplus=st.integers(1, 5), filler=st.binary(min_size=1, max_size=3))
def test_a_large_record_is_cut_and_can_still_be_told_apart(surplus: int, filler: bytes) -> None:
    raw = (filler * (MAX_BYTES + surplus))[: MAX_BYTES + surplus]
    _, value, headers = letter(Held("t", 0, 1, None, raw), stage="s", reason="too_large", error="")
    found = dict(headers)
    assert value == raw[:MAX_BYTES]
    assert int(found["length"]) == len(raw)
    assert found["blake2b"].decode() == hashlib.blake2b(raw, digest_size=16).hexdigest()


def test_a_record_of_exactly_the_limit_is_whole() -> None:
    _, value, headers = letter(Held("t", 0, 1, None, b"x" * MAX_BYTES), stage="s", reason="r", error="")
    assert len(value) == MAX_BYTES
    assert "length" not in dict(headers)


def test_an_error_with_lone_surrogates_does_not_raise() -> None:
    _, _, headers = letter(Held("t", 0, 1, None, b""), stage="s", reason="r", error="bad \ud800 text")
    assert dict(headers)["error"] == b"bad ? text"
