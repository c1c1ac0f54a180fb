"""The judge for OpenAI-compatible servers, through real httpx, against a local server with their dialects."""

import asyncio
import json
import socket
import time
import traceback
from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from monitor.config import JudgeSettings
from monitor.errors import ConfigError, JudgeError, JudgeFatal, JudgeUnavailable
from monitor.judging.chat_dialect import Dialect
from monitor.judging.check import check_judge
from monitor.judging.model import ERROR_TYPES, JudgeRequest, Message
from monitor.judging.openai_compatible import OpenAICompatibleJudge, endpoint
from monitor.judging.quota import Limits, Quota
from tests.services import chat_completions as api
from tests.unit.judging.conftest import NOW

SECRET = "the transcript says: temperature and seed in my flat in Elm Row"
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
ANSWER = '{"quote": "Elm Row", "score": 5}'
KEYS = ["model", "messages", "max_tokens", "temperature", "seed", "response_format"]

# One server, client and loop for the module: making a client loads the trust store. What a judge has learned goes.
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def chat_api() -> Iterator[api.ChatApi]:
    with api.ChatApi() as server:
        yield server


@pytest.fixture
def server(chat_api: api.ChatApi) -> Iterator[api.ChatApi]:
    chat_api.reset()
    yield chat_api
    chat_api.check()


def made(server: api.ChatApi, **changes: Any) -> OpenAICompatibleJudge:
    values: dict[str, Any] = {"base_url": server.base_url, "api_key": api.API_KEY, "wall": lambda: NOW}
    return OpenAICompatibleJudge("a-model", **(values | changes))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(chat_api: api.ChatApi) -> AsyncIterator[OpenAICompatibleJudge]:
    judge = made(chat_api)
    yield judge
    await judge.aclose()


@pytest.fixture
def judge(shared: OpenAICompatibleJudge) -> OpenAICompatibleJudge:
    shared._dialect = Dialect()
    return shared


async def failed(judge: OpenAICompatibleJudge, seconds: float = 5.0) -> JudgeError:
    with pytest.raises(JudgeError) as caught:
        await judge.complete(REQUEST, timeout=seconds)
    error = caught.value
    assert error.error_type in ERROR_TYPES
    shown = "".join(traceback.format_exception(error)) + repr(error) + repr(vars(error))
    assert SECRET not in shown
    assert api.API_KEY not in shown
    assert error.__context__ is None
    assert error.__cause__ is None
    return error


# -- the request -------------------------------------------------------------------------------------------


async def test_an_answer_becomes_a_completion(server: api.ChatApi, judge: OpenAICompatibleJudge) -> None:
    server.script(msgspec.structs.replace(api.chat(ANSWER), headers={"x-request-id": "req-7"}))
    completion = await judge.complete(REQUEST, timeout=5)
    assert (completion.text, completion.stop, completion.request_id) == (ANSWER, "end", "req-7")
    usage = completion.usage
    assert (usage.cache_read_tokens, usage.thinking_tokens, usage.estimated) == (3, 7, False)
    assert usage.input_tokens > 0
    assert usage.output_tokens > 7
    assert (judge.name, judge.provider, judge.model) == (
        "openai_compatible:a-model",
        "openai_compatible",
        "a-model",
    )


async def test_the_request_has_schema_seed_and_temperature_and_the_transcript_last(
    server: api.ChatApi, judge: OpenAICompatibleJudge
) -> None:
    server.script(api.chat(ANSWER))
    await judge.complete(REQUEST, timeout=5)
    body = server.requests[0].body
    assert list(body) == KEYS
    assert (body["model"], body["temperature"], body["seed"], body["max_tokens"]) == ("a-model", 0, 0, 1_024)
    assert body["messages"] == [
        {"role": "system", "content": "You judge."},
        {"role": "user", "content": SECRET},
    ]
    shape = {"name": "answer", "strict": True, "schema": SCHEMA}
    assert body["response_format"] == {"type": "json_schema", "json_schema": shape}
    assert list(body["response_format"]["json_schema"]["schema"]["properties"]) == ["quote", "score"]


