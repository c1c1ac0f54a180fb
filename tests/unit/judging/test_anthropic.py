"""The Anthropic judge against a local server that speaks the Messages API, through the real SDK (facts A0-A6)."""

import asyncio
import socket
import time
import traceback
from email.utils import formatdate
from typing import Any

import anthropic
import msgspec
import pytest

from monitor.errors import JudgeError, JudgeFatal, JudgeUnavailable
from monitor.judging.anthropic import AnthropicJudge
from monitor.judging.model import ERROR_TYPES, JudgeRequest, Message
from monitor.judging.quota import Limits, Quota
from tests.services import messages_api as api
from tests.unit.judging.conftest import NOW

SECRET = "the transcript says: my flat is in Elm Row"
SCHEMA = {
    "type": "object",
    "properties": {"quote": {"type": "string"}, "score": {"type": "integer", "minimum": 1, "maximum": 5}},
    "required": ["quote", "score"],
    "additionalProperties": False,
}
REQUEST = JudgeRequest(
    rubric="correction",
    window_id="C1",
    system="You judge.",
    messages=(Message(role="user", text=SECRET),),
    schema=SCHEMA,
    max_tokens=1_024,
    window=None,
)


# One server, client and loop for the module: making a client loads the trust store, which takes a while.
pytestmark = pytest.mark.asyncio(loop_scope="module")


async def failed(judge: AnthropicJudge, request: JudgeRequest = REQUEST, seconds: float = 5.0) -> JudgeError:
    with pytest.raises(JudgeError) as caught:
        await judge.complete(request, timeout=seconds)
    error = caught.value
    assert error.error_type in ERROR_TYPES
    shown = "".join(traceback.format_exception(error)) + repr(error) + repr(vars(error))
    assert SECRET not in shown
    assert api.API_KEY not in shown
    # Not even hidden behind `from None`: error reporters walk these as well.
    assert error.__context__ is None
    assert error.__cause__ is None
    return error


async def test_an_answer_becomes_a_completion(server: api.MessagesApi, judge: AnthropicJudge) -> None:
    server.script(api.message('{"quote": "Elm Row", "score": 5}'))
    completion = await judge.complete(REQUEST, timeout=5)
    assert (completion.text, completion.stop) == ('{"quote": "Elm Row", "score": 5}', "end")
    assert completion.request_id == "req_1"
    assert completion.usage.input_tokens > 0
    assert completion.usage.output_tokens > completion.usage.thinking_tokens == 5
    assert 0 <= completion.duration_ms < 5_000
    assert (judge.name, judge.provider, judge.model) == (
        "anthropic:claude-haiku-5-5",
        "anthropic",
        "claude-haiku-5-5",
    )


