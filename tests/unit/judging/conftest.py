"""A judge over the real SDK and the local server behind it; one of each a module (a client is slow to make)."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from tests.services import messages_api as api

if TYPE_CHECKING:
    from monitor.judging.anthropic import AnthropicJudge

NOW = 1_790_000_000.0


@pytest.fixture(scope="module", autouse=True)
def _no_anthropic_environment() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("ANTHROPIC_")]:
            patch.delenv(name)
        yield


@pytest.fixture(scope="module")
def messages_api() -> Iterator[api.MessagesApi]:
    with api.MessagesApi() as server:
        yield server


@pytest.fixture
def server(messages_api: api.MessagesApi) -> Iterator[api.MessagesApi]:
    messages_api.reset()
    yield messages_api
    messages_api.check()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def judge(messages_api: api.MessagesApi) -> AsyncIterator[AnthropicJudge]:
    from monitor.judging.anthropic import AnthropicJudge  # seconds to load, which other tests here don't need

    judge = AnthropicJudge(
        "claude-haiku-5-5", api_key=api.API_KEY, base_url=messages_api.base_url, wall=lambda: NOW
    )
    yield judge
    await judge.aclose()