@pytest.mark.parametrize(
    ("base", "address"),
    [
        ("http://host:8000", "http://host:8000/v1/chat/completions"),
        ("http://host:8000/", "http://host:8000/v1/chat/completions"),
        ("http://host:8000/v1", "http://host:8000/v1/chat/completions"),
        ("http://host:8000/v1/", "http://host:8000/v1/chat/completions"),
        ("http://host/llm", "http://host/llm/v1/chat/completions"),
        ("https://host/openai/v1?a=b", "https://host/openai/v1/chat/completions?a=b"),
        ("https://host/v1beta/openai", "https://host/v1beta/openai/chat/completions"),
        ("https://host/openai/deployments/d", "https://host/openai/deployments/d/chat/completions"),
        ("https://host/chat/completions", "https://host/chat/completions"),
    ],
)
async def test_an_address_is_completed(base: str, address: str) -> None:
    assert endpoint(base) == address


async def test_a_deployment_of_azure_with_its_key_header_and_version(server: api.ChatApi) -> None:
    server.path = "/openai/deployments/d/chat/completions"
    server.key_header, server.query = "api-key", {"api-version": "2026-10-01"}
    for base, query in [
        ("/openai/deployments/d", {"api-version": "2026-10-01"}),
        ("/openai/deployments/d?api-version=2026-10-01", {}),
    ]:
        server.script(api.chat(ANSWER))
        judge = made(server, base_url=server.base_url + base, key_header="api-key", query=query)
        assert (await judge.complete(REQUEST, timeout=5)).text == ANSWER
        await judge.aclose()
    assert "authorization" not in server.requests[0].headers


async def test_headers_are_sent_and_a_key_is_not_needed(server: api.ChatApi) -> None:
    server.key_header = None
    server.script(api.chat(ANSWER))
    judge = made(server, api_key=None, headers={"x-team": "quality"})
    await judge.complete(REQUEST, timeout=5)
    await judge.aclose()
    assert server.requests[0].headers["x-team"] == "quality"
    assert "authorization" not in server.requests[0].headers


async def test_an_effort_is_sent_when_it_is_set(server: api.ChatApi) -> None:
    server.script(api.chat(ANSWER))
    judge = made(server, effort="high")
    await judge.complete(REQUEST, timeout=5)
    await judge.aclose()
    assert server.requests[0].body["reasoning_effort"] == "high"


@pytest.mark.parametrize("blank", ["", "  \n"])
async def test_a_blank_answer_can_be_quoted_back_and_odd_text_sent(
    server: api.ChatApi, judge: OpenAICompatibleJudge, blank: str
) -> None:
    odd = Message(role="user", text="half a pair: \ud83d, a NUL: \0")
    talk = (*REQUEST.messages, Message(role="assistant", text=blank), odd)
    server.script(api.chat(ANSWER))
    await judge.complete(msgspec.structs.replace(REQUEST, messages=talk), timeout=5)
    assert server.requests[0].body["messages"][-1]["content"] == "half a pair: ?, a NUL: \0"


# -- what a server doesn't take ----------------------------------------------------------------------------


@pytest.mark.parametrize("blames", ["param", "prose", "detail"])
@pytest.mark.parametrize(
    ("refuses", "changed"),
    [
        ("temperature", [key for key in KEYS if key != "temperature"]),
        ("seed", [key for key in KEYS if key != "seed"]),
        ("max_tokens", ["max_completion_tokens" if key == "max_tokens" else key for key in KEYS]),
    ],
)
async def test_a_parameter_that_is_refused_is_left_out_from_then_on(
    server: api.ChatApi, judge: OpenAICompatibleJudge, refuses: str, changed: list[str], blames: str
) -> None:
    server.refuses, server.blames = {refuses}, blames
    server.script(api.chat(ANSWER), api.chat(ANSWER))
    with capture_logs() as logs:
        assert (await judge.complete(REQUEST, timeout=5)).text == ANSWER
        assert (await judge.complete(REQUEST, timeout=5)).text == ANSWER
    assert [sorted(item.body) for item in server.requests[1:]] == [sorted(changed)] * 2
    assert len(server.requests) == 3, "learned once"
    assert [entry["event"] for entry in logs] == ["judge_server_differs"], "said once"
    assert SECRET not in str(logs)


