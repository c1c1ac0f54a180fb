"""What a provider says of a model, asked over the wire through the real SDK, and what follows (facts A2)."""

import socket
from typing import Any

import pytest

from monitor.config import JudgeSettings
from monitor.errors import ConfigError, JudgeUnavailable
from monitor.judging.anthropic import AnthropicJudge
from monitor.judging.check import Checked, ModelFacts, check_judge
from monitor.judging.lexical import LexicalJudge
from tests.services import messages_api as api

pytestmark = pytest.mark.asyncio(loop_scope="module")

NAME = "claude-haiku-5-5"
NO_EFFORT = {"effort": {"supported": False, "low": {"supported": False}}}


async def check(judge: AnthropicJudge, **settings: Any) -> Checked:
    return await check_judge(judge, JudgeSettings(**settings), timeout=5)


async def refused(judge: AnthropicJudge, **settings: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        await check(judge, **settings)
    return str(caught.value)


async def test_a_model_that_fits_raises_no_warning(server: api.MessagesApi, judge: AnthropicJudge) -> None:
    server.models = [api.model(NAME)]
    checked = await check(judge)
    assert checked.warnings == ()
    assert checked.facts == ModelFacts(
        known=True,
        lifecycle="active",
        structured_outputs=True,
        efforts=frozenset({"low", "medium", "high", "xhigh", "max"}),
        max_tokens=64_000,
    )
    assert [item.path for item in server.looked_up] == [f"/v1/models/{NAME}"]
    assert server.looked_up[0].headers["authorization"] == f"Bearer {api.API_KEY}"


async def test_an_unknown_model_names_the_setting_and_what_there_is(
    server: api.MessagesApi, judge: AnthropicJudge
) -> None:
    server.models = [api.model("claude-sonnet-5-5"), api.model("claude-opus-5-5")]
    assert await refused(judge) == (
        "judge.model = 'anthropic:claude-haiku-5-5': the provider has no such model. Set judge.model to one that "
        "it has (claude-sonnet-5-5, claude-opus-5-5)"
    )


async def test_a_long_list_of_models_is_cut(server: api.MessagesApi, judge: AnthropicJudge) -> None:
    server.models = [api.model(f"claude-{number}") for number in range(30)]
    assert (await refused(judge)).endswith("claude-6, claude-7, ...)")


async def test_a_retired_model_is_refused_with_its_date(server: api.MessagesApi, judge: AnthropicJudge) -> None:
    server.models = [api.model(NAME, lifecycle="retired", retires_at="2026-11-30T00:00:00Z")]
    text = await refused(judge)
    assert "judge.model" in text
    assert "retired since 2026-11-30" in text


async def test_a_deprecated_model_is_a_warning_with_its_date(
    server: api.MessagesApi, judge: AnthropicJudge
) -> None:
    server.models = [api.model(NAME, lifecycle="deprecated", retires_at="2027-01-22T00:00:00Z")]
    checked = await check(judge)
    assert len(checked.warnings) == 1
    assert "deprecated and retires on 2027-01-22" in checked.warnings[0]
    assert checked.facts.retires_at == 1_800_576_000.0


async def test_a_date_that_has_passed_on_a_deprecated_model_is_no_retirement(
    server: api.MessagesApi, judge: AnthropicJudge
) -> None:
    """Overdue means that it still answers: `lifecycle` is the signal."""
    server.models = [api.model(NAME, lifecycle="deprecated", retires_at="2020-01-01T00:00:00Z")]
    assert len((await check(judge)).warnings) == 1


async def test_a_model_without_structured_output_is_refused(
    server: api.MessagesApi, judge: AnthropicJudge
) -> None:
    server.models = [api.model(NAME, capabilities={"structured_outputs": {"supported": False}})]
    text = await refused(judge)
    assert "judge.model" in text
    assert "no structured output" in text


@pytest.mark.parametrize("capabilities", [None, {}, {"a_capability_of_next_year": {"supported": False}}])
async def test_what_is_not_told_is_not_held_against_a_model(
    server: api.MessagesApi, judge: AnthropicJudge, capabilities: dict[str, Any] | None
) -> None:
    server.models = [api.model(NAME, capabilities=capabilities, lifecycle="a_stage_of_next_year", max_tokens=None)]
    checked = await check(judge)
    assert checked == Checked(facts=ModelFacts(known=True))


async def test_an_effort_that_the_model_does_not_take_names_those_it_takes(
    server: api.MessagesApi, judge: AnthropicJudge
) -> None:
    effort = {"supported": True, "low": {"supported": True}, "max": {"supported": False}, "xhigh": None}
    server.models = [api.model(NAME, capabilities={"effort": effort})]
    assert await refused(judge, effort="max") == (
        "judge.effort = 'max': claude-haiku-5-5 doesn't take it; allowed is default, low"
    )
    assert (await check(judge, effort="low")).warnings == ()


async def test_a_model_without_effort_takes_only_the_default(
    server: api.MessagesApi, judge: AnthropicJudge
) -> None:
    server.models = [api.model(NAME, capabilities=NO_EFFORT)]
    assert "allowed is default" in await refused(judge)
    assert (await check(judge, effort="default")).warnings == ()


async def test_more_tokens_than_the_model_writes_are_refused(
    server: api.MessagesApi, judge: AnthropicJudge
) -> None:
    server.models = [api.model(NAME, max_tokens=4_096)]
    assert await refused(judge) == "judge.max_tokens = 8192: claude-haiku-5-5 writes at most 4096"
    assert (await check(judge, max_tokens=4_096)).warnings == ()


async def test_a_gateway_without_the_endpoint_is_a_warning(server: api.MessagesApi, judge: AnthropicJudge) -> None:
    """404 of the path is not 404 of the model: the list of models tells them apart."""
    assert server.models is None
    checked = await check(judge)
    assert len(checked.warnings) == 1
    assert "doesn't tell about models" in checked.warnings[0]
    assert checked.facts == ModelFacts()


@pytest.mark.parametrize(
    "reply", [api.html(), api.raw(b"{}"), api.raw(b'{"id": 1}'), api.raw(b"\xff"), api.raw(b""), api.html(404)]
)
async def test_a_gateway_that_answers_something_else_is_a_warning(
    server: api.MessagesApi, judge: AnthropicJudge, reply: api.Reply
) -> None:
    server.model_reply = reply
    assert len((await check(judge)).warnings) == 1


@pytest.mark.parametrize(
    ("reply", "error_type"),
    [(api.overloaded(), "overloaded"), (api.html(502), "server_error"), (api.drop(None), "connection")],
)
async def test_a_provider_that_cannot_be_asked_says_so(
    server: api.MessagesApi, judge: AnthropicJudge, reply: api.Reply, error_type: str
) -> None:
    server.model_reply = reply
    with pytest.raises(JudgeUnavailable) as caught:
        await check(judge)
    assert caught.value.error_type == error_type


async def test_nobody_listening_is_a_connection_error() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        judge = AnthropicJudge(NAME, api_key=api.API_KEY, base_url=f"http://127.0.0.1:{probe.getsockname()[1]}")
        with pytest.raises(JudgeUnavailable):
            await check(judge)
        await judge.aclose()


async def test_the_lexical_judge_has_nothing_to_be_asked() -> None:
    assert await check_judge(LexicalJudge(), JudgeSettings()) == Checked(facts=ModelFacts())
