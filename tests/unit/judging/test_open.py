import subprocess
import sys
from typing import Any

import pytest
from pydantic import SecretStr

from monitor.config import JudgeSettings
from monitor.errors import ConfigError
from monitor.judgement import Verdict
from monitor.judging.drive import Driver, JobRun
from monitor.judging.open import judge_name, open_judge, retry_policy
from tests.services import chat_completions as chat
from tests.services import messages_api as api
from tests.unit.judging.politeness import POLITE, Politeness, job, prompt, session


def settings(**values: Any) -> JudgeSettings:
    if "api_key" in values:
        values["api_key"] = SecretStr(values["api_key"])
    return JudgeSettings(**values)


async def test_lexical_is_the_default_and_needs_no_key() -> None:
    judge = open_judge(settings())
    assert (judge.name, judge.provider) == ("lexical", "lexical")
    await judge.aclose()


async def test_an_anthropic_judge_has_what_the_settings_say(server: api.MessagesApi) -> None:
    judge = open_judge(
        settings(
            model="anthropic:claude-sonnet-5-5",
            api_key=f" {api.API_KEY}\n",  # as a file of a secret gives it
            base_url=server.base_url,
            effort="medium",
            cache_ttl="5m",
        )
    )
    server.script(api.message(POLITE))
    of = session("Gladly.")
    judged = await Driver(judge).drive(JobRun(job(of), of, Politeness(), prompt()))
    await judge.aclose()
    assert judge.name == "anthropic:claude-sonnet-5-5"
    assert judged.result == Verdict(data={"polite": [True]})  # type: ignore[union-attr]
    body = server.requests[0].body
    assert body["model"] == "claude-sonnet-5-5"
    assert body["output_config"]["effort"] == "medium"
    assert body["system"][0]["cache_control"]["ttl"] == "5m"


async def test_without_an_address_it_is_the_providers_own(monkeypatch: pytest.MonkeyPatch) -> None:
    from monitor.judging.anthropic import AnthropicJudge

    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:1")
    judge = open_judge(settings(model="anthropic:claude-haiku-5-5", api_key="k"))
    assert isinstance(judge, AnthropicJudge)
    assert str(judge.client.base_url) == "https://api.anthropic.com"
    await judge.aclose()


@pytest.mark.parametrize(
    "model",
    ["gpt", "openai:gpt-6", "anthropic", "anthropic:", "anthropic: x", "openai_compatible:", "lexical:2", ""],
)
def test_an_unknown_judge_is_refused_with_what_is_allowed(model: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_judge(settings(model=model, api_key="k"))
    text = str(caught.value)
    assert "judge.model" in text
    assert repr(model) in text
    assert "lexical" in text
    assert "anthropic:<model>" in text
    assert "openai_compatible:<model>" in text


async def test_an_openai_compatible_judge_has_what_the_settings_say() -> None:
    asked = settings(
        model="openai_compatible:org/a-model:q4",
        api_key=f"{chat.API_KEY}\n",
        key_header="api-key",
        headers={"x-team": SecretStr("quality\n")},
        query={"api-version": "1"},
        effort="high",
        answer_format="json_object",
    )
    with chat.ChatApi() as server:
        server.path, server.key_header, server.query = (
            "/deployments/d/chat/completions",
            "api-key",
            {"api-version": "1"},
        )
        judge = open_judge(asked.model_copy(update={"base_url": f"{server.base_url}/deployments/d"}))
        server.script(chat.chat(POLITE))
        of = session("Gladly.")
        judged = await Driver(judge).drive(JobRun(job(of), of, Politeness(), prompt()))
        await judge.aclose()
    assert judge.name == judge_name(asked) == "openai_compatible:org/a-model:q4"
    assert judged.result == Verdict(data={"polite": [True]})  # type: ignore[union-attr]
    body, headers = server.requests[0].body, server.requests[0].headers
    assert (body["model"], body["reasoning_effort"]) == ("org/a-model:q4", "high")
    assert body["response_format"] == {"type": "json_object"}
    assert headers["x-team"] == "quality"


def test_an_openai_compatible_judge_needs_an_address_and_no_key() -> None:
    with pytest.raises(ConfigError, match=r"judge\.base_url is not set"):
        open_judge(settings(model="openai_compatible:m"))
    assert open_judge(settings(model="openai_compatible:m", base_url="http://127.0.0.1:1")).model == "m"


@pytest.mark.parametrize("headers", [{"x-a": "a\nb"}, {"x a": "b"}, {"x-a": "schlüssel"}])
def test_a_broken_header_is_refused_and_not_shown(headers: dict[str, str]) -> None:
    secret = {name: SecretStr(value) for name, value in headers.items()}
    with pytest.raises(ConfigError, match=r"judge\.headers") as caught:
        open_judge(settings(model="openai_compatible:m", base_url="http://127.0.0.1:1", headers=secret))
    assert next(iter(headers.values())) not in str(caught.value).replace("header", "")


@pytest.mark.parametrize("key", [{}, {"api_key": ""}, {"api_key": " \n"}])
def test_a_missing_key_names_the_variable(key: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="BACKSLIDE_JUDGE__API_KEY"):
        open_judge(settings(model="anthropic:claude-haiku-5-5", **key))


def test_the_variable_that_is_named_is_the_one_that_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    from monitor.config import load
    from monitor.judging.open import key_variable

    monkeypatch.setenv(key_variable(JudgeSettings()), "k")
    key = load().judge.api_key
    assert key is not None
    assert key.get_secret_value() == "k"


@pytest.mark.parametrize("key", ["two words", "a\nb", "schlüssel"])
def test_a_broken_key_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(ConfigError, match=r"judge\.api_key") as caught:
        open_judge(settings(model="anthropic:claude-haiku-5-5", api_key=key))
    assert key not in str(caught.value)


@pytest.mark.parametrize("url", ["ftp://host", "host:80", "http://", "http://host:0", "http://host:99999", ""])
def test_a_broken_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"judge\.base_url"):
        open_judge(settings(model="anthropic:claude-haiku-5-5", api_key="k", base_url=url))


def test_a_password_in_an_address_is_not_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        open_judge(settings(model="anthropic:m", api_key="k", base_url="ftp://me:secret@host"))
    assert "secret" not in str(caught.value)


def test_the_drivers_policy_comes_from_the_settings() -> None:
    policy = retry_policy(settings(deadline_s=90, attempt_timeout_s=40, retry_after_cap_s=5))
    assert (policy.deadline_s, policy.attempt_timeout_s, policy.retry_after_cap_s) == (90, 40, 5)


def test_the_lexical_judge_does_not_load_the_sdk() -> None:
    code = (
        "import sys; from monitor.config import JudgeSettings; from monitor.judging.open import open_judge; "
        "open_judge(JudgeSettings()); sys.exit(bool({'anthropic', 'httpx'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