async def test_a_reasoning_model_that_takes_next_to_nothing(server: api.ChatApi) -> None:
    server.refuses = {"temperature", "seed", "max_tokens", "reasoning_effort", "system"}
    server.script(api.chat(ANSWER))
    judge = made(server, effort="low")
    assert (await judge.complete(REQUEST, timeout=5)).text == ANSWER
    await judge.aclose()
    body = server.requests[-1].body
    assert sorted(body) == ["max_completion_tokens", "messages", "model", "response_format"]
    assert body["messages"] == [{"role": "user", "content": f"You judge.\n\n{SECRET}"}]
    assert len(server.requests) == 6


@pytest.mark.parametrize("blames", ["param", "prose", "detail"])
@pytest.mark.parametrize(
    ("formats", "form", "calls"),
    [(("json_object",), {"type": "json_object"}, 3), ((), None, 4)],
)
async def test_a_server_without_schemas_gets_it_in_words(
    server: api.ChatApi,
    judge: OpenAICompatibleJudge,
    formats: tuple[str, ...],
    form: dict[str, str] | None,
    calls: int,
    blames: str,
) -> None:
    server.formats, server.blames = formats, blames
    server.script(api.chat(ANSWER), api.chat(ANSWER))
    assert (await judge.complete(REQUEST, timeout=5)).text == ANSWER
    assert len(server.requests) == calls
    await judge.complete(REQUEST, timeout=5)
    assert len(server.requests) == calls + 1, "remembered"
    body = server.requests[-1].body
    assert body.get("response_format") == form
    system = body["messages"][0]["content"]
    assert system.startswith("You judge.\n\n")
    assert json.loads(system.splitlines()[-1]) == SCHEMA
    assert body["messages"][-1]["content"] == SECRET


async def test_a_grammar_without_bounds_gets_the_schema_without_them(
    server: api.ChatApi, judge: OpenAICompatibleJudge
) -> None:
    server.bounds = False
    server.script(api.chat(ANSWER))
    await judge.complete(REQUEST, timeout=5)
    shape = server.requests[-1].body["response_format"]
    assert shape["type"] == "json_schema"
    assert shape["json_schema"]["schema"]["properties"]["score"] == {"type": "integer"}
    assert SCHEMA["properties"]["score"]["minimum"] == 1  # type: ignore[index]


@pytest.mark.parametrize("answer", ["Sure! The score is 5.", '{"verdict": "fine"}', "[" * 100_000, ""])
async def test_a_server_that_ignores_the_schema_gets_it_in_words_as_well(
    server: api.ChatApi, judge: OpenAICompatibleJudge, answer: str
) -> None:
    server.script(api.chat(answer), api.chat(answer), api.chat(ANSWER))
    with capture_logs() as logs:
        assert (await judge.complete(REQUEST, timeout=5)).text == answer, "the parser's business, not ours"
        await judge.complete(REQUEST, timeout=5)
        await judge.complete(REQUEST, timeout=5)
    assert [entry["event"] for entry in logs] == ["judge_server_differs"], "said once"
    assert len(server.requests) == 3, "an answer was paid for: it is not asked for again in here"
    for request in server.requests[1:]:
        assert "JSON Schema" in request.body["messages"][0]["content"]
        assert request.body["response_format"]["type"] == "json_schema"


@pytest.mark.parametrize("finish", ["length", "content_filter"])
async def test_an_answer_that_was_cut_off_teaches_nothing(
    server: api.ChatApi, judge: OpenAICompatibleJudge, finish: str
) -> None:
    server.script(api.chat('{"quo', finish=finish), api.chat(ANSWER))
    await judge.complete(REQUEST, timeout=5)
    await judge.complete(REQUEST, timeout=5)
    assert server.requests[1].body["messages"][0]["content"] == "You judge."


