"""Records of the topic folded into letters: copies, marks, foreign records."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from consumers.dead_letters import letter
from consumers.dead_letters.reading import Letter, Letters, Place, read
from consumers.dead_letters.writing import digest, mark
from tests.unit.consumers.dead_letters.records import Record, letter_record


def folded(*records: Record) -> list[Letter]:
    found = Letters(lambda _: True)
    for offset, record in enumerate(records):
        found.take(msgspec.structs.replace(record, offset=offset))
    return found.all()


def marked(value: bytes, kind: Any = "replayed", at: str = "chat.events/3/7") -> Record:
    key, empty, headers = mark(at, digest(value), kind, "chat.events/3/99")
    return Record(key=key, value=empty, headers=tuple(headers), timestamp=5_000)


def test_a_letter_says_where_its_record_lay_and_where_it_lies_itself() -> None:
    (found,) = folded(letter_record(b"bytes", session=("acme", "s/1")))
    assert (found.id, found.source) == ("chat.events/3/7", Place("chat.events", 3, 7))
    assert found.place == Place("backslide.dead-letters", 0, 0)
    assert (found.stage, found.reason, found.state) == ("assemble", "undecodable", "open")
    assert (found.tenant, found.session_id, found.size, found.cut) == ("acme", "s/1", 5, False)


def test_copies_of_a_letter_are_one_and_the_newest_stands_for_them() -> None:
    (found,) = folded(letter_record(b"bytes"), letter_record(b"bytes"), letter_record(b"another answer"))
    assert (found.copies, found.place.offset, found.size) == (3, 2, 14)


def test_a_mark_holds_for_copies_that_come_after_it() -> None:
    (found,) = folded(letter_record(b"bytes"), marked(b"bytes"), letter_record(b"bytes"))
    assert (found.state, found.copies) == ("replayed", 2)
    assert found.mark is not None
    assert (found.mark.to, found.mark.at) == ("chat.events/3/99", 5_000)


def test_a_mark_may_outlive_its_letter_and_still_hold_for_a_copy() -> None:
    (found,) = folded(marked(b"bytes", "dropped"), letter_record(b"bytes"))
    assert found.state == "dropped"


def test_another_record_at_the_same_position_is_open() -> None:
    (found,) = folded(letter_record(b"bytes"), marked(b"bytes"), letter_record(b"of a topic made anew"))
    assert found.state == "open"


def test_the_last_mark_counts() -> None:
    (found,) = folded(letter_record(b"x"), marked(b"x", "dropped"), marked(b"x", "replayed"))
    assert found.state == "replayed"


def test_whose_it_is_comes_from_the_key_where_the_stage_did_not_know() -> None:
    (found,) = folded(letter_record(b"x", key=b"acme/s/1"))
    assert (found.tenant, found.session_id) == ("acme", "s/1")
    (job,) = folded(letter_record(b"x", key=b"0123456789abcdef"))
    assert (job.tenant, job.session_id) == ("", "")


def test_a_cut_letter_knows_the_length_and_hash_of_the_whole() -> None:
    raw = b"0123456789" * 10_000
    (found,) = folded(letter_record(raw))
    assert (found.cut, found.size, found.whole) == (True, 100_000, digest(raw))


raw_headers = st.lists(
    st.tuples(
        st.sampled_from(["stage", "reason", "topic", "partition", "offset", "length", "mark", "letter", "odd"]),
        st.none() | st.binary(max_size=30) | st.sampled_from([b"3", b"-1", b"replayed", "٣".encode(), b"9" * 40]),
    ),
    max_size=9,
)


@given(headers=raw_headers, key=st.none() | st.binary(max_size=20), value=st.none() | st.binary(max_size=20))
def test_no_record_whatever_breaks_the_list(
    headers: list[tuple[str, Any]], key: bytes | None, value: bytes | None
) -> None:
    record = Record(key=key, value=value, headers=tuple(headers))
    found = read(record)
    assert folded(record) == ([found] if isinstance(found, Letter) else [])
    if isinstance(found, Letter) and found.source is None:
        assert (found.id, found.stage, found.reason) == ("backslide.dead-letters/0/0", "", "foreign")


def test_a_record_of_somebody_else_is_listed_and_an_empty_one_is_not() -> None:
    (found,) = folded(Record(key=b"k", value=b"who am I?"), Record(key=b"k", value=None))
    assert (found.id, found.reason, found.source, found.size) == ("backslide.dead-letters/0/0", "foreign", None, 9)


def test_a_letter_of_an_empty_record_is_one() -> None:
    key, value, headers = letter(
        Record(topic="chat.events", offset=7), stage="assemble", reason="undecodable", error=""
    )
    (found,) = folded(Record(key=key, value=value, headers=tuple(headers)))
    assert (found.id, found.size) == ("chat.events/0/7", 0)
