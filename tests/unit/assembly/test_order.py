"""A3: order inside of a session: turn index, then event time, then arrival."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.assembly.open_session import HeldTurn, OpenSession, final_order
from monitor.events import SessionEvent, Turn
from monitor.session import decode_content
from tests.unit.assembly.feed import START, Feed, evidence, feedback, sessions, tick, turn, turns
from tests.unit.assembly.log import finished


def assembled(*events: SessionEvent) -> list[str]:
    feed = Feed()
    feed(*events)
    (session,) = sessions(feed(tick(START + 50_000)))
    return turns(session)


def held(name: str, index: int | None, time: int, offset: int) -> HeldTurn:
    return HeldTurn(index, time, offset, name, name, b"{}")


def order(*held_turns: HeldTurn) -> str:
    return "".join(each.event_id for each in final_order(list(held_turns)))


def test_a3_turn_index_comes_before_event_time() -> None:
    assert assembled(turn("b", START, index=2), turn("a", START + 50, index=1)) == ["a", "b"]


def test_a3_without_an_index_event_time_decides() -> None:
    assert assembled(turn("b", START + 50), turn("a", START), turn("c", START + 60)) == ["a", "b", "c"]


def test_a3_at_one_time_arrival_decides() -> None:
    assert assembled(turn("b", START), turn("a", START), turn("c", START)) == ["b", "a", "c"]


def test_a3_at_one_index_time_decides_then_arrival() -> None:
    events = (
        turn("c", START + 9, index=4),
        turn("a", START + 3, index=4),
        turn("b", START + 3, index=4),
        turn("z", START + 99, index=0),
    )
    assert assembled(*events) == ["z", "a", "b", "c"]


def test_a3_index_zero_is_an_index() -> None:
    assert assembled(turn("b", START, index=1), turn("a", START + 20, index=0)) == ["a", "b"]


def test_a3_indices_need_not_be_dense() -> None:
    assert assembled(turn("c", START, index=10**9), turn("a", START, index=7), turn("b", START, index=90)) == [
        "a",
        "b",
        "c",
    ]


def test_a3_a_turn_without_an_index_goes_where_its_time_puts_it() -> None:
    events = (
        turn("a", START, index=0),
        turn("c", START + 20, index=1),
        turn("b", START + 10),
        turn("d", START + 30),
        turn("_", START - 10),
    )
    assert assembled(*events) == ["_", "a", "b", "c", "d"]


def test_a3_mixed_indices_whose_times_run_backwards_stay_in_index_order() -> None:
    assert order(held("a", 0, 50, 0), held("b", 1, 10, 1), held("x", None, 20, 2)) == "xab"
    assert order(held("a", 0, 50, 0), held("b", 1, 10, 1), held("x", None, 50, 2)) == "abx"
    assert order(held("a", 0, 10, 0), held("b", 1, 90, 1), held("c", 2, 20, 2), held("x", None, 30, 3)) == "axbc"


def test_a3_own_time_orders_even_when_it_is_dated_ahead() -> None:
    # The bound by the broker's clock is for deadlines; two such events still have an order.
    feed = Feed()
    feed(turn("b", START + 900_000), turn("c", START + 900_001), at=START)
    feed(turn("a", START), at=START)
    (session,) = sessions(feed(tick(START + 2_000)))
    assert turns(session) == ["a", "b", "c"]


def test_a3_other_events_follow_the_turns_by_time_then_arrival() -> None:
    feed = Feed()
    feed(feedback("f3", START + 9), feedback("f1", START + 1), turn("a", START), feedback("f2", START + 9))
    (output,) = finished(feed(tick(START + 50_000)))
    (session,) = sessions([output])
    assert session.event_ids == ("a", "f1", "f3", "f2")
    assert len(decode_content(output.record.content).events) == 4


def test_a3_the_segment_is_the_first_turn_in_final_order_not_the_first_to_arrive() -> None:
    feed = Feed()
    feed(evidence("v", START, "turn-b"), turn("b", START + 5, index=1), turn("a", START + 9, index=0))
    (session,) = sessions(feed(tick(START + 50_000)))
    assert session.segment == "a"


@settings(max_examples=120, deadline=None)
@given(st.permutations(range(8)), st.lists(st.booleans(), min_size=8, max_size=8))
def test_a3_any_arrival_order_gives_the_same_bytes(arrival: list[int], indexed: list[bool]) -> None:
    # Times are distinct and agree with the indices, as far as there are any.
    events: list[SessionEvent] = [
        turn(f"e{number}", START + 10 * number, index=number if indexed[number] else None) for number in range(6)
    ]
    events += [evidence("v", START + 15, "turn-e1"), feedback("f", START + 55, "turn-e5")]

    def content(sent: list[SessionEvent]) -> bytes:
        feed = Feed()
        feed(*sent, at=START + 100)
        (output,) = finished(feed(tick(START + 50_000)))
        return bytes(output.record.content)

    assert content([events[number] for number in arrival]) == content(events)


INDEX = st.none() | st.integers(0, 5)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(INDEX, st.integers(0, 6)), max_size=9))
def test_a3_the_order_is_total_and_keeps_both_rules(specs: list[tuple[int | None, int]]) -> None:
    given_turns = [held(str(offset), index, time, offset) for offset, (index, time) in enumerate(specs)]
    ordered = final_order(given_turns)
    assert final_order(given_turns[::-1]) == ordered
    assert sorted(ordered, key=lambda each: each.offset) == given_turns
    indexed = [(each.turn_index, each.time, each.offset) for each in ordered if each.turn_index is not None]
    assert indexed == sorted(indexed)
    free = [(each.time, each.offset) for each in ordered if each.turn_index is None]
    assert free == sorted(free)


@pytest.mark.parametrize("arrival", list(itertools.permutations(range(3))))
def test_a3_three_turns_in_every_order(arrival: tuple[int, ...]) -> None:
    events: list[Turn] = [turn(name, START + at, index=at) for at, name in enumerate("abc")]
    assert assembled(*(events[number] for number in arrival)) == ["a", "b", "c"]


@given(
    st.lists(
        st.tuples(st.sampled_from([None, 0, 1, 2]), st.integers(0, 3)).map(lambda pair: held("x", *pair, 0)),
        min_size=1,
        max_size=6,
    ),
    st.text(max_size=5),
    st.one_of(st.none(), st.text(max_size=5)),
)
def test_a_content_with_joined_events_is_byte_for_byte_the_encoded_one(
    turns: list[HeldTurn], tenant: str, previous: str | None
) -> None:
    session = OpenSession(
        (tenant, 'a "quoted" id'),
        0,
        opened_at=0,
        log_bytes=0,
        stream_time_before=None,
        previous=previous,
        followed=False,
        truncated=False,
    )
    session.turns = [msgspec.structs.replace(turn, offset=place) for place, turn in enumerate(turns)]
    _, record = session.finish(3, "max_age", 9)
    content = decode_content(record.content)
    assert bytes(record.content) == msgspec.json.encode(content)
    assert len(content.events) == len(turns)