async def test_calls_side_by_side_learn_once(server: api.ChatApi, judge: OpenAICompatibleJudge) -> None:
    server.refuses, server.formats = {"seed"}, ("json_object",)
    server.script(*[api.chat(ANSWER)] * 12)
    with capture_logs() as logs:
        answers = await asyncio.gather(*(judge.complete(REQUEST, timeout=10) for _ in range(12)))
    assert {answer.text for answer in answers} == {ANSWER}
    assert len(logs) == 3, "seed, bounds, schema"
    assert len(server.requests) <= 12 * 4


@pytest.mark.parametrize("form", ["json_schema", "json_object", "text"])
async def test_a_form_of_answer_that_is_set_stays(server: api.ChatApi, form: str) -> None:
    judge = made(server, answer_format=form)
    server.script(api.chat("no JSON"), api.chat(ANSWER))
    await judge.complete(REQUEST, timeout=5)
    await judge.complete(REQUEST, timeout=5)
    bodies = [request.body for request in server.requests]
    assert bodies[0] == bodies[1]
    assert bodies[0].get("response_format", {"type": "text"})["type"] == form
    server.formats = ()
    if form != "text":
        assert (await failed(judge)).error_type == "invalid_request"
    await judge.aclose()


async def test_a_gateway_that_has_no_server_for_a_parameter(
    server: api.ChatApi, judge: OpenAICompatibleJudge
) -> None:
    text = "No endpoints found that can handle the requested parameters: seed"
    server.script(api.failure(404, "not_found", text, code=404), api.chat(ANSWER))
    assert (await judge.complete(REQUEST, timeout=5)).text == ANSWER
    assert "seed" not in server.requests[1].body


async def test_a_transcript_that_is_quoted_in_an_error_switches_nothing_off(
    server: api.ChatApi, judge: OpenAICompatibleJudge
) -> None:
    server.script(api.failure(400, "invalid_request_error", f"bad {'x' * 300} {SECRET} response_format"))
    assert (await failed(judge)).error_type == "invalid_request"
    assert len(server.requests) == 1


# -- the answer --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (f"```json\n{ANSWER}\n```", ANSWER),
        (f"\n```\n{ANSWER}```\n", ANSWER),
        (f"<think>Is it {{5}}?\n</think>\n\n{ANSWER}", ANSWER),
        (f"<think>a</think>```json\n{ANSWER}\n```", ANSWER),
        (f"Here you are:\n```json\n{ANSWER}\n```", f"Here you are:\n```json\n{ANSWER}\n```"),
        ("```json\n1\n```\n```json\n2\n```", "```json\n1\n```\n```json\n2\n```"),
        (ANSWER + " ", ANSWER + " "),
    ],
)
async def test_fences_and_thoughts_around_all_of_an_answer_are_taken_off(
    server: api.ChatApi, judge: OpenAICompatibleJudge, text: str, kept: str
) -> None:
    server.script(api.chat(text))
    assert (await judge.complete(REQUEST, timeout=5)).text == kept


async def test_parts_are_put_together(server: api.ChatApi, judge: OpenAICompatibleJudge) -> None:
    first, last = '{"quote": "a", ', '"score": 1}'
    parts = [{"type": "text", "text": first}, {"type": "thinking"}, {"type": "text", "text": last}]
    server.script(api.chat(None, message={"content": parts}))
    assert (await judge.complete(REQUEST, timeout=5)).text == '{"quote": "a", "score": 1}'


