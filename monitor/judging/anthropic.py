"""The Anthropic judge: one Messages API call in, one `Completion` or one classified error out.

The SDK only carries bytes and raises for error statuses. What comes back is decoded by `anthropic_reply`, because
the SDK hands out a `str` for a page of HTML, a `Message` without attributes for `{}`, and a bare `JSONDecodeError`
for broken JSON. Retrying is the driver's business (`max_retries=0`): the SDK's own has no deadline and no cap.

Errors never carry the SDK's exception, not even as `__context__`: it holds the request, hence transcript and key.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, Literal, TypeAlias

import anthropic
from anthropic.types import MessageParam, TextBlockParam

from monitor.errors import JudgeError, JudgeUnavailable
from monitor.judging.anthropic_models import facts_from, models_from
from monitor.judging.anthropic_reply import completion_from, error_from
from monitor.judging.check import ModelFacts
from monitor.judging.model import Completion, JudgeRequest
from monitor.judging.quota import anthropic_limits
from monitor.judging.words import sendable, word
from monitor.settings import CacheTtl, Effort

_Call: TypeAlias = Callable[..., Awaitable[Any]]

BASE_URL: Final = "https://api.anthropic.com"
MAX_CONNECT_S: Final = 10.0
_LISTED: Final = 1_000


class AnthropicJudge:
    """A `JudgeModel` over the Messages API with structured output and a cached system prefix.

    `effort` is the model's own knob (`default`: left to it); there are no sampling parameters (the API refuses
    them). `wall` gives Unix
    seconds, for `retry-after` dates. The client is closed by `aclose`.
    """

    provider = "anthropic"

    def __init__(
        self,
        model: str,
        *,
        api_key: str,
        base_url: str = BASE_URL,
        effort: Effort = "low",
        cache_ttl: CacheTtl = "1h",
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.model = model
        self.name = f"anthropic:{model}"
        self._effort = effort
        self._cache_ttl = cache_ttl
        self._wall = wall
        # Spans are off: a tracer set up elsewhere in the process must not get at the transcript.
        self.client = anthropic.AsyncAnthropic(
            api_key=api_key, base_url=base_url, max_retries=0, open_telemetry=False
        )

    async def complete(self, request: JudgeRequest, *, timeout: float) -> Completion:  # noqa: ASYNC109 - the seam's
        """Answer within `timeout` seconds, in one try.

        Raises `JudgeUnavailable` for what may pass (`UnavailableType`) and `JudgeFatal` for what won't
        (`FatalType`). A refusal and an answer cut at `max_tokens` are completions.
        """
        started = time.monotonic()
        create = self.client.messages.with_raw_response.create
        sent = await self.send(partial(create, **self.params_for(request)), timeout)
        if isinstance(sent, JudgeError):
            raise sent
        raw, headers = sent
        return completion_from(
            raw,
            request_id=word(headers.get("request-id")),
            duration_ms=round((time.monotonic() - started) * 1000),
            limits=anthropic_limits(headers, self._wall()),
        )

    def params_for(self, request: JudgeRequest) -> dict[str, Any]:
        """Give the parameters of `messages.create` that this judge asks a request with."""
        return params_for(request, model=self.model, effort=self._effort, cache_ttl=self._cache_ttl)

    async def aclose(self) -> None:
        """Release connections."""
        await self.client.close()

    async def describe(self, *, timeout: float) -> ModelFacts | None:  # noqa: ASYNC109 - the seam's
        """Ask what the provider knows of the model; None where nothing speaks the Models API.

        Raises `JudgeError` when the provider could not be asked.
        """
        models = self.client.models.with_raw_response
        sent = await self.send(partial(models.retrieve, self.model), timeout)
        if not isinstance(sent, JudgeError):
            return facts_from(sent[0])
        if sent.error_type != "not_found":
            raise sent
        # Either the model isn't there, or the endpoint isn't, as with many gateways: their lists tell.
        listed = await self.send(partial(models.list, limit=_LISTED), timeout)
        offers = None if isinstance(listed, JudgeError) else models_from(listed[0])
        return None if offers is None else ModelFacts(known=self.model in offers, offers=offers)

    async def send(self, call: _Call, seconds: float) -> tuple[bytes, Mapping[str, str]] | JudgeError:
        """Make a call of `client`, with raw response, within `seconds`: the bytes and headers of the reply."""
        # The error is returned, not raised: raised in here, its __context__ would keep the SDK's exception alive.
        try:
            # httpx times out each read; a server that trickles bytes is stopped by the outer timeout alone.
            async with asyncio.timeout(seconds):
                response = await call(timeout=anthropic.Timeout(seconds, connect=min(seconds, MAX_CONNECT_S)))
        except anthropic.APIStatusError as error:
            reply = error.response
            return error_from(
                reply.content,
                model=self.model,
                status=error.status_code,
                headers=reply.headers,
                now=self._wall(),
            )
        except (TimeoutError, anthropic.APITimeoutError):
            return JudgeUnavailable("timeout", f"no answer within {seconds:.3g} s")
        except anthropic.APIConnectionError as error:
            return JudgeUnavailable("connection", f"connection failed: {type(error.__cause__).__name__}")
        http = response.http_response
        return await http.aread(), http.headers


def params_for(request: JudgeRequest, *, model: str, effort: Effort, cache_ttl: CacheTtl) -> dict[str, Any]:
    """Give the parameters of `messages.create` for a request; the same go into a batch.

    The system prefix is the same for every session of a rubric, prompt version and schema, so it is what the
    provider caches; the transcript comes last.
    """
    system: TextBlockParam = {
        "type": "text",
        "text": sendable(request.system),
        "cache_control": {"type": "ephemeral", "ttl": cache_ttl},
    }
    messages: list[MessageParam] = [_message(message.role, sendable(message.text)) for message in request.messages]
    # The grammar takes no bounds; transform_schema turns them into prose, and the rubric's parser checks them.
    schema = anthropic.transform_schema(request.schema)
    output: dict[str, Any] = {"format": {"type": "json_schema", "schema": schema}}
    return {
        "model": model,
        "max_tokens": request.max_tokens,
        "system": [system],
        "messages": messages,
        "output_config": output if effort == "default" else {"effort": effort} | output,
    }


def _message(role: Literal["user", "assistant"], text: str) -> MessageParam:
    # Two literals, because the SDK's type is a union of one TypedDict a role.
    return {"role": "user", "content": text} if role == "user" else {"role": "assistant", "content": text}
