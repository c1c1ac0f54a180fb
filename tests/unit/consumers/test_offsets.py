"""Commit tracking: nothing unfinished is ever passed, and a commit's note comes back as it went (A4)."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from consumers.offsets import CommitNote, UnfinishedOffsets, decode_note, encode_note

times = st.none() | st.integers(0, 2**53)


@given(time=times, partitions=st.integers(1, 10_000), bound=st.integers(0, 2**63 - 1), until=times)
def test_a4_a_note_comes_back_and_fits_the_metadata(
    time: int | None, partitions: int, bound: int, until: int | None
) -> None:
    note = CommitNote(time=time, partitions=partitions, bound=bound, truncated_until=until)
    text = encode_note(note)
    assert decode_note(text) == note
    assert len(text) < 4_096  # offset.metadata.max.bytes


@given(st.none() | st.text() | st.sampled_from(["", "{}", "[]", '{"time":1,"partitions":"4","bound":0}']))
def test_a4_what_is_no_note_of_ours_is_none(text: str | None) -> None:
    assert decode_note(text) is None


def test_a_note_of_an_older_release_still_counts() -> None:
    note = decode_note('{"time":7,"partitions":4,"bound":9}')
    assert note == CommitNote(time=7, partitions=4, bound=9, truncated_until=None)


@given(gaps=st.lists(st.integers(1, 5), max_size=40), start=st.integers(0, 100), seed=st.integers())
def test_the_commit_is_the_lowest_unfinished_offset_in_every_order(gaps: list[int], start: int, seed: int) -> None:
    offsets, at = [], start - 1
    for gap in gaps:
        at += gap
        offsets.append(at)
    tracked, waiting = UnfinishedOffsets(start), list(offsets)
    under_way: set[int] = set()
    rng = random.Random(seed)
    following = start
    while waiting or under_way:
        if waiting and (not under_way or rng.random() < 0.5):
            following = waiting[0] + 1
            under_way.add(waiting[0])
            tracked.begin(waiting.pop(0))
        else:
            done = rng.choice(sorted(under_way))
            under_way.remove(done)
            tracked.finish(done)
        assert tracked.committable == min(under_way, default=following)
        assert tracked.span == following - tracked.committable
    assert tracked.committable == (offsets[-1] + 1 if offsets else start)
