"""Anthropic's Message Batches: the same requests and answers as calls, many at a time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final, TypeVar, cast

import msgspec

from monitor.errors import JudgeError, JudgeUnavailable
from monitor.judging.anthropic import AnthropicJudge
from monitor.judging.batch_reply import batch_reply
from monitor.judging.batches import BatchInfo
from monitor.judging.deferred import Question
from monitor.judging.flow import Reply

_T = TypeVar("_T")

TIMEOUT_S: Final = 60.0
RESULTS_TIMEOUT_S: Final = 600.0
_LISTED: Final = 100


class _Counts(msgspec.Struct):
    processing: int = 0
    succeeded: int = 0
    errored: int = 0
    canceled: int = 0
    expired: int = 0

    @property
    def total(self) -> int:
        return self.processing + self.succeeded + self.errored + self.canceled + self.expired


class _Batch(msgspec.Struct):
    id: str
    processing_status: str
    created_at: datetime
    request_counts: _Counts


class _Page(msgspec.Struct):
    data: list[_Batch]


class AnthropicBatches:
    """A `BatchClient` with the model, the parameters and the connections of a judge."""

    def __init__(self, judge: AnthropicJudge) -> None:
        self._judge = judge
        self._api = judge.client.messages.batches.with_raw_response

    async def create(self, questions: Sequence[Question]) -> str:
        """Create a batch and give its id."""
        requests = [{"custom_id": item.id, "params": self._judge.params_for(item.request)} for item in questions]
        return _decoded(await self._sent(partial(self._api.create, requests=cast("Any", requests))), _Batch).id

    async def ended(self, batch: str) -> bool:
        """Say whether a batch has all its results."""
        found = _decoded(await self._sent(partial(self._api.retrieve, batch)), _Batch)
        return found.processing_status == "ended"

    async def results(self, batch: str) -> dict[str, Reply]:
        """Give the replies of a batch that has ended, by question. A line that is none is left out."""
        raw = await self._sent(partial(self._api.results, batch), RESULTS_TIMEOUT_S)
        replies: dict[str, Reply] = {}
        for line in raw.splitlines():
            try:
                question_id, reply = batch_reply(line, self._judge.model)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue
            replies.setdefault(question_id, reply)
        return replies

    async def cancel(self, batch: str) -> None:
        """Ask for a batch to end early."""
        await self._sent(partial(self._api.cancel, batch))

    async def recent(self) -> list[BatchInfo]:
        """List the newest batches."""
        page = _decoded(await self._sent(partial(self._api.list, limit=_LISTED)), _Page)
        return [
            BatchInfo(
                id=item.id,
                ended=item.processing_status == "ended",
                created_at=item.created_at.timestamp(),
                size=item.request_counts.total,
            )
            for item in page.data
        ]

    async def _sent(self, call: Any, seconds: float = TIMEOUT_S) -> bytes:
        sent = await self._judge.send(call, seconds)
        if isinstance(sent, JudgeError):
            raise sent
        return sent[0]


def _decoded(raw: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise JudgeUnavailable("bad_response", f"{len(raw)} bytes that are no {kind.__name__}") from None
