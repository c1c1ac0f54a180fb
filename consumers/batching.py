"""Batches in the judge process: the provider's client, the notes, and what looks after them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import msgspec

from consumers import kafka
from consumers.batch_notes import BatchNotes
from monitor.config import Settings
from monitor.judging.accounting import Call, OnCall
from monitor.judging.batches import BatchPost
from monitor.judging.deferred import Question
from monitor.judging.flow import Failure, Reply
from monitor.judging.model import JudgeModel
from monitor.judging.open import batch_policy, open_batches
from monitor.judging.prices import Price

Loop = Callable[[], Coroutine[Any, Any, None]]


class Batching(msgspec.Struct, kw_only=True, frozen=True):
    """What takes deferred questions, and the loops that have to run meanwhile; nothing when batches are off."""

    post: BatchPost | None = None
    loops: tuple[Loop, ...] = ()


@asynccontextmanager
async def batching(
    settings: Settings, model: JudgeModel, price: Price, on_call: OnCall
) -> AsyncIterator[Batching]:
    """Read the notes, and give what works with them. Raises `ConfigError` and `KafkaError`.

    `on_call` hears of every answer that came out of a batch, charged at the batch's `price`.
    """
    if not settings.judge.batch.enabled:
        yield Batching()
        return
    client = open_batches(model)
    producer = kafka.producer(settings)
    notes = BatchNotes(settings, producer)
    await producer.start()
    try:
        await notes.start()
        charge = partial(_charged, model, price, on_call)
        post = BatchPost(client, notes, batch_policy(settings.judge.batch), charge=charge)
        yield Batching(post=post, loops=(notes.run, post.run))
    finally:
        await notes.stop()
        await producer.stop()


def _charged(model: JudgeModel, price: Price, on_call: OnCall, question: Question, reply: Reply) -> Reply:
    cost = price.cost(reply.usage, batch=True)
    call = Call(
        provider=model.provider,
        model=model.model,
        judge=model.name,
        rubric=question.request.rubric,
        stratum=question.stratum,
        duration_s=0.0,
        usage=reply.usage,
        cost_nusd=cost,
        error_type=reply.error_type if isinstance(reply, Failure) else None,
        batch=True,
    )
    on_call(call)
    return msgspec.structs.replace(reply, cost_nusd=cost)
