"""Wire events: strict types, a reason for everything that is refused, and what is kept of what is accepted."""

from __future__ import annotations

import json
from typing import Any, get_args

import jsonschema
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.errors import InvalidEvent
from monitor.events import (
    EVENT_ERRORS,
    EVENT_TYPES,
    Correction,
    Escalation,
    Event,
    EventDecoder,
    Evidence,
    Feedback,
    Passage,
    Role,
    SessionEnd,
    Tick,
    Turn,
    encode,
    event_type,
    schema,
)
from monitor.session import SessionContent, session_view

TURN = {
    "type": "turn",
    "event_id": "e1",
    "session_id": "s1",
    "ts": 1_700_000_000.5,
    "turn_id": "t1",
    "role": "user",
    "text": "Where is my parcel?",
}
EVIDENCE = {
    "type": "evidence",
    "event_id": "e2",
    "session_id": "s1",
    "ts": 1,
    "turn_id": "t1",
    "passages": [{"id": "p1", "text": "It left on Monday."}],
}
HEAD: dict[str, Any] = {"event_id": "e", "session_id": "s", "ts": 12.5, "tenant": "acme"}
EVERY_TYPE: list[Event] = [
    Turn(**HEAD, turn_id="t", role="assistant", text="Yes.", turn_index=3, finish_reason="stop", model="m"),
    Evidence(**HEAD, turn_id="t", passages=(Passage(id="p", text="x", rank=1, score=0.5),)),
    Correction(**HEAD, turn_id="t", error_turn_id="u", corrected_claim="No."),
    Escalation(**HEAD, turn_id=None, reason="asked for a human"),
    Feedback(**HEAD, rating="down"),
    SessionEnd(**HEAD),
    Tick(ts=12.5),
]


def raw(base: dict[str, Any] = TURN, **changes: Any) -> bytes:
    return json.dumps({**base, **changes}).encode()


def without(field: str, base: dict[str, Any] = TURN) -> bytes:
    return json.dumps({name: value for name, value in base.items() if name != field}).encode()


def refused(sent: bytes, **limits: int) -> str:
    with pytest.raises(InvalidEvent) as caught:
        EventDecoder(**limits).decode(sent)
    assert caught.value.reason in EVENT_ERRORS
    assert str(caught.value)
    return caught.value.reason


def accepted(sent: bytes) -> tuple[Event, bytes]:
    event, kept = EventDecoder().decode(sent)
    # What is kept is JSON by any parser's measure, and it is the same event.
    assert isinstance(json.loads(kept.decode("utf-8")), dict)
    assert EventDecoder().decode(kept) == (event, kept)
    return event, kept


def turn_text(sent: bytes) -> str:
    event, _ = accepted(sent)
    assert isinstance(event, Turn)
    return event.text


def nested(depth: int, opening: str = "[", closing: str = "]") -> str:
    inner = "1" if opening == '{"a":' else ""
    return json.dumps(TURN)[:-1] + f', "extra": {opening * depth}{inner}{closing * depth}}}'


# -- refused -----------------------------------------------------------------------------------------------

