"""Whatever bytes a provider sends: a completion or an error of the closed set, and no prose of theirs in it."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.errors import JudgeError, JudgeFatal, JudgeUnavailable
from monitor.judging import anthropic_reply, chat_reply
from monitor.judging.chat_dialect import Dialect, ignored, refused
from monitor.judging.model import ERROR_TYPES, Completion, JudgeRequest, Message

SECRET = "my flat is in Elm Row"
REQUEST = JudgeRequest(
    rubric="correction",
    window_id="C1",
    system="You judge.",
    messages=(Message(role="user", text=SECRET),),
    schema={"type": "object", "required": ["score"]},
    max_tokens=100,
    window=None,
)
FORMAT = "response_format"
Read = Callable[[bytes], Completion]


def _chat(raw: bytes) -> Completion:
    return chat_reply.completion_from(raw, REQUEST, headers={}, now=0.0)


# Keys of both APIs, so that what is drawn comes near to what they send.
KEYS = [
    "error", "type", "message", "code", "param", "details", "error_code", "detail", "object", "innererror", "loc",
    "choices", "content", "finish_reason", "stop_reason", "usage", "input_tokens", "output_tokens",
    "prompt_tokens", "refusal", "text", "stop_details", "category", "request_id", "id",
]  # fmt: skip
WORDS = ["invalid_request_error", "rate_limit_error", "content_filter", "stop", "end_turn", "error", SECRET]
values = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 600) | st.floats() | st.sampled_from(WORDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=20,
)
bodies = st.binary(max_size=40) | values.map(lambda value: json.dumps(value).encode())


@given(raw=bodies)
@pytest.mark.parametrize("read", [anthropic_reply.completion_from, _chat])
def test_a_reply_is_a_completion_or_an_error_of_the_closed_set(read: Read, raw: bytes) -> None:
    try:
        got: Completion | JudgeError = read(raw)
    except JudgeError as error:
        got = error
    if isinstance(got, Completion):
        assert got.stop in {"end", "max_tokens", "refusal"}
        assert SECRET not in {got.refusal, got.request_id}
    else:
        assert got.error_type in ERROR_TYPES
        assert SECRET not in str(got)
        assert got.__context__ is None


@given(raw=bodies, status=st.integers(200, 599))
def test_an_error_is_of_the_closed_set_and_its_message_quotes_nothing(raw: bytes, status: int) -> None:
    for error in (
        anthropic_reply.error_from(raw, model="m", status=status),
        anthropic_reply.error_from(raw, model="m"),
        chat_reply.error_from(raw, model="m", status=status, headers={}, now=0.0),
    ):
        assert error.error_type in ERROR_TYPES
        assert isinstance(error, JudgeFatal | JudgeUnavailable)
        assert SECRET not in str(error)


@pytest.mark.parametrize(
    ("kind", "code", "error_type"),
    [
        ("overloaded_error", None, "overloaded"),
        ("api_error", None, "server_error"),
        ("timeout_error", None, "timeout"),
        ("rate_limit_error", None, "rate_limit"),
        ("rate_limit_error", "enforced_spend_limit_reached", "spend_limit"),
        ("billing_error", None, "spend_limit"),
        ("invalid_request_error", None, "invalid_request"),
        ("authentication_error", None, "authentication"),
        ("permission_error", None, "permission"),
        ("not_found_error", None, "not_found"),
        ("request_too_large", None, "too_large"),
        ("an_error_of_next_year", None, "server_error"),
    ],
)
def test_an_error_in_a_batch_has_no_status_and_goes_by_its_type(
    kind: str, code: str | None, error_type: str
) -> None:
    inner: dict[str, Any] = {"type": kind, "message": SECRET}
    body = {
        "type": "error",
        "error": inner | ({"details": {"error_code": code}} if code else {}),
        "request_id": "r1",
    }
    error = anthropic_reply.error_from(json.dumps(body).encode(), model="m")
    assert (error.error_type, error.request_id) == (error_type, "r1")


@given(text=st.text(max_size=60))
def test_what_is_taken_off_an_answer_is_never_part_of_json(text: str) -> None:
    answer = json.dumps({"score": text})
    assert chat_reply.bare(answer) == answer
    assert json.loads(chat_reply.bare(f"```json\n{answer}\n```")) == {"score": text}
    assert json.loads(chat_reply.bare(f"<think>{text.replace('<', '')}</think>\n{answer}")) == {"score": text}


@given(
    parameter=st.none() | st.text(max_size=20) | st.sampled_from(["seed", "response_format"]), message=st.text()
)
def test_learning_ends(parameter: str | None, message: str) -> None:
    """Each lesson changes the dialect, and there are few: a call can't be worded anew for ever."""
    dialect, seen = Dialect(), [Dialect()]
    while lesson := refused(dialect, parameter, message):
        dialect = lesson.dialect
        assert dialect not in seen
        seen.append(dialect)
        assert len(seen) <= 9


@given(answer=st.text(max_size=20) | st.just('{"score": 1}'))
def test_an_answer_teaches_at_most_once(answer: str) -> None:
    lesson = ignored(Dialect(), answer, REQUEST.schema)
    assert (lesson is None) == (answer == '{"score": 1}')
    if lesson is not None:
        assert ignored(lesson.dialect, answer, REQUEST.schema) is None


def test_a_long_answer_is_read_in_one_go() -> None:
    """Found: as a pattern this took 12 s for an open fence with 20,000 line breaks, and grew with the square."""
    blanks = "\n" * 1_000_000
    assert chat_reply.bare(f"```json{blanks}{{}}{blanks}```") == "{}"
    assert chat_reply.bare(f"```json{blanks}") == f"```json{blanks}"
    assert chat_reply.bare("<think>" * 100_000) == "<think>" * 100_000