async def test_the_request_has_a_schema_an_effort_and_no_sampling(
    server: api.MessagesApi, judge: AnthropicJudge
) -> None:
    server.script(api.message("{}"))
    await judge.complete(REQUEST, timeout=5)
    body, headers = server.requests[0].body, server.requests[0].headers
    assert set(body) == {"model", "max_tokens", "system", "messages", "output_config"}
    assert body["output_config"]["effort"] == "low"
    assert body["max_tokens"] == 1_024
    assert body["system"] == [
        {"type": "text", "text": "You judge.", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    ]
    assert headers["authorization"] == f"Bearer {api.API_KEY}"
    assert headers["anthropic-version"] == api.API_VERSION
    # Bounds are no part of the grammar; the order of the properties is the order of the answer (evidence first).
    schema = body["output_config"]["format"]["schema"]
    assert list(schema["properties"]) == ["quote", "score"]
    assert "minimum" not in schema["properties"]["score"]
    assert SCHEMA["properties"]["score"]["minimum"] == 1  # type: ignore[index]


async def test_settings_reach_the_request(server: api.MessagesApi) -> None:
    judge = AnthropicJudge("m", api_key=api.API_KEY, base_url=server.base_url, effort="high", cache_ttl="5m")
    server.script(api.message("{}"))
    await judge.complete(REQUEST, timeout=5)
    await judge.aclose()
    body = server.requests[0].body
    assert body["output_config"]["effort"] == "high"
    assert body["system"][0]["cache_control"]["ttl"] == "5m"


async def test_the_default_effort_is_left_to_the_model(server: api.MessagesApi) -> None:
    judge = AnthropicJudge("m", api_key=api.API_KEY, base_url=server.base_url, effort="default")
    server.script(api.message("{}"))
    await judge.complete(REQUEST, timeout=5)
    await judge.aclose()
    assert set(server.requests[0].body["output_config"]) == {"format"}


async def test_the_system_prefix_is_read_from_the_cache_the_second_time(
    server: api.MessagesApi, judge: AnthropicJudge
) -> None:
    server.script(api.message("{}"), api.message("{}"))
    first = (await judge.complete(REQUEST, timeout=5)).usage
    other = msgspec.structs.replace(REQUEST, messages=(Message(role="user", text="another session"),))
    second = (await judge.complete(other, timeout=5)).usage
    assert first.cache_write_tokens == first.cache_write_1h_tokens == second.cache_read_tokens > 0
    assert first.cache_read_tokens == second.cache_write_tokens == 0


@pytest.mark.parametrize(
    ("told", "total", "for_an_hour"),
    [
        (
            {
                "cache_creation_input_tokens": 30,
                "cache_creation": {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 20},
            },
            30,
            20,
        ),
        ({"cache_creation": {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 20}}, 30, 20),
        ({"cache_creation_input_tokens": 30, "cache_creation": None}, 30, 0),
        ({"cache_creation_input_tokens": None}, 0, 0),
    ],
)
async def test_cache_writes_are_split_by_how_long_they_are_kept(
    server: api.MessagesApi, judge: AnthropicJudge, told: dict[str, Any], total: int, for_an_hour: int
) -> None:
    server.script(api.message("{}", usage={"input_tokens": 1, "output_tokens": 2} | told))
    usage = (await judge.complete(REQUEST, timeout=5)).usage
    assert (usage.cache_write_tokens, usage.cache_write_1h_tokens) == (total, for_an_hour)


async def test_replies_and_errors_tell_the_limits(server: api.MessagesApi, judge: AnthropicJudge) -> None:
    told = {
        "anthropic-ratelimit-requests-limit": "50",
        "anthropic-ratelimit-requests-remaining": "49",
        "anthropic-ratelimit-requests-reset": "2026-09-21T14:13:30Z",
    }
    expected = Limits(requests=Quota(limit=50, remaining=49, resets_in_s=10.0))
    server.script(
        msgspec.structs.replace(api.message("{}"), headers=told),
        msgspec.structs.replace(api.rate_limited(), headers=told),
    )
    assert (await judge.complete(REQUEST, timeout=5)).limits == expected
    assert (await failed(judge)).limits == expected


async def test_only_text_blocks_are_read(server: api.MessagesApi, judge: AnthropicJudge) -> None:
    content = [
        {"type": "thinking", "thinking": "hm", "text": "not this", "signature": "s"},
        {"type": "text", "text": '{"a":'},
        {"type": "a_block_of_next_year", "payload": 1},
        {"type": "text", "text": " 1}"},
    ]
    server.script(api.message("", content=content))
    assert (await judge.complete(REQUEST, timeout=5)).text == '{"a": 1}'


@pytest.mark.parametrize(
    ("category", "kept"),
    [("cyber", "cyber"), (None, None), ("a_category_of_next_year", "a_category_of_next_year"), (SECRET, None)],
)
async def test_a_refusal_without_content_is_a_completion_with_its_category(
    server: api.MessagesApi, judge: AnthropicJudge, category: str | None, kept: str | None
) -> None:
    server.script(api.refusal(category))
    completion = await judge.complete(REQUEST, timeout=5)
    assert (completion.stop, completion.text, completion.refusal) == ("refusal", "", kept)


async def test_an_answer_cut_at_max_tokens_keeps_its_text_and_usage(
    server: api.MessagesApi, judge: AnthropicJudge
) -> None:
    server.script(api.message('{"quote": "El', stop="max_tokens"))
    completion = await judge.complete(REQUEST, timeout=5)
    assert (completion.stop, completion.text) == ("max_tokens", '{"quote": "El')
    assert completion.usage.output_tokens > 0


async def test_a_stop_sequence_of_someone_in_between_leaves_an_answer_to_check(
    server: api.MessagesApi, judge: AnthropicJudge
) -> None:
    server.script(api.message("{}", stop="stop_sequence", stop_sequence="END"))
    completion = await judge.complete(REQUEST, timeout=5)
    assert (completion.stop, completion.text) == ("end", "{}")


async def test_a_full_context_is_fatal_and_tells_its_usage(server: api.MessagesApi, judge: AnthropicJudge) -> None:
    server.script(api.message("{", stop="model_context_window_exceeded"))
    error = await failed(judge)
    assert isinstance(error, JudgeFatal)
    assert error.error_type == "too_large"
    assert error.usage is not None
    assert error.usage.input_tokens > 0


@pytest.mark.parametrize("stop", ["pause_turn", "tool_use", None, "a reason of next year", SECRET])
async def test_other_stops_are_bad_responses(
    server: api.MessagesApi, judge: AnthropicJudge, stop: str | None
) -> None:
    server.script(api.message("{}", stop=stop))
    error = await failed(judge)
    assert isinstance(error, JudgeUnavailable)
    assert error.error_type == "bad_response"
    assert error.usage is not None


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b"",
        b"null",
        b"[]",
        b'"text"',
        b'{"content": [',
        b'{"a": "\xff"}',
        b'{"content": [], "stop_reason": "e"}',
    ],
)
async def test_what_is_no_message_is_a_bad_response(
    server: api.MessagesApi, judge: AnthropicJudge, body: bytes
) -> None:
    server.script(api.raw(body))
    error = await failed(judge)
    assert isinstance(error, JudgeUnavailable)
    assert (error.error_type, error.request_id) == ("bad_response", "req_1")


