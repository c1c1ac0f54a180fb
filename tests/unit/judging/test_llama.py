"""The judge for OpenAI-compatible servers against a real one: llama.cpp, with a model made for the test."""

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from monitor.config import JudgeSettings
from monitor.errors import JudgeFatal
from monitor.judging.check import check_judge
from monitor.judging.model import JudgeRequest, Message
from monitor.judging.openai_compatible import OpenAICompatibleJudge
from tests.services import llama
from tests.services.parts import INSTALL, require

pytestmark = pytest.mark.asyncio(loop_scope="module")

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "mode": {"enum": ["kept", "reverted"]},
        "score": {"type": "integer", "minimum": 1, "maximum": 5},
    },
    "required": ["mode", "score"],
    "additionalProperties": False,
}
REQUEST = JudgeRequest(
    rubric="correction",
    window_id="C1",
    system="You judge. Say whether the correction was kept.",
    messages=(Message(role="user", text='A table for "four".\nNo, for five: Zoë\u2026'),),
    schema=SCHEMA,
    max_tokens=256,
    window=None,
)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    require("llama.cpp", llama.available(), INSTALL)
    with llama.llama_server(tmp_path_factory.mktemp("llama")) as address:
        yield address


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def judge(address: str) -> AsyncIterator[OpenAICompatibleJudge]:
    judge = OpenAICompatibleJudge("tiny", base_url=address, api_key=llama.API_KEY, effort="low")
    yield judge
    await judge.aclose()


async def test_an_answer_fits_the_schema_and_is_the_same_again(judge: OpenAICompatibleJudge) -> None:
    with capture_logs() as logs:
        first = await judge.complete(REQUEST, timeout=60)
        second = await judge.complete(REQUEST, timeout=60)
    assert logs == [], "llama.cpp takes all that is asked of it"
    answer = json.loads(first.text)
    assert list(answer) == ["mode", "score"]
    assert answer["mode"] in {"kept", "reverted"}
    assert 1 <= answer["score"] <= 5
    assert first.stop == "end"
    assert json.loads(second.text) == answer, "temperature 0 and a seed"
    assert not first.usage.estimated
    assert first.usage.output_tokens > 0
    assert second.usage.cache_read_tokens > 0, "the prefix was kept"
    sent = [usage.input_tokens + usage.cache_read_tokens for usage in (first.usage, second.usage)]
    assert sent[0] == sent[1]


async def test_an_answer_without_room_is_cut_off(judge: OpenAICompatibleJudge) -> None:
    short = await judge.complete(msgspec.structs.replace(REQUEST, max_tokens=4), timeout=60)
    assert short.stop == "max_tokens"
    assert short.usage.output_tokens == 4


async def test_a_session_that_does_not_fit_is_too_large(judge: OpenAICompatibleJudge) -> None:
    long = (Message(role="user", text="five " * llama.CONTEXT),)
    with pytest.raises(JudgeFatal) as caught:
        await judge.complete(msgspec.structs.replace(REQUEST, messages=long), timeout=60)
    assert caught.value.error_type == "too_large"


async def test_a_wrong_key_is_refused(address: str) -> None:
    judge = OpenAICompatibleJudge("tiny", base_url=address, api_key="another-key")
    with pytest.raises(JudgeFatal) as caught:
        await judge.complete(REQUEST, timeout=60)
    assert caught.value.error_type == "authentication"
    await judge.aclose()


async def test_the_check_tells_what_the_server_calls_its_model(judge: OpenAICompatibleJudge) -> None:
    checked = await check_judge(judge, JudgeSettings(), timeout=60)
    assert checked.facts.known is False
    assert "tiny.gguf" in checked.warnings[0]


async def test_a_schema_that_the_grammar_cannot_express_is_given_in_words(address: str) -> None:
    odd = {"type": "object", "properties": {"mode": {"type": "a type of next year"}}, "required": ["mode"]}
    judge = OpenAICompatibleJudge("tiny", base_url=address, api_key=llama.API_KEY)
    with capture_logs() as logs:
        completion = await judge.complete(msgspec.structs.replace(REQUEST, schema=odd), timeout=60)
    await judge.aclose()
    assert [entry["learned"] for entry in logs] == [
        "it refuses the schema: sending it without bounds",
        "it refuses json_schema: asking for json_object, with the schema in words",
    ]
    assert isinstance(json.loads(completion.text), dict), "json_object is held to as well"
