"""The seam between the judge flow and whatever answers: a request, a completion, a model.

A request carries the rendered prompt *and* the structured window, so that an offline judge answers in the same
JSON and goes through the same parser, repair and audit as a language model.
"""

from __future__ import annotations

from typing import Any, Final, Literal, Protocol, TypeAlias, get_args

import msgspec

from monitor.judgement import Usage
from monitor.judging.quota import Limits

Stop: TypeAlias = Literal["end", "max_tokens", "refusal"]
UnavailableType: TypeAlias = Literal[
    "rate_limit", "overloaded", "server_error", "timeout", "connection", "bad_response"
]
FatalType: TypeAlias = Literal[
    "authentication", "permission", "not_found", "invalid_request", "too_large", "spend_limit"
]
# The closed set behind `judge_requests_total{error_type}`, next to `none` for a call that was answered.
ERROR_TYPES: Final = (*get_args(UnavailableType), *get_args(FatalType))


class Message(msgspec.Struct, kw_only=True, frozen=True):
    """One message of the prompt after the system part."""

    role: Literal["user", "assistant"]
    text: str


class JudgeRequest(msgspec.Struct, kw_only=True, frozen=True):
    """One question to a judge.

    `system` is the frozen prefix of a rubric and prompt version; `messages` ends with a user message (the
    transcript, or the repair). `schema` is the JSON Schema of the answer; `window` the rubric's own structure.
    """

    rubric: str
    window_id: str
    system: str
    messages: tuple[Message, ...]
    schema: dict[str, Any]
    max_tokens: int
    window: Any


class Completion(msgspec.Struct, kw_only=True, frozen=True):
    """One answer. `text` is what the model wrote, whatever it is; `stop` says why it ended.

    `refusal` is the provider's category of a refusal, if it named one; `limits` what the reply told of its limits.
    `cost_nusd` (1e-9 $) is filled in by whoever charges the call.
    """

    text: str
    stop: Stop = "end"
    usage: Usage = Usage()
    request_id: str | None = None
    duration_ms: int = 0
    refusal: str | None = None
    limits: Limits | None = None
    cost_nusd: int = 0


class Instrument(Protocol):
    """Who judges. `name` is the label of the instrument, e.g. `lexical` or `anthropic:claude-haiku-5-5`."""

    @property
    def name(self) -> str:
        """The whole name."""
        ...

    @property
    def provider(self) -> str:
        """Who runs it."""
        ...

    @property
    def model(self) -> str:
        """Which of the provider's."""
        ...


class JudgeModel(Instrument, Protocol):
    """An instrument that answers when called."""

    async def complete(  # the model knows best how to stop its own call
        self,
        request: JudgeRequest,
        *,
        timeout: float,  # noqa: ASYNC109 - see above
    ) -> Completion:
        """Answer within `timeout` seconds, in one try. Raises `JudgeUnavailable` or `JudgeFatal`."""
        ...

    async def aclose(self) -> None:
        """Release connections."""
        ...