async def test_html_with_status_200_is_a_bad_response(server: api.MessagesApi, judge: AnthropicJudge) -> None:
    server.script(api.html())
    error = await failed(judge)
    assert isinstance(error, JudgeUnavailable)
    assert error.error_type == "bad_response"


@pytest.mark.parametrize(
    ("reply", "error_type"),
    [
        (api.rate_limited(), "rate_limit"),
        (api.failure(429, "rate_limit_error", code="ramp_limit_exceeded"), "rate_limit"),
        (api.overloaded(), "overloaded"),
        (api.failure(500, "overloaded_error"), "overloaded"),
        (api.server_error(), "server_error"),
        (api.failure(503, "api_error"), "server_error"),
        (api.failure(409, "conflict_error"), "server_error"),
        (api.failure(408, "timeout_error"), "timeout"),
        (api.failure(504, "timeout_error"), "timeout"),
        (api.html(502), "server_error"),
        (api.html(400), "bad_response"),
        (api.failure(400, "invalid_request_error", x_should_retry="true"), "bad_response"),
        (api.cut_on_its_way(), "bad_response"),
        (msgspec.structs.replace(api.server_error(), sent=10), "connection"),
        (msgspec.structs.replace(api.message("{}"), headers={"content-encoding": "gzip"}), "connection"),
        (api.drop(), "connection"),
        (api.drop(None), "connection"),
    ],
)
async def test_what_may_pass_is_unavailable(
    server: api.MessagesApi, judge: AnthropicJudge, reply: api.Reply, error_type: str
) -> None:
    server.script(reply)
    error = await failed(judge)
    assert isinstance(error, JudgeUnavailable)
    assert error.error_type == error_type
    assert len(server.requests) == 1, "the SDK's own retry must be off"


