"""From settings to a judge: the one place that knows which judges there are."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

from pydantic import SecretStr

from monitor.errors import ConfigError
from monitor.judging.batches import BatchClient, BatchPolicy
from monitor.judging.lexical import LexicalJudge
from monitor.judging.limits import LimitPolicy
from monitor.judging.model import JudgeModel
from monitor.judging.retry import RetryPolicy
from monitor.settings import ENV_PREFIX, BatchSettings, InstrumentSettings

PROVIDERS: Final = ("anthropic", "openai_compatible")
_ALLOWED: Final = (
    "`lexical`, `anthropic:<model>`, such as anthropic:claude-haiku-5-5, or `openai_compatible:<model>`"
)
_MODEL: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@/-]{0,127}")


def open_judge(settings: InstrumentSettings) -> JudgeModel:
    """Make the judge, or the screen, that `model` names; close it with `aclose`. Raises `ConfigError`."""
    provider, model = _named(settings)
    if provider == "anthropic":
        return _anthropic(model, settings)
    return LexicalJudge() if provider == "lexical" else _openai_compatible(model, settings)


def judge_name(settings: InstrumentSettings) -> str:
    """Give the `name` of what `model` asks for, without its key. Raises `ConfigError`."""
    provider, model = _named(settings)
    return f"{provider}:{model}" if model else provider


def key_variable(settings: InstrumentSettings) -> str:
    """Name the environment variable that a key is best set by."""
    return f"{ENV_PREFIX}{settings.where.replace('.', '__').upper()}__API_KEY"


def open_batches(judge: JudgeModel) -> BatchClient:
    """Give the batches of a judge's provider. Raises `ConfigError` when it has none."""
    if judge.provider != "anthropic":
        raise ConfigError(
            f"judge.batch.enabled = true: the judge {judge.name} has no batches; allowed with anthropic:<model>"
        )
    from monitor.judging.anthropic import AnthropicJudge  # noqa: PLC0415 - see `_anthropic`
    from monitor.judging.anthropic_batches import AnthropicBatches  # noqa: PLC0415

    if not isinstance(judge, AnthropicJudge):
        raise TypeError(type(judge).__name__)
    return AnthropicBatches(judge)


def batch_policy(settings: BatchSettings) -> BatchPolicy:
    """Give the policy of batches that the settings ask for."""
    return BatchPolicy(
        max_requests=settings.max_requests,
        max_wait_s=settings.max_wait_s,
        poll_s=settings.poll_s,
        cancel=settings.on_shutdown == "cancel",
    )


def retry_policy(settings: InstrumentSettings) -> RetryPolicy:
    """Give the driver's policy that the settings ask for."""
    return RetryPolicy(
        deadline_s=settings.deadline_s,
        attempt_timeout_s=settings.attempt_timeout_s,
        retry_after_cap_s=settings.retry_after_cap_s,
    )


def limit_policy(settings: InstrumentSettings) -> LimitPolicy:
    """Give the limits on calls that the settings ask for; no more calls than jobs are in flight."""
    return LimitPolicy(
        start=settings.start_concurrency,
        maximum=settings.concurrency,
        requests_per_minute=settings.requests_per_minute,
        input_tokens_per_minute=settings.input_tokens_per_minute,
        output_tokens_per_minute=settings.output_tokens_per_minute,
    )


def _named(settings: InstrumentSettings) -> tuple[str, str]:
    """Give provider and model; the lexical judge has no model to choose."""
    if settings.model == "lexical":
        return "lexical", ""
    provider, _, model = settings.model.partition(":")
    if provider not in PROVIDERS or not _MODEL.fullmatch(model):
        raise ConfigError(f"{settings.where}.model = {settings.model!r}: must be {_ALLOWED}")
    return provider, model


def _anthropic(model: str, settings: InstrumentSettings) -> JudgeModel:
    key = _api_key(settings)
    if key is None:
        where = settings.where
        raise ConfigError(f"{where}.api_key is not set, and {where}.model needs one: set {key_variable(settings)}")
    # Imported here because the SDK takes seconds to load, which the lexical judge and other commands don't need.
    from monitor.judging.anthropic import BASE_URL, AnthropicJudge  # noqa: PLC0415 - see above

    return AnthropicJudge(
        model,
        api_key=key,
        base_url=_base_url(settings) or BASE_URL,
        effort=settings.effort,
        cache_ttl=settings.cache_ttl,
    )


def _openai_compatible(model: str, settings: InstrumentSettings) -> JudgeModel:
    base_url = _base_url(settings)
    if base_url is None:
        raise ConfigError(
            f"{settings.where}.base_url is not set, and openai_compatible needs one, such as http://127.0.0.1:8000/v1"
        )
    # Imported here because the client takes a while to load, which other judges and commands don't need.
    from monitor.judging.openai_compatible import OpenAICompatibleJudge  # noqa: PLC0415 - see above

    return OpenAICompatibleJudge(
        model,
        base_url=base_url,
        api_key=_api_key(settings),
        key_header=settings.key_header,
        headers={name: _header(settings.where, name, value) for name, value in settings.headers.items()},
        query=settings.query,
        effort=settings.effort,
        answer_format=settings.answer_format,
    )


def _header(where: str, name: str, secret: SecretStr) -> str:
    value = secret.get_secret_value().strip()
    if not (re.fullmatch(r"[A-Za-z0-9-]+", name) and re.fullmatch(r"[ -~]*", value)):
        raise ConfigError(
            f"{where}.headers.{name}: a header has a name of letters, digits and dashes, and plain text"
        )
    return value


def _api_key(settings: InstrumentSettings) -> str | None:
    # A secret mounted from a file often ends in a newline; anything else that no header can hold is a mistake.
    key = settings.api_key.get_secret_value().strip() if settings.api_key else ""
    if not key:
        return None
    if not re.fullmatch(r"[!-~]+", key):
        raise ConfigError(
            f"{settings.where}.api_key holds characters that no key has (blanks or non-ASCII): "
            f"set {key_variable(settings)} anew"
        )
    return key


def _base_url(settings: InstrumentSettings) -> str | None:
    # Checked here, since the SDK would report a wrong scheme as a connection error, call after call.
    url = settings.base_url
    if url is None:
        return None
    try:
        parts = urlsplit(url)
        fine = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fine = False
    if not fine:
        shown = "" if "@" in url else f" = {url!r}"  # it may hold a password
        raise ConfigError(f"{settings.where}.base_url{shown}: must be an http or https URL with a host")
    return url
