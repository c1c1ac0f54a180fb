"""Which letters a filter means, and what it says of a wrong one."""

from __future__ import annotations

import pytest

from consumers.dead_letters.filters import Filter, moment, offset_range
from consumers.dead_letters.reading import Letter, read
from monitor.errors import ConfigError
from tests.unit.consumers.dead_letters.records import Record, letter_record


def found(record: Record) -> Letter:
    letter = read(record)
    assert isinstance(letter, Letter)
    return letter


LETTER = found(letter_record(b"x", offset=50, session=("acme", "s1"), key=b"\xff/k", timestamp=1_000))


@pytest.mark.parametrize(
    ("yes", "no"),
    [
        (Filter(ids=("chat.events/3/50",)), Filter(ids=("chat.events/3/5",))),
        (Filter(stage="assemble"), Filter(stage="judge")),
        (Filter(reason="undecodable"), Filter(reason="orphan")),
        (Filter(topic="chat.events"), Filter(topic="backslide.dead-letters")),
        (Filter(partition=3), Filter(partition=0)),
        (Filter(first_offset=50), Filter(first_offset=51)),
        (Filter(last_offset=50), Filter(last_offset=49)),
        (Filter(tenant="acme"), Filter(tenant="other")),
        (Filter(key="acme/s1"), Filter(key="acme/s2")),
        (Filter(key="\udcff/k"), Filter(key="k")),
        (Filter(since=1_000), Filter(since=1_001)),
        (Filter(until=1_001), Filter(until=1_000)),
    ],
)
def test_each_part_of_a_filter(yes: Filter, no: Filter) -> None:
    assert yes.matches(LETTER)
    assert not no.matches(LETTER)
    assert not yes.is_open


def test_without_parts_all_letters_are_meant() -> None:
    assert Filter().is_open
    assert Filter().matches(LETTER)
    assert Filter(topic="backslide.dead-letters").matches(found(Record(value=b"foreign")))


def test_offsets() -> None:
    assert offset_range(None) == (None, None)
    assert offset_range("7") == (7, 7)
    assert offset_range("7-9") == (7, 9)
    assert offset_range("7-") == (7, None)
    assert offset_range("-9") == (None, 9)


@pytest.mark.parametrize("text", ["", "-", "x", "1-2-3", "1 - 2", "9-7", "1.5"])
def test_wrong_offsets_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--offsets"):
        offset_range(text)


def test_times() -> None:
    assert moment("--since", None, 0.0) is None
    assert moment("--since", "1970-01-01T00:01", 0.0) == 60_000
    assert moment("--since", "1970-01-01T01:01:00+01:00", 0.0) == 60_000
    assert moment("--since", "1970-01-02", 0.0) == 86_400_000
    assert [moment("--since", text, 1_000_000.0) for text in ("10s", "10m", "10h", "10d")] == [
        999_990_000,
        999_400_000,
        964_000_000,
        136_000_000,
    ]


@pytest.mark.parametrize("text", ["", "yesterday", "2h ago", "-2h", "2026-13-01"])
def test_wrong_times_are_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--until .*allowed are 2026-11-30T12:00"):
        moment("--until", text, 0.0)