@pytest.mark.parametrize(
    ("reply", "error_type"),
    [
        (api.failure(401, "authentication_error"), "authentication"),
        (api.failure(403, "permission_error"), "permission"),
        (api.failure(400, "invalid_request_error", code="organization_on_hold"), "permission"),
        (api.failure(404, "not_found_error"), "not_found"),
        (api.html(404), "not_found"),
        (api.failure(400, "invalid_request_error"), "invalid_request"),
        (api.failure(422, "invalid_request_error"), "invalid_request"),
        (api.failure(413, "invalid_request_error"), "too_large"),
        (api.failure(402, "billing_error"), "spend_limit"),
        (api.failure(429, "rate_limit_error", code="enforced_spend_limit_reached"), "spend_limit"),
        (api.failure(429, "rate_limit_error", code="contract_spend_limit_reached"), "spend_limit"),
        (api.failure(400, "billing_error"), "spend_limit"),
    ],
)
async def test_what_needs_someone_is_fatal(
    server: api.MessagesApi, judge: AnthropicJudge, reply: api.Reply, error_type: str
) -> None:
    server.script(reply)
    error = await failed(judge)
    assert isinstance(error, JudgeFatal)
    assert error.error_type == error_type


async def test_the_message_names_status_kind_and_request_but_no_prose(
    server: api.MessagesApi, judge: AnthropicJudge
) -> None:
    server.script(api.failure(404, "not_found_error", f"no model for {SECRET}"))
    error = await failed(judge)
    assert str(error) == (
        "not_found: status 404, not_found_error, request req_1; is 'claude-haiku-5-5' the right model?"
    )
    assert error.request_id == "req_1"


async def test_prose_in_a_field_for_words_is_left_out(server: api.MessagesApi, judge: AnthropicJudge) -> None:
    server.script(api.failure(400, SECRET, code=SECRET, request_id=SECRET))
    assert (await failed(judge)).request_id is None


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry_after": "7"}, 7.0),
        ({"retry_after": "0.5"}, 0.5),
        ({"retry_after_ms": "250", "retry_after": "7"}, 0.25),
        ({"retry_after": formatdate(NOW + 90, usegmt=True)}, 90.0),
        ({"retry_after": formatdate(NOW - 90, usegmt=True)}, 0.0),
        ({"retry_after": "3600"}, 3_600.0),
        ({"retry_after": "soon"}, None),
    ],
)
async def test_retry_after_is_read(
    server: api.MessagesApi, judge: AnthropicJudge, headers: dict[str, str], seconds: float | None
) -> None:
    server.script(api.rate_limited(**headers))
    started = time.monotonic()
    assert (await failed(judge)).retry_after == seconds
    assert time.monotonic() - started < 2, "the adapter tells the wish, it doesn't wait"


async def test_growing_too_fast_is_waited_out(server: api.MessagesApi, judge: AnthropicJudge) -> None:
    server.script(api.failure(429, "rate_limit_error", code="ramp_limit_exceeded", retry_after="20"))
    error = await failed(judge)
    assert (type(error), error.error_type, error.retry_after) == (JudgeUnavailable, "rate_limit", 20.0)


async def test_an_answer_of_a_megabyte_is_read(server: api.MessagesApi, judge: AnthropicJudge) -> None:
    server.script(api.message("x" * 1_000_000))
    assert len((await judge.complete(REQUEST, timeout=20)).text) == 1_000_000


@pytest.mark.parametrize("reply", [api.hang(), api.trickle(0.05)])
async def test_the_timeout_bounds_the_whole_call(
    server: api.MessagesApi, judge: AnthropicJudge, reply: api.Reply
) -> None:
    server.script(reply)
    started = time.monotonic()
    error = await failed(judge, seconds=0.3)
    assert (type(error), error.error_type) == (JudgeUnavailable, "timeout")
    assert time.monotonic() - started < 1.5


