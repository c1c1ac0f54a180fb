"""A3: which session an event belongs to, which segment of it, and what becomes of an event that has none."""

from __future__ import annotations

import msgspec
import pytest

from monitor.assembly import Duplicate, Late
from monitor.events import SessionEvent, encode
from tests.unit.assembly.feed import (
    START,
    Feed,
    addenda,
    closings,
    correction,
    end,
    escalation,
    evidence,
    feedback,
    orphans,
    sessions,
    tick,
    turn,
    turns,
)
from tests.unit.assembly.log import POLICY, kinds


def close(feed: Feed, time: int) -> None:
    """Let the open sessions of a feed run out, well before any is forgotten."""
    assert closings(feed(tick(time + POLICY.gap + 1))) != []


# -- key and segment ---------------------------------------------------------------------------------------


def test_a3_equal_session_ids_of_two_tenants_stay_apart() -> None:
    feed = Feed()
    feed(turn("e1", START, tenant="acme"), turn("e1", START, tenant="umbrella"), turn("e2", START, tenant="acme"))
    found = {session.tenant: turns(session) for session in sessions(feed(tick(START + 901)))}
    assert found == {"acme": ["e1", "e2"], "umbrella": ["e1"]}


def test_a3_a_closed_segment_of_another_tenant_is_not_mine() -> None:
    feed = Feed()
    feed(turn("e1", START, tenant="umbrella"))
    close(feed, START)
    feed(turn("e1", START + 910, tenant="acme"), feedback("e2", START + 910))
    (session,) = sessions(feed(tick(START + 2_000)))
    assert session.tenant == "acme"
    assert session.previous_segment is None
    assert len(session.feedback) == 1


def test_a3_the_tenant_and_session_are_not_joined_by_a_separator() -> None:
    feed = Feed()
    feed(turn("e1", START, "b:c", tenant="a"), turn("e2", START, "c", tenant="a:b"))
    assert sorted(closings(feed(tick(START + 901)))) == [(["e1"], "inactivity"), (["e2"], "inactivity")]


def test_a3_a_turn_after_the_close_opens_the_next_segment_linked_to_the_one_before() -> None:
    feed = Feed()
    feed(turn("e1", START))
    close(feed, START)
    feed(turn("e2", START + 910))
    close(feed, START + 910)
    feed(turn("e3", START + 1_820))
    (session,) = sessions(feed(tick(START + 2_800)))
    assert (session.segment, session.previous_segment) == ("e3", "e2")


def test_a3_a_forgotten_segment_is_not_linked() -> None:
    feed = Feed()
    feed(turn("e1", START))
    close(feed, START)
    feed(tick(START + 901 + POLICY.memory + 1))
    feed(turn("e2", START + 3_000))
    (session,) = sessions(feed(tick(START + 4_000)))
    assert session.previous_segment is None


# -- what comes before its turn ----------------------------------------------------------------------------


def test_a3_evidence_before_its_turn_is_joined() -> None:
    feed = Feed()
    feed(evidence("v", START, "turn-e2"), turn("e1", START + 5), turn("e2", START + 6, role="assistant"))
    (session,) = sessions(feed(tick(START + 1_000)))
    assert [each.evidence is None for each in session.turns] == [True, False]


def test_a3_only_a_turn_opens_a_segment() -> None:
    feed = Feed()
    feed(evidence("v", START, "t"), feedback("f", START), escalation("x", START), correction("c", START, "t"))
    feed(end("z", START))
    outputs = feed(tick(START + 61))
    assert closings(outputs) == []
    assert orphans(outputs) == [
        ("evidence", 0),
        ("feedback", 1),
        ("escalation", 2),
        ("correction", 3),
        ("session_end", 4),
    ]
    assert feed.assembler.open_sessions == 0


def test_a3_an_orphan_is_given_up_after_the_grace_not_before() -> None:
    feed = Feed()
    feed(evidence("v", START, "turn-e1"))
    assert feed(tick(START + 60)) == []
    feed(turn("e1", START + 60))
    (session,) = sessions(feed(tick(START + 961)))
    assert session.turns[0].evidence is not None


def test_a3_each_waiting_event_has_a_clock_of_its_own() -> None:
    feed = Feed()
    feed(evidence("v", START, "t"), evidence("w", START + 59, "t"))
    assert orphans(feed(tick(START + 61))) == [("evidence", 0)]
    assert orphans(feed(tick(START + 119))) == []
    assert orphans(feed(tick(START + 120))) == [("evidence", 1)]


def test_a3_an_orphan_keeps_its_bytes() -> None:
    feed = Feed()
    event = feedback("f", START)
    feed(event)
    (orphan,) = feed(tick(START + 61))
    assert not isinstance(orphan, Late)
    assert getattr(orphan, "raw", None) == encode(event)


# -- what comes after the close ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "event",
    [
        evidence("n", START + 910, "turn-e1"),
        feedback("n", START + 910),
        feedback("n", START + 910, "turn-e1"),
        escalation("n", START + 910),
        escalation("n", START + 910, "turn-e1"),
        correction("n", START + 910, "turn-e1"),
        end("n", START + 910),
    ],
    ids=lambda event: f"{type(event).__name__}-{getattr(event, 'turn_id', None)}",
)
def test_a3_a_late_event_for_a_remembered_segment_is_an_addendum(event: SessionEvent) -> None:
    feed = Feed()
    feed(turn("e1", START))
    close(feed, START)
    (output,) = feed(event)
    assert isinstance(output, Late)
    addendum = output.addendum
    assert (addendum.tenant, addendum.session_id, addendum.segment) == ("acme", "s1", "e1")
    assert (addendum.partition, addendum.offset) == (3, 2)
    assert bytes(addendum.event) == encode(event)
    assert feed.assembler.open_sessions == 0