@pytest.mark.parametrize(
    ("reply", "stop", "text", "category"),
    [
        (api.chat(ANSWER, finish=None), "end", ANSWER, None),
        (api.chat('{"a', finish="length"), "max_tokens", '{"a', None),
        (api.chat(None, finish="length"), "max_tokens", "", None),
        (api.chat("", finish="content_filter"), "refusal", "", "content_filter"),
        (api.chat(None, message={"refusal": "I can't."}), "refusal", "I can't.", None),
        (api.azure_filter(), "refusal", "", "content_filter"),
    ],
)
async def test_how_an_answer_ended(
    server: api.ChatApi,
    judge: OpenAICompatibleJudge,
    reply: api.Reply,
    stop: str,
    text: str,
    category: str | None,
) -> None:
    server.script(reply)
    completion = await judge.complete(REQUEST, timeout=5)
    assert (completion.stop, completion.text, completion.refusal) == (stop, text, category)


@pytest.mark.parametrize("finish", ["tool_calls", "function_call", "a reason of next year", SECRET])
async def test_other_ends_are_bad_responses_that_were_paid_for(
    server: api.ChatApi, judge: OpenAICompatibleJudge, finish: str
) -> None:
    server.script(api.chat(None, finish=finish))
    error = await failed(judge)
    assert (type(error), error.error_type) == (JudgeUnavailable, "bad_response")
    assert error.usage is not None
    assert error.usage.input_tokens > 0


async def test_usage_that_is_not_told_is_estimated_and_marked(
    server: api.ChatApi, judge: OpenAICompatibleJudge
) -> None:
    server.usage = False
    server.script(api.chat(ANSWER))
    usage = (await judge.complete(REQUEST, timeout=5)).usage
    assert usage.estimated
    assert usage.input_tokens == -(-(len("You judge.") + len(SECRET)) // 3)
    assert usage.output_tokens == -(-len(ANSWER) // 3)


async def test_cached_tokens_are_not_counted_twice(server: api.ChatApi, judge: OpenAICompatibleJudge) -> None:
    told = {"prompt_tokens": 100, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 64}}
    server.script(api.chat(ANSWER, usage=told), api.chat(ANSWER, usage={"prompt_tokens": 9}))
    usage = (await judge.complete(REQUEST, timeout=5)).usage
    assert (usage.input_tokens, usage.cache_read_tokens, usage.output_tokens) == (36, 64, 20)
    assert (await judge.complete(REQUEST, timeout=5)).usage.input_tokens == 9


async def test_limits_are_read_from_answers_and_errors(server: api.ChatApi, judge: OpenAICompatibleJudge) -> None:
    told = {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-reset-requests": "1m2s",
    }
    expected = Limits(requests=Quota(limit=60, remaining=0, resets_in_s=62.0))
    server.script(
        msgspec.structs.replace(api.chat(ANSWER), headers=told),
        msgspec.structs.replace(api.failure(429, "requests", code="rate_limit_exceeded"), headers=told),
    )
    assert (await judge.complete(REQUEST, timeout=5)).limits == expected
    assert (await failed(judge)).limits == expected


# -- failures ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "error_type"),
    [
        (api.failure(429, "requests", code="rate_limit_exceeded"), "rate_limit"),
        (api.azure_error(429, "429"), "rate_limit"),
        (api.failure(500, "server_error"), "server_error"),
        (api.failure(503, "unavailable_error", "Loading model", code=503), "server_error"),
        (api.html(502), "server_error"),
        (api.failure(529, "overloaded_error"), "overloaded"),
        (api.failure(504, "timeout"), "timeout"),
        (api.failure(408, "timeout"), "timeout"),
        (api.failure(409, "conflict"), "server_error"),
        (api.html(400), "bad_response"),
        (
            api.failure(400, "invalid_request_error", "We could not parse the JSON body of your request."),
            "bad_response",
        ),
        (api.html(), "bad_response"),
        (api.raw(b"{}"), "bad_response"),
        (api.raw(b""), "bad_response"),
        (api.raw(b"[1]"), "bad_response"),
        (api.raw(b'{"choices": [{'), "bad_response"),
        (api.raw(b'{"choices": []}'), "bad_response"),
        (api.raw(b'{"a": "\xff"}'), "bad_response"),
        (api.raw(b"[" * 100_000), "bad_response"),
        (api.raw(b'{"error": {"message": "m", "code": 429}}'), "rate_limit"),
        (api.raw(b'{"error": {"message": "m", "code": 502}}'), "server_error"),
        (msgspec.structs.replace(api.chat(ANSWER), headers={"content-encoding": "gzip"}), "bad_response"),
        (api.drop(), "connection"),
        (api.drop(None), "connection"),
    ],
)
async def test_what_may_pass_is_unavailable(
    server: api.ChatApi, judge: OpenAICompatibleJudge, reply: api.Reply, error_type: str
) -> None:
    server.script(reply)
    error = await failed(judge)
    assert (type(error), error.error_type) == (JudgeUnavailable, error_type)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("reply", "error_type"),
    [
        (api.failure(401, "invalid_request_error", code="invalid_api_key"), "authentication"),
        (api.azure_error(401, "401"), "authentication"),
        (api.failure(403, "permission"), "permission"),
        (api.failure(404, "invalid_request_error", code="model_not_found"), "not_found"),
        (api.flat_error(404, "NotFoundError", "The model `seed-x` does not exist."), "not_found"),
        (api.azure_error(404, "DeploymentNotFound"), "not_found"),
        (api.html(404), "not_found"),
        (api.Reply(status=307, headers={"location": "http://127.0.0.1:9/v1"}), "not_found"),
        (api.failure(402, "payment"), "spend_limit"),
        (api.failure(429, "insufficient_quota", code="insufficient_quota"), "spend_limit"),
        (api.failure(400, "invalid_request_error", code="billing_hard_limit_reached"), "spend_limit"),
        (api.failure(413, "too_large"), "too_large"),
        (api.failure(400, "invalid_request_error", code="context_length_exceeded"), "too_large"),
        (api.failure(400, "exceed_context_size_error", code=400), "too_large"),
        (
            api.flat_error(
                400,
                "BadRequestError",
                "'max_tokens' or 'max_completion_tokens' is too large: 8192. This model's maximum context "
                "length is 4096 tokens and your request has 500 input tokens",
            ),
            "too_large",
        ),
        (api.failure(400, "invalid_request_error"), "invalid_request"),
        (api.failure(422, "invalid_request_error"), "invalid_request"),
        (api.raw(b'{"error": {"message": "m", "code": 401}}'), "authentication"),
    ],
)
async def test_what_needs_someone_is_fatal(
    server: api.ChatApi, judge: OpenAICompatibleJudge, reply: api.Reply, error_type: str
) -> None:
    server.script(reply)
    error = await failed(judge)
    assert (type(error), error.error_type) == (JudgeFatal, error_type)
    assert len(server.requests) == 1, "nothing to learn from it"