async def test_a_call_after_a_dropped_one_gets_through(server: api.MessagesApi, judge: AnthropicJudge) -> None:
    server.script(api.drop(), api.message("{}"))
    await failed(judge)
    assert (await judge.complete(REQUEST, timeout=5)).text == "{}"


async def test_nobody_listening_is_a_connection_error() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        judge = AnthropicJudge("m", api_key=api.API_KEY, base_url=f"http://127.0.0.1:{port}")
        error = await failed(judge)
        await judge.aclose()
    assert (type(error), error.error_type) == (JudgeUnavailable, "connection")


async def test_a_wrong_key_is_fatal_and_stays_secret(server: api.MessagesApi) -> None:
    judge = AnthropicJudge("m", api_key="another-key", base_url=server.base_url)
    error = await failed(judge)
    await judge.aclose()
    assert error.error_type == "authentication"
    assert "another-key" not in str(error)


async def test_an_explicit_key_and_address_win_over_the_environment(
    server: api.MessagesApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "from-the-environment")
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "from-the-environment")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:1")
    judge = AnthropicJudge("m", api_key=api.API_KEY, base_url=server.base_url)
    server.script(api.message("{}"))
    await judge.complete(REQUEST, timeout=5)
    await judge.aclose()


@pytest.mark.parametrize("blank", ["", "  \n"])
async def test_a_blank_answer_can_be_quoted_back(
    server: api.MessagesApi, judge: AnthropicJudge, blank: str
) -> None:
    talk = (*REQUEST.messages, Message(role="assistant", text=blank), Message(role="user", text="again"))
    server.script(api.message("{}"))
    await judge.complete(msgspec.structs.replace(REQUEST, messages=talk), timeout=5)


async def test_text_that_is_no_utf8_is_sent_all_the_same(server: api.MessagesApi, judge: AnthropicJudge) -> None:
    odd = (Message(role="user", text="half a pair: \ud83d, a NUL: \0"),)
    server.script(api.message("{}"))
    await judge.complete(msgspec.structs.replace(REQUEST, messages=odd), timeout=5)
    assert server.requests[0].body["messages"][0]["content"] == "half a pair: ?, a NUL: \0"


async def test_calls_run_side_by_side(server: api.MessagesApi, judge: AnthropicJudge) -> None:
    server.script(*[msgspec.structs.replace(api.message("{}"), delay_s=0.3) for _ in range(16)])
    started = time.monotonic()
    await asyncio.gather(*(judge.complete(REQUEST, timeout=5) for _ in range(16)))
    assert time.monotonic() - started < 2.4, "sixteen in a row would take 4.8 s"


async def test_a_canceled_call_is_canceled(server: api.MessagesApi, judge: AnthropicJudge) -> None:
    server.script(api.hang())
    task = asyncio.create_task(judge.complete(REQUEST, timeout=20))
    await asyncio.to_thread(server.wait_for, 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize(
    "change",
    [
        {"extra_body": {"temperature": 0}},
        {"extra_body": {"top_p": 0.9}},
        {"extra_body": {"output_config": {"effort": "low"}}},
        {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "{"}]},
        {"messages": [{"role": "user", "content": " "}]},
        {"extra_headers": {"anthropic-version": "2020-01-01"}},
        {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
    ],
)
async def test_the_server_refuses_what_the_api_refuses(
    server: api.MessagesApi, judge: AnthropicJudge, change: dict[str, Any]
) -> None:
    """The stand-in must be able to fail us, or the tests above show nothing."""
    valid: dict[str, Any] = {
        "model": "m",
        "max_tokens": 10,
        "system": [{"type": "text", "text": "s"}],
        "messages": [{"role": "user", "content": "a"}],
        "output_config": {"format": {"type": "json_schema", "schema": anthropic.transform_schema(SCHEMA)}},
    }
    server.script(api.message("{}"))
    await judge.client.messages.create(**valid)
    with pytest.raises(anthropic.BadRequestError):
        await judge.client.messages.create(**(valid | change))
