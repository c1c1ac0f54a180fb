"""Sessions, one a line, as events."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.errors import InvalidEvent
from monitor.events import Correction, EventDecoder, Evidence, SessionEvent, Turn
from monitor.ingest.sessions import SYNTHETIC_START, session_events


def _decoded(session: dict[str, Any], line: int = 1) -> list[SessionEvent]:
    decoder = EventDecoder()
    events = [decoder.decode(msgspec.json.encode(event))[0] for _, event in session_events(session, line)]
    assert all(event.__class__.__name__ != "SessionEnd" for event in events), "no end is invented"
    return events  # type: ignore[return-value]


def _session(*turns: dict[str, Any], **other: Any) -> dict[str, Any]:
    given = [{"role": "user", "text": f"turn {index}"} | turn for index, turn in enumerate(turns)]
    return {"session_id": "s1", "turns": given} | other


def test_a_turn_keeps_what_it_says() -> None:
    [turn] = _decoded(_session({"turn_index": 3, "turn_id": "x", "ts": 12.5, "finish_reason": "length"}))
    assert isinstance(turn, Turn)
    assert (turn.turn_index, turn.turn_id, turn.ts, turn.finish_reason) == (3, "x", 12.5, "length")
    assert (turn.role, turn.text, turn.session_id, turn.tenant) == ("user", "turn 0", "s1", "default")


def test_attributes_of_the_session_hold_for_every_turn_that_states_none() -> None:
    session = _session({}, {"model": "m2"}, tenant="acme", assistant="a", assistant_version="v", model="m1")
    one, two = _decoded(session)
    assert isinstance(one, Turn)
    assert isinstance(two, Turn)
    assert (one.tenant, one.assistant, one.assistant_version, one.model) == ("acme", "a", "v", "m1")
    assert two.model == "m2"


def test_no_evidence_and_empty_evidence_are_not_the_same() -> None:
    events = _decoded(_session({}, {"evidence": None}, {"evidence": []}, {"evidence": [{"id": "d", "text": "t"}]}))
    evidence = [event for event in events if isinstance(event, Evidence)]
    assert [(item.turn_id, len(item.passages)) for item in evidence] == [("t2", 0), ("t3", 1)]


def test_corrections_that_a_session_names_come_after_its_turns() -> None:
    named = [{"turn_id": 2, "text": "No, 6."}, {"turn_id": "t2", "error_turn_id": "t1", "corrected_claim": "4"}]
    *_, one, two = _decoded(_session({"ts": 5}, {"ts": 9}, corrections=named))
    assert isinstance(one, Correction)
    assert isinstance(two, Correction)
    assert (one.turn_id, one.text, one.ts) == ("2", "No, 6.", 9)
    assert (two.turn_id, two.error_turn_id, two.corrected_claim) == ("t2", "t1", "4")
    assert one.event_id != two.event_id


def test_a_correction_without_its_turn_is_refused() -> None:
    with pytest.raises(InvalidEvent, match="turn_id"):
        _decoded(_session({}, corrections=[{"text": "No, 6."}]))


def test_keys_that_are_not_ours_are_passed_over() -> None:
    plain, labeled = _session({}), _session({"label": 1}, human={"verdict": "reverted"}, source="x")
    assert _decoded(plain) == _decoded(labeled)


def test_numbers_serve_as_ids() -> None:
    [turn] = _decoded(_session({"turn_id": 7}, session_id=42, tenant=3))
    assert (turn.session_id, turn.tenant, getattr(turn, "turn_id", None)) == ("42", "3", "7")


@given(
    st.lists(st.none() | st.floats(0, 2e9), min_size=1, max_size=12),
    st.integers(1, 10_000_000),
)
def test_missing_times_are_one_second_after_the_turn_before(stated: list[float | None], line: int) -> None:
    turns = [{} if ts is None else {"ts": ts} for ts in stated]
    times = [event.ts for event in _decoded(_session(*turns), line)]
    assert all(ts is None or ts == found for ts, found in zip(stated, times, strict=True))
    for place, ts in enumerate(stated[1:], 1):
        if ts is None:
            assert times[place] == times[place - 1] + 1
    if not any(ts is not None for ts in stated):
        assert times[0] == SYNTHETIC_START + line


@given(st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=6), st.integers(1, 9), st.integers(1, 9))
def test_event_ids_follow_from_session_and_turn_alone(ids: list[str], line: int, other: int) -> None:
    session = _session(*({"turn_id": turn_id, "evidence": []} for turn_id in ids))
    one = [event.event_id for event in _decoded(session, line)]
    assert one == [event.event_id for event in _decoded(session, other)]
    assert len(set(one)) == 2 * len(set(ids))
    elsewhere = [event.event_id for event in _decoded(session | {"session_id": "s2"}, line)]
    assert set(one).isdisjoint(elsewhere)


@pytest.mark.parametrize(
    ("session", "message"),
    [
        ({"turns": []}, "session_id: is missing"),
        ({"session_id": "s", "turns": {}}, "turns: must be a list, not dict"),
        ({"session_id": "s", "turns": ["hello"]}, r"turns\[0\]: must be an object"),
        (_session({"evidence": "text"}), r"turns\[0\].evidence: must be a list, not str"),
        (_session({}, {"evidence": ["text"]}), r"turns\[1\].evidence\[0\]: must be an object"),
    ],
)
def test_without_structure_the_place_is_named(session: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidEvent, match=message) as error:
        list(session_events(session, 1))
    assert error.value.reason == "invalid_field"
