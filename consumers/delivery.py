"""What the judge sends: judgements, smaller ones where the broker finds them too large (J5), and dead letters."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any, Final

import msgspec
import structlog
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from consumers import dead_letters
from consumers.dead_letters import Placed
from consumers.job_queue import Work
from consumers.kafka import TOO_LARGE, event_key, is_passing
from monitor.config import TopicSettings
from monitor.decision import Job
from monitor.judgement import Attempt, Judgement, Skipped, Unscored, Verdict
from monitor.metrics import Meters

STAGE: Final = "judge"
RETRY_S: Final = 1.0
DATA_LEFT_OUT: Final = "the details were left out: too large for the broker"


class RawAnswer(msgspec.Struct, kw_only=True):
    """A judge's raw answer, at the place of the job that it answers."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


class Delivery:
    """Sends what comes of jobs, and returns when the broker has it. Counts it and logs one line a judgement."""

    def __init__(self, topics: TopicSettings, producer: AIOKafkaProducer, meters: Meters) -> None:
        self._topics = topics
        self._producer = producer
        self._meters = meters
        self._log = structlog.get_logger().bind(process=STAGE)

    async def judgement(self, work: Work, judgement: Judgement) -> None:
        """Send a judgement, and an invalid one's raw answer to the dead letters.

        Raises `KafkaError` when the broker refuses it for anything but its size.
        """
        sent = await self._send(judgement)
        if sent is None:
            error = "not even a stub of its judgement fits the broker"
            await self.dead_letter(work.record, "too_large", error, work.job)
            return
        self._meters.counter("judgements", rubric=judgement.rubric, kind=kind(judgement)).inc()
        self._log.info("judged", **_line(work, judgement), stub=sent is not judgement)
        if isinstance(judgement.result, Unscored) and judgement.result.reason == "invalid":
            await self._raw_answer(work, judgement)

    async def repeat(self, work: Work, judgement: Judgement) -> None:
        """Send the second judgement of a job: an invalid one is no person's concern, for the first one counts."""
        sent = await self._send(judgement)
        self._log.info("judged_again", **_line(work, judgement), stub=sent is not judgement)

    async def dead_letter(self, record: Placed, reason: str, error: str, job: Job | None = None) -> None:
        """Put a record aside; `job` is what it was decoded to, if it was."""
        session = None if job is None else (job.tenant, job.session_id)
        topic = self._topics.dead_letters
        await self._insist(
            partial(
                dead_letters.send,
                self._producer,
                topic,
                record,
                stage=STAGE,
                reason=reason,
                error=error,
                session=session,
            )
        )
        self._meters.counter("dead_letters", stage=STAGE).inc()
        self._log.warning(
            "dead_letter", topic=record.topic, partition=record.partition, offset=record.offset, reason=reason
        )

    async def _send(self, judgement: Judgement) -> Judgement | None:
        key = event_key(judgement.tenant, judgement.session_id)
        for candidate in shrinking(judgement):
            value = msgspec.json.encode(candidate)
            try:
                await self._insist(partial(self._producer.send_and_wait, self._topics.judgements, value, key=key))
            except TOO_LARGE:
                continue
            return candidate
        return None

    async def _insist(self, send: Callable[[], Awaitable[Any]]) -> None:
        """Send again for as long as the broker is away; what it has twice then counts once."""
        while True:
            try:
                await send()
            except KafkaError as error:
                if not is_passing(error):
                    raise
                self._log.warning("send_again", error=type(error).__name__)
                await asyncio.sleep(RETRY_S)
            else:
                return

    async def _raw_answer(self, work: Work, judgement: Judgement) -> None:
        wrong = next((item for item in reversed(judgement.attempts) if item.kind == "invalid"), None)
        if wrong is None:
            return
        place = work.record
        answer = RawAnswer(
            topic=place.topic,
            partition=place.partition,
            offset=place.offset,
            key=place.key,
            value=wrong.raw.encode("utf-8", "replace"),
        )
        await self.dead_letter(answer, "invalid", wrong.error or "", work.job)


def shrinking(judgement: Judgement) -> Iterator[Judgement]:
    """Give a judgement, then smaller ones: without raw answers, then without attempts and details.

    The result and what it adds to the totals stay as they are in all of them.
    """
    yield judgement
    screen = judgement.screen
    yield msgspec.structs.replace(
        judgement,
        attempts=_without_raw(judgement.attempts),
        screen=screen and msgspec.structs.replace(screen, attempts=_without_raw(screen.attempts)),
    )
    result = judgement.result
    if isinstance(result, Verdict):
        result = Verdict(data={}, note=DATA_LEFT_OUT)
    screen = screen and msgspec.structs.replace(screen, attempts=[])
    yield msgspec.structs.replace(judgement, attempts=[], result=result, screen=screen)


def _without_raw(attempts: list[Attempt]) -> list[Attempt]:
    return [
        msgspec.structs.replace(
            item, raw=f"[left out: {len(item.raw.encode('utf-8', 'replace'))} bytes]" if item.raw else ""
        )
        for item in attempts
    ]


def kind(judgement: Judgement) -> str:
    """Give the kind of a judgement's result as its label value."""
    match judgement.result:
        case Verdict():
            return "verdict"
        case Skipped():
            return "skipped"
        case Unscored():
            return "unscored"


KINDS: Final = ("verdict", "skipped", "unscored")


def _line(work: Work, judgement: Judgement) -> dict[str, str | int | None]:
    """Give the canonical line of a judgement; never any text of the session or of the judge."""
    result = judgement.result
    usages = [attempt.usage for attempt in judgement.attempts]
    return {
        "job_id": judgement.job_id,
        "tenant": judgement.tenant,
        "session_id": judgement.session_id,
        "segment": judgement.segment,
        "stratum": work.job.stratum,
        "priority": "urgent" if work.urgent else "routine",
        "rubric": judgement.rubric,
        "rubric_version": judgement.rubric_version,
        "prompt_version": judgement.prompt_version,
        "judge": judgement.judge,
        "kind": kind(judgement),
        "reason": None if isinstance(result, Verdict) else result.reason,
        "screen": judgement.screen.verdict if judgement.screen is not None else None,
        "attempts": len(judgement.attempts),
        "input_tokens": sum(
            usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens for usage in usages
        ),
        "output_tokens": sum(usage.output_tokens for usage in usages),
        "duration_ms": judgement.finished_at - judgement.started_at,
    }