async def test_the_message_names_status_kind_and_request_but_no_prose(
    server: api.ChatApi, judge: OpenAICompatibleJudge
) -> None:
    server.script(
        api.failure(404, "invalid_request_error", SECRET, code="model_not_found", x_request_id="req-9"),
        api.failure(400, SECRET, SECRET[:20], code=SECRET, x_request_id=SECRET),
        api.Reply(status=301),
    )
    assert str(await failed(judge)) == (
        "not_found: status 404, model_not_found, invalid_request_error, request req-9; "
        "are judge.base_url and the model 'a-model' right?"
    )
    assert str(await failed(judge)) == "invalid_request: status 400"
    assert "judge.base_url" in str(await failed(judge))


@pytest.mark.parametrize(
    ("headers", "seconds"), [({"retry_after": "7"}, 7.0), ({"retry_after_ms": "250"}, 0.25), ({}, None)]
)
async def test_retry_after_is_read_and_not_waited_for(
    server: api.ChatApi, judge: OpenAICompatibleJudge, headers: dict[str, str], seconds: float | None
) -> None:
    server.script(api.failure(429, "requests", **headers))
    started = time.monotonic()
    assert (await failed(judge)).retry_after == seconds
    assert time.monotonic() - started < 3


@pytest.mark.parametrize("reply", [api.hang(), api.trickle(0.05)])
async def test_the_timeout_bounds_the_whole_call(
    server: api.ChatApi, judge: OpenAICompatibleJudge, reply: api.Reply
) -> None:
    server.script(reply)
    started = time.monotonic()
    error = await failed(judge, seconds=0.3)
    assert (type(error), error.error_type) == (JudgeUnavailable, "timeout")
    assert time.monotonic() - started < 5