def test_a3_an_addendum_goes_to_the_segment_that_has_its_turn() -> None:
    feed = Feed()
    feed(turn("e1", START))
    close(feed, START)
    feed(turn("e2", START + 910))
    close(feed, START + 910)
    outputs = feed(
        feedback("f1", START + 1_820, "turn-e1"),
        feedback("f2", START + 1_820, "turn-e2"),
        feedback("f3", START + 1_820),
    )
    # Without a turn_id it is for the latest.
    assert addenda(outputs) == [("e1", 4), ("e2", 5), ("e2", 6)]


def test_a3_while_the_next_segment_is_open_the_turn_decides() -> None:
    feed = Feed()
    feed(turn("e1", START))
    close(feed, START)
    feed(turn("e2", START + 910))
    outputs = feed(
        feedback("f1", START + 911, "turn-e1"), feedback("f2", START + 912, "turn-e2"), feedback("f3", START + 913)
    )
    assert addenda(outputs) == [("e1", 3)]
    (session,) = sessions(feed(tick(START + 3_000)))
    assert session.event_ids == ("e2", "f2", "f3")


def test_a3_evidence_for_a_turn_that_nobody_has_seen_waits_for_it() -> None:
    feed = Feed()
    feed(turn("e1", START))
    close(feed, START)
    assert feed(evidence("v", START + 905, "turn-e2")) == []
    feed(turn("e2", START + 910))
    (session,) = sessions(feed(tick(START + 3_000)))
    assert (session.segment, session.previous_segment) == ("e2", "e1")
    assert session.turns[0].evidence is not None


def test_a3_a_late_event_of_an_unknown_turn_is_an_orphan_after_the_grace() -> None:
    feed = Feed()
    feed(turn("e1", START))
    close(feed, START)
    assert feed(evidence("v", START + 905, "turn-nobody")) == []
    assert orphans(feed(tick(START + 966))) == [("evidence", 2)]


def test_a3_a_late_event_while_another_waits_for_a_turn_still_finds_its_segment() -> None:
    feed = Feed()
    feed(turn("e1", START))
    close(feed, START)
    outputs = feed(evidence("v", START + 905, "turn-e2"), feedback("f", START + 906))
    assert addenda(outputs) == [("e1", 3)]


# -- duplicates --------------------------------------------------------------------------------------------


def test_a3_of_duplicates_the_first_wins_whatever_the_other_says() -> None:
    feed = Feed()
    outputs = feed(
        turn("e1", START, text="first"),
        turn("e1", START, text="first"),
        turn("e1", START + 5, text="second", turn_id="another"),
        feedback("e1", START + 6),
    )
    assert outputs == [Duplicate("e1")] * 3
    (session,) = sessions(feed(tick(START + 901)))
    assert [(each.text, each.turn_id) for each in session.turns] == [("first", "turn-e1")]
    assert session.feedback == ()


def test_a3_a_duplicate_of_a_closed_segment_is_dropped_and_counted() -> None:
    feed = Feed()
    first, second = turn("e1", START), feedback("e2", START)
    feed(first, second)
    close(feed, START)
    assert feed(first, second) == [Duplicate("e1"), Duplicate("e2")]
    assert feed.assembler.open_sessions == 0


def test_a3_a_duplicate_of_a_closed_segment_is_dropped_while_the_next_is_open() -> None:
    feed = Feed()
    first = turn("e1", START)
    feed(first)
    close(feed, START)
    feed(turn("e2", START + 910))
    assert feed(first) == [Duplicate("e1")]
    (session,) = sessions(feed(tick(START + 3_000)))
    assert turns(session) == ["e2"]


def test_a3_a_duplicate_of_an_addendum_is_dropped_and_counted() -> None:
    feed = Feed()
    feed(turn("e1", START))
    close(feed, START)
    event = feedback("f", START + 910)
    assert kinds(feed(event)) == ["late"]
    assert feed(event) == [Duplicate("f")]
    # Nor does it get into the next segment, to be counted there once more.
    feed(turn("e2", START + 911))
    assert feed(event) == [Duplicate("f")]
    (session,) = sessions(feed(tick(START + 3_000)))
    assert session.feedback == ()


def test_a3_a_turn_is_taken_in_even_if_an_addendum_had_its_event_id() -> None:
    # A producer's mistake: but a turn is dropped only for an event inside of a segment, as after a restart.
    feed = Feed()
    feed(turn("e1", START))
    close(feed, START)
    feed(feedback("n", START + 910))
    assert feed(turn("n", START + 911)) == []
    assert feed.assembler.open_sessions == 1


def test_a3_the_turn_that_opens_a_session_wins_over_a_waiting_event_with_its_id() -> None:
    """Else there would be a session without a turn, which nothing can close."""
    feed = Feed()
    outputs = feed(evidence("same", START, "turn-same"), turn("same", START), turn("b", START))
    assert outputs == [Duplicate("same")]
    (session,) = sessions(feed(tick(START + 1_000)))
    assert session.event_ids == ("same", "b")
    assert session.turns[0].evidence is None


def test_a3_one_event_id_in_two_sessions_is_no_duplicate() -> None:
    feed = Feed()
    assert feed(turn("e1", START, "a"), turn("e1", START, "b")) == []
    assert feed.assembler.open_sessions == 2


def test_a3_an_event_id_that_is_forgotten_opens_a_segment_again() -> None:
    feed = Feed(msgspec.structs.replace(POLICY, memory=0))
    event = turn("e1", START)
    feed(event)
    close(feed, START)
    assert feed(event, at=START + 902) == [Duplicate("e1")]
    feed(tick(START + 902))
    assert feed(event, at=START + 902) == []
    assert feed.assembler.open_sessions == 1
