"""Reading a file: what a line holds, and what is said of lines that can't be taken in."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from monitor.errors import InputError
from monitor.events import EventDecoder, Turn
from monitor.ingest import EventFile, parse_mapping
from monitor.ingest.file import MAX_LINE

TURN = {"type": "turn", "event_id": "e", "session_id": "s", "ts": 5, "turn_id": "t", "role": "user", "text": "Hi"}
SESSION = {"session_id": "s", "turns": [{"role": "user", "text": "Hi"}, {"role": "assistant", "text": "Hello"}]}


def _write(path: Path, *lines: Any) -> Path:
    path.write_bytes(b"".join((x if isinstance(x, bytes) else json.dumps(x).encode()) + b"\n" for x in lines))
    return path


def test_each_line_says_for_itself_what_it_is(tmp_path: Path) -> None:
    path = _write(tmp_path / "x.jsonl", TURN, b"", SESSION, {"type": "tick", "ts": 9}, b"  ")
    events = EventFile(path)
    assert [event.ts for event in events][::3] == [5.0, 9.0]
    assert events.lines == 5


def test_an_event_is_kept_byte_for_byte(tmp_path: Path) -> None:
    line = json.dumps(TURN | {"unknown": [1, {"x": "é"}]}, ensure_ascii=False).encode()
    [event] = EventFile(_write(tmp_path / "x.jsonl", line))
    assert event.json == line


def test_an_event_with_a_key_named_turns_is_still_an_event(tmp_path: Path) -> None:
    [event] = EventFile(_write(tmp_path / "x.jsonl", TURN | {"turns": 3}))
    assert event.ts == 5


def test_a_byte_order_mark_and_carriage_returns_are_no_content(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(
        b"\xef\xbb\xbf" + json.dumps(TURN).encode() + b"\r\n" + json.dumps(SESSION).encode() + b"\r\n"
    )
    assert len(list(EventFile(path))) == 3


@pytest.mark.parametrize(
    "text", ["a\x00b", "\x01\x1f\x7f", "\u202eevil\u202c", "\ufdd0", "\U0001f600", "line\u2028two"]
)
@pytest.mark.parametrize("raw", [True, False])
def test_odd_characters_are_accepted(tmp_path: Path, text: str, raw: bool) -> None:
    line = json.dumps(SESSION, ensure_ascii=False)
    encoded = text if raw else json.dumps(text)[1:-1]
    events = list(EventFile(_write(tmp_path / "x.jsonl", line.replace("Hello", encoded).encode())))
    turn, _ = EventDecoder().decode(events[1].json)
    assert isinstance(turn, Turn)
    assert turn.text == text


@pytest.mark.parametrize("line", [TURN, SESSION])
def test_lone_surrogates_become_replacement_characters(tmp_path: Path, line: dict[str, Any]) -> None:
    raw = json.dumps(line).replace("Hi", r"H\ud800i").encode()
    event = next(iter(EventFile(_write(tmp_path / "x.jsonl", raw))))
    turn, _ = EventDecoder().decode(event.json)
    assert isinstance(turn, Turn)
    assert turn.text == "H\ufffdi"


BROKEN: list[tuple[Any, str, str]] = [
    (b"{", "undecodable", "truncated"),
    (b'{"type": "turn", "x": "\xff"}', "undecodable", "utf-8|UTF-8"),
    (b"[" * 5_000, "undecodable", "nested|recursion|truncated"),
    (b"[1, 2]", "invalid_field", "must be a JSON object, not list"),
    ({"hello": 1}, "unknown_type", "neither an event .* nor a session"),
    ({**TURN, "type": "chat"}, "unknown_type", r"\$.type"),
    ({k: v for k, v in TURN.items() if k != "turn_id"}, "invalid_field", "turn_id"),
    ({**TURN, "ts": "now"}, "invalid_field", r"\$.ts"),
    ({**TURN, "ts": -1}, "invalid_field", r"\$.ts"),
    ({**TURN, "text": "x" * 2_000}, "too_large", "event of 2.* bytes"),
    ({"session_id": "s", "turns": [{"role": "user"}]}, "invalid_field", r"turns\[0\]: .*text"),
    (SESSION | {"turns": [{"role": "boss", "text": ""}]}, "invalid_field", r"turns\[0\]: .*\$.role"),
    (SESSION | {"turns": [{"role": "user", "text": "", "ts": "soon"}]}, "invalid_field", r"turns\[0\]: .*\$.ts"),
    (SESSION | {"session_id": ""}, "invalid_field", r"turns\[0\]: .*\$.session_id"),
    (
        {"session_id": "s", "turns": [{"role": "user", "text": "", "evidence": [{"id": "x"}]}]},
        "invalid_field",
        r"turns\[0\].evidence: .*text.*passages\[0\]|turns\[0\].evidence: .*text",
    ),
    ({"session_id": "s", "turns": [{"role": "user", "text": "x" * 2_000}]}, "too_large", r"turns\[0\]: event of"),
]


@pytest.mark.parametrize(("line", "reason", "message"), BROKEN)
def test_a_bad_line_is_named_or_counted(tmp_path: Path, line: Any, reason: str, message: str) -> None:
    path = _write(tmp_path / "bad.jsonl", TURN, line, SESSION)
    with pytest.raises(InputError, match=rf"bad\.jsonl: line 2: .*(?:{message})"):
        list(EventFile(path, max_event_bytes=1_000))
    lenient = EventFile(path, max_event_bytes=1_000, skip_invalid=True)
    assert len(list(lenient)) == 3
    assert lenient.invalid == {reason: 1}


def test_a_session_with_one_bad_turn_is_left_out_as_a_whole(tmp_path: Path) -> None:
    bad = SESSION | {"turns": [*SESSION["turns"], {"role": "user"}]}
    events = EventFile(_write(tmp_path / "x.jsonl", bad), skip_invalid=True)
    assert list(events) == []
    assert events.invalid == {"invalid_field": 1}


def test_a_file_without_line_breaks_is_not_loaded_whole(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    with path.open("wb") as file:
        file.truncate(MAX_LINE + 10)
    with pytest.raises(InputError, match=r"line 1: longer than .* is it JSONL"):
        list(EventFile(path, skip_invalid=True))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.jsonl: can't be read: No such file"):
        list(EventFile(tmp_path / "none.jsonl"))


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(TURN).encode() + b"\n{}\n")))
    with pytest.raises(InputError, match="<stdin>: line 2: neither"):
        list(EventFile("-"))


def test_a_mapping_reads_every_line_and_names_the_field(tmp_path: Path) -> None:
    mapping = parse_mapping("fields: {session_id: id, ts: at, role: who, text: says}", source="m.yaml")
    lines = [{"id": 1, "at": 3, "who": "user", "says": "x"}, {"id": 1, "at": "?", "who": "user", "says": "x"}]
    with pytest.raises(InputError, match=r"x.jsonl: line 2: ts \(path at\): '\?' is no unix_s time"):
        list(EventFile(_write(tmp_path / "x.jsonl", *lines), mapping=mapping))
