"""In-house JSON through a mapping file."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.errors import ConfigError, InvalidEvent
from monitor.events import EventDecoder, Evidence, Feedback, SessionEvent, Turn
from monitor.ingest import load_mapping, parse_mapping

MAPPING = """
events: messages
only:
  kind: [message, rating]
fields:
  type: {path: kind, map: {message: turn, rating: feedback}}
  tenant: {value: acme}
  session_id: ^.conversation.id
  assistant_version: ^.conversation.release
  turn_index: "#"
  ts: {path: sent_at, time: unix_ms}
  role: {path: author.kind, map: {customer: user, bot: assistant}, default: tool}
  text: body
  rating: {path: stars, map: {1: down, 5: up}}
  evidence: {path: sources, each: {id: doc.key, text: snippet}}
"""
LINE: dict[str, Any] = {
    "conversation": {"id": 77, "release": "r1"},
    "messages": [
        {"kind": "message", "sent_at": 1_500, "author": {"kind": "customer"}, "body": "Hello"},
        {"kind": "typing"},
        {
            "kind": "message",
            "sent_at": 2_500,
            "author": {"kind": "bot"},
            "body": "Hi",
            "sources": [{"doc": {"key": "d1"}, "snippet": "text", "other": 1}],
        },
        {"kind": "message", "sent_at": 3_000, "author": {"kind": "crm"}, "body": "{}", "sources": []},
        {"kind": "rating", "sent_at": 4_000, "stars": 5},
    ],
}
MINIMAL = "session_id: s, ts: {path: at, time: %s}, role: {value: user}, text: {value: x}"


def _events(mapping: str, line: dict[str, Any], number: int = 1) -> list[SessionEvent]:
    found = parse_mapping(mapping, source="m.yaml").read(line, number)
    decoder = EventDecoder()
    return [decoder.decode(msgspec.json.encode(event))[0] for _, event in found.events]  # type: ignore[misc]


def _time(spec: str, value: Any) -> float:
    [event] = _events("fields: {" + MINIMAL % spec + "}", {"s": "s", "at": value})
    return event.ts


def test_a_list_of_messages_becomes_events() -> None:
    customer, bot, sources, crm, nothing, rating = _events(MAPPING, LINE)
    assert isinstance(customer, Turn)
    assert (customer.session_id, customer.tenant, customer.assistant_version) == ("77", "acme", "r1")
    assert (customer.turn_index, customer.ts, customer.role, customer.text) == (0, 1.5, "user", "Hello")
    assert isinstance(bot, Turn)
    assert bot.role == "assistant"
    assert isinstance(sources, Evidence)
    assert (sources.turn_id, sources.ts) == (bot.turn_id, bot.ts)
    assert [(passage.id, passage.text) for passage in sources.passages] == [("d1", "text")]
    assert isinstance(crm, Turn)
    assert crm.role == "tool"
    assert isinstance(nothing, Evidence)
    assert nothing.passages == ()
    assert isinstance(rating, Feedback)
    assert rating.rating == "up"


def test_what_only_leaves_out_is_counted() -> None:
    assert parse_mapping(MAPPING, source="m.yaml").read(LINE, 1).passed_over == 1


def test_derived_ids_differ_within_a_file_and_are_the_same_next_time() -> None:
    ids = [event.event_id for number in (1, 2) for event in _events(MAPPING, LINE, number)]
    assert len(set(ids)) == len(ids)
    assert ids == [event.event_id for number in (1, 2) for event in _events(MAPPING, LINE, number)]


def test_a_mapped_turn_id_names_the_event_wherever_it_stands() -> None:
    mapping = "fields: {session_id: s, ts: at, turn_id: m, role: {value: user}, text: {value: x}}"
    line = {"s": "s", "at": 1, "m": 12}
    assert _events(mapping, line, 1) == _events(mapping, line, 2)


@given(st.integers(0, 4_000_000_000_000))
def test_times_in_all_three_formats_mean_the_same(milliseconds: int) -> None:
    from datetime import UTC, datetime, timedelta

    moment = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=milliseconds)
    assert _time("unix_ms", milliseconds) == milliseconds / 1000
    assert _time("unix_s", milliseconds / 1000) == milliseconds / 1000
    assert _time("unix_ms", str(milliseconds)) == milliseconds / 1000
    assert _time("rfc3339", moment.isoformat()) == pytest.approx(milliseconds / 1000, abs=1e-5)
    assert _time("rfc3339", moment.isoformat().replace("+00:00", "Z")) == _time("rfc3339", moment.isoformat())


@pytest.mark.parametrize(
    ("spec", "value", "message"),
    [
        ("unix_s", "soon", "'soon' is no unix_s time"),
        ("unix_ms", True, "True is no unix_ms time"),
        ("unix_s", {}, "is no unix_s time"),
        ("rfc3339", "2026-01-02", "has no time zone"),
        ("rfc3339", 12, "12 is no rfc3339 time"),
    ],
)
def test_a_wrong_time_names_field_path_and_value(spec: str, value: Any, message: str) -> None:
    with pytest.raises(InvalidEvent, match=rf"ts \(path at\): .*{message}"):
        _time(spec, value)


def test_a_value_that_no_map_knows_is_an_error_unless_there_is_a_default() -> None:
    line = {**LINE, "messages": [LINE["messages"][0] | {"kind": "rating", "stars": 3}]}
    with pytest.raises(InvalidEvent, match=r"messages\[0\]: rating \(path stars\): 3 isn't in its map; .*1, 5"):
        _events(MAPPING, line)


def test_an_absent_list_is_an_error() -> None:
    with pytest.raises(InvalidEvent, match=r"messages \(the mapping's `events`\): is missing"):
        _events(MAPPING, {"conversation": {"id": 1}})


def test_numbers_in_a_path_are_places_in_a_list() -> None:
    mapping = "fields: {session_id: ids.1, ts: at, role: {value: user}, text: parts.0.text}"
    [turn] = _events(mapping, {"ids": ["a", "b"], "at": 1, "parts": [{"text": "deep"}]})
    assert isinstance(turn, Turn)
    assert (turn.session_id, turn.text) == ("b", "deep")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fields: {session_id: a, ts: b, texte: c}", "unknown texte; allowed: .*text"),
        ("fields: {session_id: a}", "ts must be mapped"),
        ("fields: {session_id: a, ts: {path: b, value: 1}}", "either a `path` or a `value`"),
        ("fields: {session_id: a, ts: {value: 1, time: unix_s}}", "go with a `path`"),
        ("fields: {session_id: a, ts: {path: b, time: unix}}", "time = 'unix'"),
        ("fields: {session_id: a, ts: b, evidence: {path: c, each: {body: x}}}", "not body"),
        ("{fields: {session_id: a, ts: b}, evnets: x}", "evnets"),
        ("[1]", "m.yaml"),
        ("a: [", "not valid YAML"),
    ],
)
def test_a_wrong_mapping_says_what_is_allowed(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=f"m.yaml.*{message}|{message}"):
        parse_mapping(text, source="m.yaml")


def test_a_file_is_named_in_errors(tmp_path: Path) -> None:
    path = tmp_path / "map.yaml"
    path.write_text("fields: {}", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"map\.yaml"):
        load_mapping(path)
    path.write_text(MAPPING, encoding="utf-8")
    assert load_mapping(path) == parse_mapping(MAPPING, source="x")
