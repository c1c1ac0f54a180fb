"""The judge behind any server that speaks chat completions: vLLM, llama.cpp, Azure, OpenAI, gateways.

One call in, one `Completion` or one classified error out; retrying is the driver's business. What the server takes
is learned from what it refuses (`chat_dialect`), said once, and kept for the life of the judge. A refused request
costs nothing and is worded anew at once, within the same call's time.

Errors never carry httpx's exception, not even as `__context__`: it holds the request, hence transcript and key.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import httpx
import msgspec
import structlog

from monitor.errors import JudgeError, JudgeUnavailable
from monitor.judging import chat_dialect as dialects
from monitor.judging.chat_reply import completion_from, error_from, filtered, filtered_completion, server_error
from monitor.judging.check import ModelFacts
from monitor.judging.model import Completion, JudgeRequest
from monitor.settings import AnswerFormat, Effort

PROVIDER: Final = "openai_compatible"
MAX_CONNECT_S: Final = 10.0
MAX_REPLY_BYTES: Final = 16_777_216

_VERSIONED: Final = re.compile(r"/v\d[^/]*(?:/|$)|/deployments/")
_CHAT: Final = "/chat/completions"
_OK: Final = 200
_REFUSED: Final = frozenset({400, 404, 415, 422, 501})
_MAY_BE_WORDING: Final = frozenset({"invalid_request", "bad_response", "server_error", "not_found"})
# A gateway may have no server that takes all that was asked for; other 404s are about models and addresses.
_OF_PARAMETERS: Final = re.compile(r"\bparameters?\b", re.IGNORECASE)
# More than there is to learn; each wording differs from the one before.
_MAX_WORDINGS: Final = 10


class _Sent(msgspec.Struct, kw_only=True, frozen=True):
    status: int
    headers: Mapping[str, str]
    raw: bytes


class _Listed(msgspec.Struct):
    id: str
    max_model_len: int | None = None


class _List(msgspec.Struct):
    data: list[_Listed]


class OpenAICompatibleJudge:
    """A `JudgeModel` over chat completions, with temperature 0, a fixed seed and the answer's schema.

    `base_url` may end in `/v1`, in an Azure deployment, or in `/chat/completions` itself. `key_header` says how
    the key is sent: `authorization` means as a bearer token, any other name as it is (`api-key` for Azure). `wall`
    gives Unix seconds, for dates in headers. The client is closed by `aclose`.
    """

    provider = PROVIDER

    def __init__(
        self,
        model: str,
        *,
        base_url: str,
        api_key: str | None = None,
        key_header: str = "authorization",
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        effort: Effort = "default",
        answer_format: AnswerFormat = "auto",
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.model = model
        self.name = f"{PROVIDER}:{model}"
        self._url = endpoint(base_url)
        self._effort = effort
        self._wall = wall
        self._dialect = dialects.dialect_for(answer_format)
        self._log = structlog.get_logger().bind(judge=self.name)
        self._client = httpx.AsyncClient(
            headers={**(headers or {}), **_key(api_key, key_header)},
            params=dict(query or {}),
            # The driver bounds what is in flight; waiting for a free connection would only hide it.
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=128),
        )

    async def complete(self, request: JudgeRequest, *, timeout: float) -> Completion:  # noqa: ASYNC109 - the seam's
        """Answer within `timeout` seconds, in one try.

        Raises `JudgeUnavailable` for what may pass and `JudgeFatal` for what won't. A refusal, a content filter
        and an answer cut off are completions.
        """
        until = time.monotonic() + timeout
        for _ in range(_MAX_WORDINGS):
            started, dialect = time.monotonic(), self._dialect
            body = dialects.body_for(request, model=self.model, effort=self._effort, dialect=dialect)
            sent = await self._ask("POST", self._url, until - started, body)
            if sent.status == _OK or not self._reworded(sent, dialect):
                break
        return self._answer(sent, request, dialect, round((time.monotonic() - started) * 1000))

    async def describe(self, *, timeout: float) -> ModelFacts | None:  # noqa: ASYNC109 - the seam's
        """Ask which models the server has; None where it has no such list. Raises `JudgeError`."""
        sent = await self._ask("GET", self._url.replace(_CHAT, "/models"), timeout, None)
        if sent.status != _OK:
            error = self._error(sent)
            if isinstance(error, JudgeUnavailable) and error.error_type != "bad_response":
                raise error
            return None
        return _facts(sent.raw, self.model)

    async def aclose(self) -> None:
        """Release connections."""
        await self._client.aclose()

    def _answer(
        self, sent: _Sent, request: JudgeRequest, dialect: dialects.Dialect, duration_ms: int
    ) -> Completion:
        if filtered(sent.status, server_error(sent.raw)):
            return filtered_completion(sent.headers, self._wall(), duration_ms)
        if sent.status != _OK:
            raise self._error(sent)
        completion = completion_from(
            sent.raw, request, headers=sent.headers, now=self._wall(), duration_ms=duration_ms
        )
        if completion.stop == "end":
            self._learn(dialect, dialects.ignored(dialect, completion.text, request.schema))
        return completion

    def _reworded(self, sent: _Sent, dialect: dialects.Dialect) -> bool:
        """Tell whether it is worth asking again in other words, after learning what was wrong with these."""
        error = server_error(sent.raw)
        if sent.status not in _REFUSED or filtered(sent.status, error):
            return False
        kind = self._error(sent).error_type
        if kind not in _MAY_BE_WORDING or (kind == "not_found" and not _OF_PARAMETERS.search(error.message)):
            return False
        if dialect != self._dialect:
            return True  # another call has learned meanwhile
        return self._learn(dialect, dialects.refused(dialect, error.parameter, error.message))

    def _error(self, sent: _Sent) -> JudgeError:
        return error_from(sent.raw, model=self.model, status=sent.status, headers=sent.headers, now=self._wall())

    def _learn(self, dialect: dialects.Dialect, lesson: dialects.Lesson | None) -> bool:
        if lesson is None:
            return False
        if dialect == self._dialect:
            self._dialect = lesson.dialect
            self._log.warning("judge_server_differs", learned=lesson.said)
        return True

    async def _ask(self, method: str, url: str, seconds: float, body: dict[str, Any] | None) -> _Sent:
        sent = await self._send(method, url, seconds, body)
        if isinstance(sent, JudgeError):
            raise sent
        return sent

    async def _send(
        self, method: str, url: str, seconds: float, body: dict[str, Any] | None
    ) -> _Sent | JudgeError:
        # The error is returned, not raised: raised in here, its __context__ would keep httpx's exception alive.
        try:
            # httpx times out each read; a server that trickles bytes is stopped by the outer timeout alone.
            async with asyncio.timeout(seconds):
                return await self._exchange(method, url, seconds, body)
        except (TimeoutError, httpx.TimeoutException):
            return JudgeUnavailable("timeout", f"no answer within {seconds:.3g} s")
        except httpx.DecodingError:
            return JudgeUnavailable("bad_response", "a reply whose content encoding is wrong")
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return JudgeUnavailable("connection", f"connection failed: {type(error).__name__}")

    async def _exchange(
        self, method: str, url: str, seconds: float, body: dict[str, Any] | None
    ) -> _Sent | JudgeError:
        limit = httpx.Timeout(max(seconds, 0.001), connect=min(max(seconds, 0.001), MAX_CONNECT_S))
        async with self._client.stream(method, url, json=body, timeout=limit) as response:
            raw = bytearray()
            async for chunk in response.aiter_bytes():
                raw += chunk
                if len(raw) > MAX_REPLY_BYTES:
                    return JudgeUnavailable("bad_response", f"a reply of more than {MAX_REPLY_BYTES} bytes")
            return _Sent(status=response.status_code, headers=response.headers, raw=bytes(raw))


def endpoint(base_url: str) -> str:
    """Give the address of chat completions for a server's address, with or without `/v1` or the whole path."""
    parts = urlsplit(base_url)
    path = parts.path.rstrip("/")
    if not path.endswith(_CHAT):
        path += _CHAT if _VERSIONED.search(path) else f"/v1{_CHAT}"
    return urlunsplit(parts._replace(path=path))


def _key(api_key: str | None, header: str) -> dict[str, str]:
    if api_key is None:
        return {}
    return {header: f"Bearer {api_key}" if header.lower() == "authorization" else api_key}


def _facts(raw: bytes, model: str) -> ModelFacts | None:
    try:
        listed = msgspec.json.decode(raw, type=_List).data
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    own = next((item for item in listed if item.id == model), None)
    # A list is no proof: llama.cpp answers to any name, gateways know more names than they tell.
    return ModelFacts(
        known=own is not None,
        offers=tuple(item.id[:128] for item in listed),
        takes_any_name=True,
        max_tokens=own.max_model_len if own else None,
    )