async def test_a_wrong_key_is_fatal_and_stays_secret(server: api.ChatApi) -> None:
    judge = made(server, api_key="another-key")
    error = await failed(judge)
    await judge.aclose()
    assert error.error_type == "authentication"
    assert "another-key" not in str(error)


async def test_nobody_listening_is_a_connection_error(server: api.ChatApi) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        judge = made(server, base_url=f"http://127.0.0.1:{probe.getsockname()[1]}")
        error = await failed(judge)
        await judge.aclose()
    assert (type(error), error.error_type) == (JudgeUnavailable, "connection")


async def test_a_reply_without_end_is_cut_short(
    server: api.ChatApi, judge: OpenAICompatibleJudge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monitor.judging.openai_compatible.MAX_REPLY_BYTES", 1_000_000)
    server.script(api.chat("x" * 999_000), api.chat("x" * 1_001_000))
    assert len((await judge.complete(REQUEST, timeout=20)).text) == 999_000
    assert (await failed(judge, seconds=20)).error_type == "bad_response"


async def test_calls_run_side_by_side_and_a_canceled_one_is_canceled(
    server: api.ChatApi, judge: OpenAICompatibleJudge
) -> None:
    slow = msgspec.structs.replace(api.chat(ANSWER), delay_s=0.5)
    server.script(*[slow] * 120, api.hang())
    started = time.monotonic()
    await asyncio.gather(*(judge.complete(REQUEST, timeout=30) for _ in range(120)))
    assert time.monotonic() - started < 20, "one after the other would take a minute; httpx's own pool holds 100"
    task = asyncio.create_task(judge.complete(REQUEST, timeout=30))
    await asyncio.to_thread(server.wait_for, 121)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


# -- the check at the start --------------------------------------------------------------------------------


async def test_a_model_that_the_server_lists_is_fine(server: api.ChatApi, judge: OpenAICompatibleJudge) -> None:
    server.models = [{"id": "a-model", "object": "model", "max_model_len": 32_768}]
    checked = await check_judge(judge, JudgeSettings(), timeout=5)
    assert (checked.facts.known, checked.warnings) == (True, ())
    assert server.looked_up[0].path == "/v1/models"


async def test_a_model_that_it_does_not_list_is_a_warning(
    server: api.ChatApi, judge: OpenAICompatibleJudge
) -> None:
    """llama.cpp answers to any name, and gateways know more than they tell."""
    server.models = [{"id": "/models/tiny.gguf"}]
    checked = await check_judge(judge, JudgeSettings(), timeout=5)
    assert len(checked.warnings) == 1
    assert "/models/tiny.gguf" in checked.warnings[0]


async def test_an_answer_that_can_not_fit_the_context_is_an_error(
    server: api.ChatApi, judge: OpenAICompatibleJudge
) -> None:
    server.models = [{"id": "a-model", "max_model_len": 4_096}]
    with pytest.raises(ConfigError, match=r"judge\.max_tokens = 8192"):
        await check_judge(judge, JudgeSettings(), timeout=5)


@pytest.mark.parametrize("reply", [None, api.html(), api.raw(b"{}"), api.failure(403, "permission")])
async def test_a_server_without_a_list_is_a_warning(
    server: api.ChatApi, judge: OpenAICompatibleJudge, reply: api.Reply | None
) -> None:
    server.model_reply = reply
    assert len((await check_judge(judge, JudgeSettings(), timeout=5)).warnings) == 1


async def test_a_server_that_is_away_says_so(server: api.ChatApi, judge: OpenAICompatibleJudge) -> None:
    server.model_reply = api.failure(503, "unavailable_error", "Loading model", code=503)
    with pytest.raises(JudgeUnavailable):
        await check_judge(judge, JudgeSettings(), timeout=5)