BAD: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "undecodable"),
    "blank": (b" \n", "undecodable"),
    "no JSON": (b"\x00\xff\x17", "undecodable"),
    "cut off": (raw()[:-9], "undecodable"),
    "two objects": (raw() + raw(), "undecodable"),
    "single quotes": (raw().replace(b'"', b"'"), "undecodable"),
    "byte order mark": (b"\xef\xbb\xbf" + raw(), "undecodable"),
    "UTF-16": (raw().decode().encode("utf-16"), "undecodable"),
    "bad UTF-8 in a field": (raw().replace(b"parcel", b"\xff\xfe"), "undecodable"),
    "bad UTF-8 in an unknown field": (raw(extra="parcel_").replace(b"parcel_", b"\xff\xfe"), "undecodable"),
    "surrogate in UTF-8": (raw().replace(b"parcel", b"\xed\xa0\x80"), "undecodable"),
    "bad escape": (raw().replace(b"parcel", rb"\q"), "undecodable"),
    "NaN": (raw(ts=float("nan")), "undecodable"),
    "Infinity": (raw(ts=float("inf")), "undecodable"),
    "-Infinity": (raw(ts=float("-inf")), "undecodable"),
    "NaN in an unknown field": (raw(extra=float("nan")), "undecodable"),
    "NaN as a score": (
        raw(EVIDENCE, passages=[{"id": "p", "text": "x", "score": float("nan")}]),
        "undecodable",
    ),
    "number out of range": (raw().replace(b"1700000000.5", b"1e999"), "invalid_field"),
    "score out of range": (
        raw(EVIDENCE, passages=[{"id": "p", "text": "x", "score": 777}]).replace(b"777", b"-1e999"),
        "invalid_field",
    ),
    "score out of range beside a lone surrogate": (
        raw(EVIDENCE, turn_id="\ud800", passages=[{"id": "p", "text": "x", "score": 777}]).replace(
            b"777", b"1e999"
        ),
        "undecodable",
    ),
    "array": (b"[" + raw() + b"]", "invalid_field"),
    "null": (b"null", "invalid_field"),
    "number": (b"12", "invalid_field"),
    "string": (b'"turn"', "invalid_field"),
    "unknown type": (raw(type="message"), "unknown_type"),
    "type in capitals": (raw(type="Turn"), "unknown_type"),
    "type is a number": (raw(type=1), "invalid_field"),
    "type is null": (raw(type=None), "invalid_field"),
    "no type": (without("type"), "invalid_field"),
    "no event_id": (without("event_id"), "invalid_field"),
    "no session_id": (without("session_id"), "invalid_field"),
    "no ts": (without("ts"), "invalid_field"),
    "no turn_id": (without("turn_id"), "invalid_field"),
    "no role": (without("role"), "invalid_field"),
    "no text": (without("text"), "invalid_field"),
    "empty event_id": (raw(event_id=""), "invalid_field"),
    "empty session_id": (raw(session_id=""), "invalid_field"),
    "empty turn_id": (raw(turn_id=""), "invalid_field"),
    "empty tenant": (raw(tenant=""), "invalid_field"),
    "null event_id": (raw(event_id=None), "invalid_field"),
    "event_id is a number": (raw(event_id=7), "invalid_field"),
    "event_id of 257 characters": (raw(event_id="e" * 257), "invalid_field"),
    "text is a list": (raw(text=["a"]), "invalid_field"),
    "text is null": (raw(text=None), "invalid_field"),
    "unknown role": (raw(role="bot"), "invalid_field"),
    "empty role": (raw(role=""), "invalid_field"),
    "negative ts": (raw(ts=-1), "invalid_field"),
    "ts in milliseconds": (raw(ts=1_700_000_000_000), "invalid_field"),
    "ts is a string": (raw(ts="1700000000"), "invalid_field"),
    "ts is ISO 8601": (raw(ts="2026-01-01T00:00:00Z"), "invalid_field"),
    "ts is a bool": (raw(ts=True), "invalid_field"),
    "ts is null": (raw(ts=None), "invalid_field"),
    "negative turn_index": (raw(turn_index=-1), "invalid_field"),
    "fractional turn_index": (raw(turn_index=1.5), "invalid_field"),
    "turn_index is a float": (raw(turn_index=1.0), "invalid_field"),
    "turn_index is a string": (raw(turn_index="1"), "invalid_field"),
    "turn_index is a bool": (raw(turn_index=True), "invalid_field"),
    "unknown risk level": (raw(risk_level="mid"), "invalid_field"),
    "unknown traffic class": (raw(traffic_class="canary"), "invalid_field"),
    "passages is null": (raw(EVIDENCE, passages=None), "invalid_field"),
    "passage without an id": (raw(EVIDENCE, passages=[{"text": "x"}]), "invalid_field"),
    "passage is a string": (raw(EVIDENCE, passages=["x"]), "invalid_field"),
    "rank zero": (raw(EVIDENCE, passages=[{"id": "p", "text": "x", "rank": 0}]), "invalid_field"),
    "unknown rating": (raw({**HEAD, "type": "feedback", "rating": 5}), "invalid_field"),
    "tick without a time": (b'{"type":"tick"}', "invalid_field"),
    "5 MB of text": (raw(text="x" * 5_000_000), "too_large"),
    "5 MB of garbage": (b"\xff" * 5_000_000, "too_large"),
    "too large once escaped": (raw(text="BELLS").replace(b"BELLS", b"\x07" * 100_000), "too_large"),
    "arrays 65 deep and more": (nested(65).encode(), "undecodable"),
    "arrays 900 deep": (nested(900).encode(), "undecodable"),
    "arrays 100,000 deep": (nested(100_000).encode(), "undecodable"),
    "arrays without an end": (nested(100_000).encode()[:100_000], "undecodable"),
    "objects 600 deep": (nested(600, '{"a":', "}").encode(), "undecodable"),
    "objects 20,000 deep": (nested(20_000, '{"a":', "}").encode(), "undecodable"),
    "600 deep beside a lone surrogate": (nested(600).replace("parcel", r"\ud800").encode(), "undecodable"),
    "20,000 deep beside a lone surrogate": (nested(20_000).replace("parcel", r"\ud800").encode(), "undecodable"),
    "an integer of 5,000 digits beside a lone surrogate": (
        raw(text="\ud800", extra=0).replace(b'"extra": 0', b'"extra": ' + b"9" * 5_000),
        "undecodable",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_event_is_refused_with_its_reason(name: str) -> None:
    sent, reason = BAD[name]
    assert refused(sent) == reason


def test_every_reason_occurs() -> None:
    assert {reason for _, reason in BAD.values()} == set(EVENT_ERRORS)


def test_the_size_limit_is_inclusive_and_says_which_setting() -> None:
    sent = raw()
    assert EventDecoder(max_bytes=len(sent)).decode(sent)[1] == sent
    assert refused(sent, max_bytes=len(sent) - 1) == "too_large"
    with pytest.raises(InvalidEvent, match=r"assembly\.max_event_bytes"):
        EventDecoder(max_bytes=10).decode(sent)


def test_the_message_names_the_field() -> None:
    with pytest.raises(InvalidEvent, match=r"\$\.passages\[1\]\.text"):
        EventDecoder().decode(raw(EVIDENCE, passages=[{"id": "p", "text": "x"}, {"id": "q", "text": 3}]))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"role": "bot"}, "at `$.role`; allowed: user, assistant, system, tool"),
        ({"risk_level": "low"}, "; allowed: normal, high"),
        ({"traffic_class": "prod"}, "; allowed: live, shadow, internal, test, synthetic"),
        ({"type": "message"}, "; allowed: turn, evidence, correction, escalation, feedback, session_end, tick"),
        ({"ts": 1_790_000_000_000}, "; ts is Unix time in seconds, not in milliseconds"),
    ],
)
def test_the_message_says_what_is_allowed(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidEvent) as caught:
        EventDecoder().decode(raw(**changes))
    assert str(caught.value).endswith(said)


