"""The view of a finished session: evidence joined, attributes, content hash, records on the wire."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.events import (
    Correction,
    Escalation,
    Evidence,
    Feedback,
    Passage,
    SessionEnd,
    SessionEvent,
    Turn,
    encode,
)
from monitor.session import (
    CLOSE_REASONS,
    CUT_REASONS,
    Addendum,
    CloseReason,
    LogSpan,
    Session,
    SessionAttributes,
    SessionContent,
    SessionRecord,
    content_hash,
    decode_content,
    decode_record,
    session_view,
)


def head(event_id: str, ts: float = 1.0) -> dict[str, Any]:
    return {"event_id": event_id, "session_id": "s1", "tenant": "acme", "ts": ts}


def turn(name: str, **fields: Any) -> Turn:
    return Turn(**{**head(f"e-{name}"), "turn_id": name, "role": "user", "text": f"text of {name}", **fields})


def evidence(event_id: str, turn_id: str, *passages: str) -> Evidence:
    found = tuple(Passage(id=passage, text=f"about {passage}") for passage in passages)
    return Evidence(**head(event_id), turn_id=turn_id, passages=found)


def content(*events: SessionEvent, **changes: Any) -> bytes:
    fields: dict[str, Any] = {
        "tenant": "acme",
        "session_id": "s1",
        "segment": "e-t1",
        "previous_segment": None,
        "close_reason": "ended",
        "events": [msgspec.Raw(encode(event)) for event in events],
    }
    return msgspec.json.encode(SessionContent(**{**fields, **changes}))


def view(*events: SessionEvent, **changes: Any) -> Session:
    return session_view(content(*events, **changes))


def passages(session: Session) -> list[list[str] | None]:
    return [None if each.evidence is None else [passage.id for passage in each.evidence] for each in session.turns]


# -- evidence ----------------------------------------------------------------------------------------------


def test_a3_evidence_is_joined_on_turn_id() -> None:
    session = view(turn("t1"), turn("t2"), evidence("v2", "t2", "p2"), evidence("v1", "t1", "p1"))
    assert passages(session) == [["p1"], ["p2"]]


def test_no_evidence_is_none_and_evidence_without_a_passage_is_empty() -> None:
    session = view(turn("t1"), turn("t2"), evidence("v2", "t2"))
    assert [each.evidence for each in session.turns] == [None, ()]


def test_several_evidence_events_of_a_turn_add_up_in_their_order() -> None:
    events = (evidence("v1", "t1", "p1", "p2"), evidence("v2", "t1"), evidence("v3", "t1", "p3", "p1"))
    assert passages(view(turn("t1"), *events)) == [["p1", "p2", "p3", "p1"]]


def test_evidence_of_a_turn_that_is_not_in_this_segment_is_only_listed() -> None:
    session = view(turn("t1"), evidence("v", "elsewhere", "p"))
    assert passages(session) == [None]
    assert session.event_ids == ("e-t1", "v")


# -- turns and other events --------------------------------------------------------------------------------


def test_turns_keep_their_order_and_count_from_zero() -> None:
    session = view(turn("t3", turn_index=30), turn("t1", turn_index=10, finish_reason="stop", role="assistant"))
    assert [(each.index, each.turn_id) for each in session.turns] == [(0, "t3"), (1, "t1")]
    assert session.turns[1].finish_reason == "stop"
    assert session.turns[1].role == "assistant"
    assert session.turns[0].text == "text of t3"


def test_the_index_of_a_turn() -> None:
    session = view(turn("t3"), turn("t1"))
    assert session.index_of("t1") == 1
    assert session.index_of("t9") is None


@pytest.mark.parametrize(
    ("finish_reason", "cut_off"),
    [
        (None, False),
        ("stop", False),
        ("end_turn", False),
        ("tool_calls", False),
        ("length", True),
        ("max_tokens", True),
        ("cancelled", True),
        ("content_filter", True),
        ("error", True),
    ],
)
def test_a_reply_that_was_cut_says_so(finish_reason: str | None, cut_off: bool) -> None:
    assert view(turn("t1", finish_reason=finish_reason)).turns[0].cut_off is cut_off


def test_every_kind_of_event_has_its_place() -> None:
    correction = Correction(**head("c"), turn_id="t1", corrected_claim="Not so.")
    escalation = Escalation(**head("x"), reason="angry")
    feedback = Feedback(**head("f"), rating="up")
    session = view(turn("t1"), correction, escalation, feedback)
    assert session.corrections == (correction,)
    assert session.escalations == (escalation,)
    assert session.feedback == (feedback,)
    assert not session.ended
    assert session.event_ids == ("e-t1", "c", "x", "f")
    assert view(turn("t1"), SessionEnd(**head("z"))).ended


def test_the_head_is_that_of_the_content() -> None:
    session = view(turn("t1"), segment="e-t1", previous_segment="e-t0", close_reason="max_age")
    assert (session.tenant, session.session_id, session.segment) == ("acme", "s1", "e-t1")
    assert (session.previous_segment, session.close_reason) == ("e-t0", "max_age")


def test_a2_only_what_we_cut_was_cut() -> None:
    assert set(CLOSE_REASONS) > CUT_REASONS
    cut = {reason for reason in get_args(CloseReason) if view(turn("t1"), close_reason=reason).was_cut}
    assert cut == {"max_age", "max_turns", "max_bytes", "pinned", "truncated"}


# -- attributes --------------------------------------------------------------------------------------------


def test_without_a_word_on_the_assistant_nothing_is_assumed() -> None:
    assert view(turn("t1")).attributes == SessionAttributes()


@pytest.mark.parametrize("name", ["assistant", "assistant_version", "model", "prompt_version", "channel"])
def test_the_first_value_that_a_turn_states_counts(name: str) -> None:
    session = view(turn("t1"), turn("t2", **{name: "first"}), turn("t3", **{name: "second"}))
    assert session.attributes == msgspec.structs.replace(SessionAttributes(), **{name: "first"})


def test_attributes_are_gathered_one_by_one() -> None:
    session = view(turn("t1", model="m1"), turn("t2", model="m2", channel="web"))
    assert session.attributes == SessionAttributes(model="m1", channel="web")


@pytest.mark.parametrize(
    ("levels", "risk"),
    [
        (["normal", "normal"], "normal"),
        (["high", "normal"], "high"),
        (["normal", "high"], "high"),
    ],
)
def test_risk_is_high_if_any_turn_says_so(levels: list[str], risk: str) -> None:
    turns = [turn(f"t{number}", risk_level=level) for number, level in enumerate(levels)]
    assert view(*turns).attributes.risk_level == risk


def test_the_traffic_class_is_that_of_the_first_turn() -> None:
    session = view(turn("t1", traffic_class="shadow"), turn("t2"))
    assert session.attributes.traffic_class == "shadow"


# -- hash and records --------------------------------------------------------------------------------------


def record(raw_content: bytes, **span: int) -> bytes:
    lay = LogSpan(**{"partition": 0, "first": 0, "last": 9, "closed_at": 100, **span})
    return msgspec.json.encode(SessionRecord(content=msgspec.Raw(raw_content), span=lay))


SPANS = st.fixed_dictionaries(
    {}, optional={name: st.integers(0, 2**53) for name in ("first", "last", "closed_at")}
)


@settings(max_examples=100, deadline=None)
@given(SPANS, st.text(max_size=30))
def test_a4_the_hash_does_not_depend_on_where_the_session_lay(span: dict[str, int], text: str) -> None:
    plain = content(turn("t1", text=text))
    decoded = decode_record(record(plain, **span))
    assert isinstance(decoded, SessionRecord)
    assert bytes(decoded.content) == plain
    assert content_hash(decoded.content) == content_hash(plain)
    assert session_view(decoded.content) == session_view(plain)
    assert session_view(decoded.content).content_hash == content_hash(plain)


CHANGED: dict[str, bytes] = {
    "text": content(turn("t1", text="other"), evidence("v", "t1", "p")),
    "role": content(turn("t1", role="assistant"), evidence("v", "t1", "p")),
    "time": content(turn("t1", ts=1.5), evidence("v", "t1", "p")),
    "turn id": content(turn("t1", turn_id="t2"), evidence("v", "t1", "p")),
    "event id": content(turn("t1", event_id="other"), evidence("v", "t1", "p")),
    "an attribute": content(turn("t1", model="m"), evidence("v", "t1", "p")),
    "evidence": content(turn("t1"), evidence("v", "t1", "q")),
    "no evidence": content(turn("t1")),
    "empty evidence": content(turn("t1"), evidence("v", "t1")),
    "one event more": content(turn("t1"), evidence("v", "t1", "p"), Escalation(**head("x"))),
    "order": content(evidence("v", "t1", "p"), turn("t1")),
    "tenant": content(turn("t1"), evidence("v", "t1", "p"), tenant="umbrella"),
    "session": content(turn("t1"), evidence("v", "t1", "p"), session_id="s2"),
    "segment": content(turn("t1"), evidence("v", "t1", "p"), segment="e-t2"),
    "previous segment": content(turn("t1"), evidence("v", "t1", "p"), previous_segment="e-t0"),
    "close reason": content(turn("t1"), evidence("v", "t1", "p"), close_reason="inactivity"),
}


@pytest.mark.parametrize("name", CHANGED)
def test_any_change_of_the_content_changes_the_hash(name: str) -> None:
    plain = content(turn("t1"), evidence("v", "t1", "p"))
    assert content_hash(CHANGED[name]) != content_hash(plain)
    assert len(content_hash(CHANGED[name])) == 32


def test_no_two_of_the_changes_have_one_hash() -> None:
    assert len({content_hash(each) for each in CHANGED.values()}) == len(CHANGED)


def test_raw_events_with_blanks_and_unknown_fields_survive_the_wire() -> None:
    sent = b'{ "type":"turn","extra":[1, 2.50],"event_id":"e","session_id":"s",'
    sent += b'"ts":1,"turn_id":"t","role":"user","text":"a" }'
    plain = content(events=[msgspec.Raw(sent)])
    decoded = decode_record(record(plain))
    assert isinstance(decoded, SessionRecord)
    assert [bytes(raw) for raw in decode_content(decoded.content).events] == [sent]


def test_an_addendum_goes_round() -> None:
    event = encode(Feedback(**head("f"), rating="down"))
    addendum = Addendum(
        tenant="acme", session_id="s1", segment="e-t1", event=msgspec.Raw(event), partition=2, offset=7
    )
    decoded = decode_record(msgspec.json.encode(addendum))
    assert isinstance(decoded, Addendum)
    assert bytes(decoded.event) == event
    assert (decoded.segment, decoded.partition, decoded.offset) == ("e-t1", 2, 7)


@pytest.mark.parametrize(
    "raw",
    [b"", b"null", b"[]", b"{}", b'{"type":"other"}', b'{"type":"session"}', b'{"type":"session","content":{}}'],
)
def test_anything_else_is_no_record(raw: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_record(raw)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{}",
        content(close_reason="bored"),
        content(events=[msgspec.Raw(b'{"type":"tick","ts":1}')]),
        content(events=[msgspec.Raw(b'{"type":"turn"}')]),
    ],
)
def test_a_broken_content_has_no_view(raw: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        session_view(raw)
