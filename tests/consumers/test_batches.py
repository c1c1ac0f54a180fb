"""Routine jobs by batch on a real Kafka: offsets wait, and a restart finds the batch under way."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from consumers.batch_notes import BatchNotes
from consumers.health import Health
from consumers.judge import METERS, serve
from consumers.kafka import producer as make_producer
from monitor.errors import ConfigError
from monitor.judgement import Skipped, Unscored, Usage, decode_judgement
from monitor.judging.batch_book import Claim, Opened
from monitor.judging.prices import NUSD, price_of
from monitor.judging.screen import audited
from monitor.metrics import Meters
from tests.consumers.judge_place import Place, job, until
from tests.services import messages_api as api
from tests.services.kafka import KafkaBroker
from tests.services.message_batches import Result


def refused(*_: Any) -> Result:
    """Answer in a way that needs no knowledge of the rubric."""
    usage = {"input_tokens": 5, "output_tokens": 1}
    message = {"type": "message", "content": [], "stop_reason": "refusal", "usage": usage}
    return {"type": "succeeded", "message": message}


def make_place(broker: KafkaBroker, prefix: str, server: api.MessagesApi, **more: Any) -> Place:
    values = {
        "judge.model": "anthropic:claude-haiku-5-5",
        "judge.api_key": api.API_KEY,
        "judge.base_url": server.base_url,
        "judge.batch.enabled": True,
        "judge.batch.max_wait_s": 0.5,
        "judge.batch.poll_s": 0.3,
    }
    return Place(broker, prefix, **(values | more))


@asynccontextmanager
async def serving(place: Place) -> AsyncIterator[Meters]:
    """Run the judge process; at the end it is stopped."""
    meters = Meters(METERS, version="test", process="judge")
    stop = asyncio.Event()
    task = asyncio.create_task(serve(place.settings, meters, stop, Health(time.monotonic)))
    try:
        yield meters
    finally:
        stop.set()
        await asyncio.wait_for(task, 60)


async def test_a_restart_waits_for_the_batch_under_way_and_commits_when_it_is_judged(
    kafka: KafkaBroker, topic_prefix: str
) -> None:
    """J3: an urgent job is a call of its own meanwhile; nothing is asked twice."""
    with api.MessagesApi(otherwise=lambda _: api.refusal()) as server:
        place = make_place(kafka, topic_prefix, server)
        await place.create()
        # More than twice the concurrency: deferred jobs have slots and offsets of their own.
        await place.write([job(f"r{number}") for number in range(12)])
        async with serving(place):
            await until(lambda: sum(map(len, server.batches.requests.values())) == 12)
            await place.write([job("u", urgent=True)])
            await until(lambda: place.has_committed(1))
            assert await place.judged() == {"u": 1}
        assert await place.has_committed(1)
        assert server.batches.canceled == []
        batches = list(server.batches.requests)

        async with serving(place) as meters:
            await until(lambda: meters.registry.get_sample_value("backslide_judge_in_flight") == 12)
            for batch in batches:
                server.batches.end(batch, refused)
            await until(lambda: place.has_committed(13))
            tokens = {"provider": "anthropic", "model": "claude-haiku-5-5", "token_type": "input"}
            assert meters.registry.get_sample_value("backslide_judge_tokens_total", tokens) == 60
            price = price_of("anthropic:claude-haiku-5-5", {})
            half = 12 * price.cost(Usage(input_tokens=5, output_tokens=1), batch=True)
            spent = {"rubric": "correction", "stratum": "base", "judge": "anthropic:claude-haiku-5-5"}
            assert meters.registry.get_sample_value("backslide_judge_cost_usd_total", spent) == pytest.approx(
                half / NUSD
            )
        assert list(server.batches.requests) == batches
        assert await place.judged() == {"u": 1} | {f"r{number}": 1 for number in range(12)}
        for record in await place.read("judgements"):
            judgement = decode_judgement(record.value)
            result = judgement.result
            assert judgement.session_id == "u" or judgement.cost_nusd == half // 12
            assert isinstance(result, Unscored)
            assert result.reason == "judge_refused"


async def test_what_a_screen_passes_over_enters_no_batch(kafka: KafkaBroker, topic_prefix: str) -> None:
    """The screen is asked live; those that its audit picks are judged by the batch, and stand for four each."""

    def clear(_: api.Received) -> api.Reply:
        return api.message('{"quote": "", "look": false}')

    with api.MessagesApi(otherwise=clear) as server:
        screen = {
            "judge.screen.model": "anthropic:claude-haiku-5-5",
            "judge.screen.api_key": api.API_KEY,
            "judge.screen.base_url": server.base_url,
            "judge.screen.audit_share": 0.25,
        }
        place = make_place(kafka, topic_prefix, server, **screen)
        await place.create()
        jobs = [job(f"r{number}") for number in range(16)]
        drawn = {item.session_id for item in jobs if audited(item.job_id, 4)}
        assert 0 < len(drawn) < 16
        await place.write(jobs)
        async with serving(place) as meters:
            out = {"rubric": "correction", "kind": "skipped"}
            value = meters.registry.get_sample_value
            await until(lambda: value("backslide_judgements_total", out) == 16 - len(drawn))
            await until(lambda: sum(map(len, server.batches.requests.values())) == len(drawn))
            for batch in list(server.batches.requests):
                server.batches.end(batch, refused)
            await until(lambda: place.has_committed(16))
            asked = {"provider": "anthropic", "model": "claude-haiku-5-5", "error_type": "none"}
            assert value("backslide_judge_requests_total", asked) == 16 + len(drawn)
        for record in await place.read("judgements"):
            judgement = decode_judgement(record.value)
            assert judgement.screen is not None
            assert (judgement.screen.verdict, judgement.screen.probability) == ("clear", 0.25)
            assert judgement.screen.audited == (judgement.session_id in drawn)
            wanted = Unscored if judgement.screen.audited else Skipped
            assert isinstance(judgement.result, wanted)


async def test_a_shutdown_may_end_batches_and_they_are_asked_anew(kafka: KafkaBroker, topic_prefix: str) -> None:
    with api.MessagesApi() as server:
        place = make_place(kafka, topic_prefix, server, **{"judge.batch.on_shutdown": "cancel"})
        await place.create()
        await place.write([job("a"), job("b")])
        async with serving(place):
            await until(lambda: sum(map(len, server.batches.requests.values())) == 2)
        first = list(server.batches.requests)
        assert sorted(server.batches.canceled) == sorted(first)
        for batch in first:
            server.batches.end(batch, lambda *_: {"type": "canceled"})
        async with serving(place):
            await until(lambda: len(server.batches.open) > 0)
            await asyncio.sleep(0.5)

            async def all_judged() -> bool:
                for batch in server.batches.open:
                    server.batches.end(batch, refused)
                return await place.has_committed(2)

            await until(all_judged)
        assert await place.judged() == {"a": 1, "b": 1}


async def test_notes_come_back_in_the_order_of_the_log(kafka: KafkaBroker, topic_prefix: str) -> None:
    place = Place(kafka, topic_prefix, **{"judge.batch.enabled": True})
    await place.create()
    async with noting(place) as one, noting(place) as two:
        running = [asyncio.create_task(notes.run()) for notes in (one, two)]
        claims = [Claim(key=f"k{n}", at=1.0, ids=["a", f"own-{n}"]) for n in range(6)]
        await asyncio.gather(*((one, two)[n % 2].write(claim) for n, claim in enumerate(claims)))
        await one.write(Opened(key="k0", batch="b0"))
        await two.write(Opened(key="k1", batch="b1"))
        await until(lambda: one.book.batches() == {"b0", "b1"})
        first = one.book.entry_of("a")
        for task in running:
            task.cancel()
    await place.write_raw("batches", [(b"", b"nonsense")])
    async with noting(place) as late:
        for book in (one.book, two.book, late.book):
            entry = book.entry_of("a")
            assert entry is not None
            assert first is not None
            assert (entry.key, book.batches()) == (first.key, {"b0", "b1"})
            assert all(book.entry_of(f"own-{n}") is not None for n in range(6))


@asynccontextmanager
async def noting(place: Place) -> AsyncIterator[BatchNotes]:
    producer = make_producer(place.settings)
    notes = BatchNotes(place.settings, producer)
    await producer.start()
    await notes.start()
    try:
        yield notes
    finally:
        await notes.stop()
        await producer.stop()


async def test_a_judge_without_batches_is_refused_at_the_start(kafka: KafkaBroker, topic_prefix: str) -> None:
    place = Place(kafka, topic_prefix, **{"judge.batch.enabled": True})
    await place.create()
    meters = Meters(METERS, version="test", process="judge")
    with pytest.raises(ConfigError, match=r"judge\.batch\.enabled = true: the judge lexical has no batches"):
        await serve(place.settings, meters, asyncio.Event(), Health(time.monotonic))