def test_what_is_no_json_is_called_so() -> None:
    with pytest.raises(InvalidEvent, match=r"^not valid JSON: Input data was truncated$"):
        EventDecoder().decode(b'{"type": "turn",')


def test_a_message_stays_short_whatever_it_quotes() -> None:
    with pytest.raises(InvalidEvent, match=r"at `\$\.type`") as caught:
        EventDecoder().decode(raw(type="x" * 200_000))
    assert caught.value.reason == "unknown_type"
    assert len(str(caught.value)) < 400


def test_a_message_does_not_quote_what_was_said() -> None:
    for name, (sent, _) in BAD.items():
        with pytest.raises(InvalidEvent) as caught:
            EventDecoder().decode(sent)
        assert "parcel" not in str(caught.value), name


@settings(max_examples=400, deadline=None)
@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_any_bytes_are_refused_with_a_reason(sent: bytes) -> None:
    refused(sent)


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_a_damaged_event_is_refused_with_a_reason_or_kept_as_valid_json(data: st.DataObject) -> None:
    sent = bytearray(raw(turn_index=4, extra={"a": [1, None]}))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(sent) - 1))
        sent[place : place + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    try:
        _, kept = EventDecoder().decode(bytes(sent))
    except InvalidEvent:
        refused(bytes(sent))
    else:
        json.loads(kept.decode("utf-8"))


# -- accepted ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("event", EVERY_TYPE, ids=event_type)
def test_every_type_goes_round(event: Event) -> None:
    sent = encode(event)
    assert accepted(sent) == (event, sent)
    assert json.loads(sent)["type"] == event_type(event)


def test_every_type_is_listed() -> None:
    assert [event_type(event) for event in EVERY_TYPE] == list(EVENT_TYPES)


@pytest.mark.parametrize("role", get_args(Role))
def test_every_role(role: str) -> None:
    event, _ = accepted(raw(role=role))
    assert isinstance(event, Turn)
    assert event.role == role


def test_an_accepted_event_is_kept_byte_for_byte() -> None:
    sent = b' {"text":"a",\n "type" : "turn", "turn_id":"t", "role":"user", "ts":1e9,\t'
    sent += b'"session_id":"s", "event_id":"e"}\n'
    event, kept = accepted(sent)
    assert kept == sent
    assert event == Turn(event_id="e", session_id="s", ts=1e9, turn_id="t", role="user", text="a")


def test_unknown_fields_are_kept_and_ignored() -> None:
    sent = raw(extra={"a": [1, {"b": None}]}, trace="x")
    event, kept = accepted(sent)
    assert event == accepted(raw())[0]
    assert kept == sent


def test_defaults() -> None:
    event, _ = accepted(raw())
    assert isinstance(event, Turn)
    assert (event.tenant, event.turn_index, event.risk_level, event.traffic_class) == (
        "default",
        None,
        "normal",
        "live",
    )


def test_evidence_with_zero_passages() -> None:
    for sent in (raw(EVIDENCE, passages=[]), without("passages", EVIDENCE)):
        event, _ = accepted(sent)
        assert isinstance(event, Evidence)
        assert event.passages == ()


def test_whole_seconds_and_zero_are_times() -> None:
    for time in (0, 1_700_000_000, 253_402_300_799):
        assert accepted(raw(ts=time))[0].ts == time


def test_null_bytes_are_text() -> None:
    assert turn_text(raw(text="a\x00b")) == "a\x00b"
    assert turn_text(raw(text="a?b").replace(b"?", b"\x00")) == "a\x00b"


def test_raw_control_characters_are_text() -> None:
    controls = "".join(map(chr, range(32)))
    sent = raw(text="a?b").replace(b"?", controls.encode())
    event, kept = accepted(sent)
    assert isinstance(event, Turn)
    assert event.text == f"a{controls}b"
    assert kept != sent


@pytest.mark.parametrize(
    ("escaped", "text"),
    [
        (r"\ud800", "\ufffd"),
        (r"\udfff", "\ufffd"),
        (r"\ude00\ud83d", "\ufffd\ufffd"),
        (r"\ud83dx\ude00", "\ufffdx\ufffd"),
        (r"\ud83d\ude00", "\U0001f600"),
        (r"\ud83d\ud83d\ude00", "\ufffd\U0001f600"),
    ],
)
def test_lone_surrogates_become_replacement_characters_and_pairs_stay(escaped: str, text: str) -> None:
    assert turn_text(raw().replace(b"parcel", escaped.encode())) == f"Where is my {text}?"


def test_a_lone_surrogate_is_mended_in_ids_and_unknown_fields_too() -> None:
    event, kept = accepted(raw(event_id="\ud800", extra={"\udc00": ["\ud800"]}))
    assert isinstance(event, Turn)
    assert event.event_id == "\ufffd"
    assert json.loads(kept)["extra"] == {"\ufffd": ["\ufffd"]}


def test_mending_changes_nothing_else() -> None:
    _, kept = accepted(raw(text="\ud800", extra=[1, 2.5, None, True, "é", 10**30]))
    assert json.loads(kept) == {**TURN, "text": "\ufffd", "extra": [1, 2.5, None, True, "é", 10**30]}


def test_bidi_and_zero_width_characters_are_text() -> None:
    text = "\u202eabc\u202c \u2066x\u2069 \u200b\u200d\ufeff\u2028"
    for ascii_only in (True, False):
        sent = json.dumps({**TURN, "text": text}, ensure_ascii=ascii_only).encode()
        event, kept = accepted(sent)
        assert isinstance(event, Turn)
        assert event.text == text
        assert kept == sent


def test_nesting_up_to_the_limit() -> None:
    # The event itself is one level, an unknown field's value the rest.
    sent = nested(63).encode()
    assert accepted(sent)[1] == sent
    assert refused(nested(64).encode()) == "undecodable"


def test_brackets_inside_of_text_do_not_nest() -> None:
    text = "[{" * 500 + '"' + "\\" + "[" * 500
    assert turn_text(raw(text=text)) == text


def test_many_passages_do_not_nest() -> None:
    event, _ = accepted(raw(EVIDENCE, passages=[{"id": f"p{number}", "text": "x"} for number in range(500)]))
    assert isinstance(event, Evidence)
    assert len(event.passages) == 500


def test_the_deepest_event_still_decodes_inside_of_a_session_and_a_deep_call() -> None:
    _, kept = EventDecoder().decode(nested(63).encode())
    content = msgspec.json.encode(
        SessionContent(
            tenant="acme",
            session_id="s1",
            segment="e1",
            previous_segment=None,
            close_reason="ended",
            events=[msgspec.Raw(kept)],
        )
    )

    def called(depth: int) -> int:
        return len(session_view(content).turns) if depth == 0 else called(depth - 1)

    assert called(500) == 1


@settings(max_examples=300, deadline=None)
@given(st.text(st.characters(codec=None), max_size=40), st.booleans())
def test_any_text_is_accepted_and_loses_only_lone_surrogates(text: str, ascii_only: bool) -> None:
    sent = json.dumps({**TURN, "text": text}, ensure_ascii=ascii_only)
    # json.dumps joins two lone halves into a pair, as any reader of the escapes would.
    expected = json.loads(json.dumps(text)).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if not ascii_only and any("\ud800" <= character <= "\udfff" for character in text):
        assert refused(sent.encode("utf-8", "surrogatepass")) == "undecodable"
    else:
        assert turn_text(sent.encode()).replace("\ufffd", "") == expected.replace("\ufffd", "")


# -- schema ------------------------------------------------------------------------------------------------


def test_the_schema_is_a_valid_json_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    json.dumps(schema())


def test_the_schema_has_every_type_and_a_word_on_each() -> None:
    described = schema()
    assert set(described["discriminator"]["mapping"]) == set(EVENT_TYPES)
    for name in ("Turn", "Evidence", "Correction", "Escalation", "Feedback", "SessionEnd", "Tick"):
        assert described["$defs"][name]["description"]


@pytest.mark.parametrize("event", EVERY_TYPE, ids=event_type)
def test_the_schema_accepts_every_type(event: Event) -> None:
    jsonschema.validate(json.loads(encode(event)), schema(), jsonschema.Draft202012Validator)


# JSON Schema has no infinity, and takes 1.0 for an integer.
BEYOND_SCHEMA = {"number out of range", "score out of range", "turn_index is a float"}
AGAINST_SCHEMA = [name for name, (_, reason) in BAD.items() if reason in {"unknown_type", "invalid_field"}]


@pytest.mark.parametrize("name", [name for name in AGAINST_SCHEMA if name not in BEYOND_SCHEMA])
def test_the_schema_refuses_what_the_decoder_refuses(name: str) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(json.loads(BAD[name][0]), schema(), jsonschema.Draft202012Validator)
