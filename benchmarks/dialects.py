"""What a wire-level server can say in each provider's words, for the fault matrix."""

from __future__ import annotations

from typing import Any, Final, Protocol

import msgspec

from tests.services import chat_completions, messages_api
from tests.services.chat_completions import ChatApi
from tests.services.messages_api import MessagesApi, Reply

DOWN: Final = frozenset({"put off (down)"})


def fatal(error_type: str) -> frozenset[str]:
    """Name the ends of jobs when no call will do until someone acts: one is told so, the others don't try."""
    return frozenset({f"fatal ({error_type})", "put off (down)"})


class Fault(msgspec.Struct, kw_only=True, frozen=True):
    """One way to fail. With `every` n only each n-th call fails."""

    name: str
    reply: Reply
    leads_to: frozenset[str] = DOWN
    every: int = 1


class Dialect(Protocol):
    """One provider's wire format. `model` is what `judge.model` says."""

    name: str
    model: str

    def server(self, otherwise: Any) -> Any:
        """Make a server that answers what `otherwise` says."""
        ...

    def answer(self, text: str, ending: str = "end") -> Reply:
        """Answer with a text; `ending` is end, length, or the provider's own word."""
        ...

    def refusal(self) -> Reply:
        """Refuse to answer."""
        ...

    def failure(self, status: int, *, code: str | None = None, **headers: str) -> Reply:
        """Fail with the provider's error object."""
        ...

    def used_up(self, reset: str) -> dict[str, str]:
        """Give the headers that say that nothing is left until then."""
        ...

    def question(self, body: dict[str, Any]) -> str:
        """Give what a request asks, without its system part."""
        ...

    def own(self) -> list[Fault]:
        """Give the faults that only this provider knows."""
        ...


class Anthropic:
    """The Messages API."""

    name = "anthropic"
    model = "anthropic:claude-haiku-5-5"
    _KINDS: Final = {
        400: "invalid_request_error",
        401: "authentication_error",
        402: "billing_error",
        403: "permission_error",
        404: "not_found_error",
        413: "request_too_large",
        429: "rate_limit_error",
        529: "overloaded_error",
    }
    _ENDINGS: Final = {"end": "end_turn", "length": "max_tokens"}

    def server(self, otherwise: Any) -> MessagesApi:
        """Make a server that answers what `otherwise` says."""
        return MessagesApi(otherwise)

    def answer(self, text: str, ending: str = "end") -> Reply:
        """Answer with a text; `ending` is end, length, or the provider's own word."""
        return messages_api.message(text, stop=self._ENDINGS.get(ending, ending))

    def refusal(self) -> Reply:
        """Refuse to answer."""
        return messages_api.refusal()

    def failure(self, status: int, *, code: str | None = None, **headers: str) -> Reply:
        """Fail with the provider's error object."""
        return messages_api.failure(status, self._KINDS.get(status, "api_error"), code=code, **headers)

    def used_up(self, reset: str) -> dict[str, str]:
        """Give the headers that say that nothing is left until then."""
        whats = ("requests", "input-tokens", "output-tokens")
        left = {f"anthropic-ratelimit-{what}-remaining": "0" for what in whats}
        return left | {f"anthropic-ratelimit-{what}-reset": reset for what in whats}

    def question(self, body: dict[str, Any]) -> str:
        """Give what a request asks, without its system part."""
        return str(body["messages"][0]["content"])

    def own(self) -> list[Fault]:
        """Give the faults that only this provider knows."""
        limit = self.failure(429, code="enforced_spend_limit_reached")
        hold = self.failure(403, code="organization_on_hold")
        window = self.answer("{", "model_context_window_exceeded")
        return [
            Fault(name="spend limit (a 429)", reply=limit, leads_to=fatal("spend_limit")),
            Fault(name="organization on hold", reply=hold, leads_to=fatal("permission")),
            Fault(name="context exceeded", reply=window, leads_to=frozenset({"unscored (error)"})),
            Fault(name="pause_turn", reply=self.answer("{", "pause_turn")),
        ]


class OpenAiCompatible:
    """Chat completions."""

    name = "openai_compatible"
    model = "openai_compatible:a-model"
    _KINDS: Final = {
        400: ("invalid_request_error", None),
        401: ("invalid_request_error", "invalid_api_key"),
        403: ("permission_error", None),
        404: ("invalid_request_error", "model_not_found"),
        429: ("rate_limit_error", "rate_limit_exceeded"),
    }
    _ENDINGS: Final = {"end": "stop", "length": "length"}

    def server(self, otherwise: Any) -> ChatApi:
        """Make a server that answers what `otherwise` says."""
        return ChatApi(otherwise)

    def answer(self, text: str, ending: str = "end") -> Reply:
        """Answer with a text; `ending` is end, length, or the provider's own word."""
        return chat_completions.chat(text, finish=self._ENDINGS.get(ending, ending))

    def refusal(self) -> Reply:
        """Refuse to answer."""
        return chat_completions.chat(None, message={"refusal": "I can't help with that."})

    def failure(self, status: int, *, code: str | None = None, **headers: str) -> Reply:
        """Fail with the provider's error object."""
        kind, usual = self._KINDS.get(status, ("server_error", None))
        return chat_completions.failure(status, kind, code=code or usual, **headers)

    def used_up(self, reset: str) -> dict[str, str]:
        """Give the headers that say that nothing is left until then."""
        whats = ("requests", "tokens")
        left = {f"x-ratelimit-remaining-{what}": "0" for what in whats}
        return left | {f"x-ratelimit-reset-{what}": reset for what in whats}

    def question(self, body: dict[str, Any]) -> str:
        """Give what a request asks, without its system part."""
        return next(str(message["content"]) for message in body["messages"] if message["role"] == "user")

    def own(self) -> list[Fault]:
        """Give the faults that only this provider knows."""
        quota = self.failure(429, code="insufficient_quota")
        refused = frozenset({"unscored (judge_refused)"})
        return [
            Fault(name="spend limit (a 429)", reply=quota, leads_to=fatal("spend_limit")),
            Fault(name="content filter", reply=self.answer("", "content_filter"), leads_to=refused),
            Fault(name="Azure's filter (a 400)", reply=chat_completions.azure_filter(), leads_to=refused),
            Fault(name="no choices", reply=chat_completions.chat("", choices=[])),
            Fault(name="tool_calls", reply=self.answer("{", "tool_calls")),
        ]
