"""Batches against the wire-level server: crashes at every step, failures, several processes, shutdown."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest

from monitor.judgement import Judgement, Unscored, Verdict
from monitor.judging.anthropic import AnthropicJudge
from monitor.judging.anthropic_batches import AnthropicBatches
from monitor.judging.batch_book import BatchBook, Claim, Note
from monitor.judging.batches import MAX_FAILURES, BatchInfo, BatchPolicy, BatchPost, answered
from monitor.judging.deferred import DeferredRun, Question
from monitor.judging.flow import Reply
from tests.services import messages_api as api
from tests.services.message_batches import Result
from tests.unit.judging.politeness import POLITE, Politeness, job, prompt, session

POLICY = BatchPolicy(max_requests=100, max_wait_s=60, poll_s=10, grace_s=180)


class CrashError(Exception):
    """The process is gone at this step."""


class World:
    """Time, the notes as the broker has them, and steps at one of which a process may die."""

    def __init__(self, server: api.MessagesApi) -> None:
        self.server = server
        self.now = 1_790_000_000.0
        self.log: list[Note] = []
        self.dies_at: int | None = None
        self.steps = 0

    def step(self) -> None:
        self.steps += 1
        if self.steps == self.dies_at:
            self.dies_at = None
            raise CrashError

    def clock(self) -> float:
        return self.now


class SharedNotes:
    """One process's copy of the notes."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.book = BatchBook()
        self._read = 0

    def catch_up(self) -> None:
        for note in self.world.log[self._read :]:
            self.book.apply(note)
        self._read = len(self.world.log)

    async def write(self, note: Note) -> None:
        self.world.step()
        self.world.log.append(note)
        self.world.step()
        self.catch_up()


class DyingClient:
    """The provider, with a step before and behind each call."""

    def __init__(self, world: World, client: AnthropicBatches) -> None:
        self.world = world
        self.client = client

    async def create(self, questions: Sequence[Question]) -> str:
        self.world.step()
        batch = await self.client.create(questions)
        self.world.step()
        return batch

    async def ended(self, batch: str) -> bool:
        self.world.step()
        return await self.client.ended(batch)

    async def results(self, batch: str) -> dict[str, Reply]:
        replies = await self.client.results(batch)
        self.world.step()
        return replies

    async def cancel(self, batch: str) -> None:
        await self.client.cancel(batch)

    async def recent(self) -> list[BatchInfo]:
        return await self.client.recent()


async def settled() -> None:
    """Let tasks go on until they wait."""
    for _ in range(10):
        await asyncio.sleep(0)


class Process:
    """One judge process with jobs in hand."""

    def __init__(self, world: World, *replies: str, policy: BatchPolicy = POLICY) -> None:
        self.world = world
        self.judge = AnthropicJudge("m", api_key=api.API_KEY, base_url=world.server.base_url)
        self.notes = SharedNotes(world)
        self.notes.catch_up()
        client = DyingClient(world, AnthropicBatches(self.judge))
        self.replies: list[tuple[Question, Reply]] = []
        self.post = BatchPost(
            client,
            self.notes,
            policy,
            charge=self.charge,
            clock=world.clock,
            wall=world.clock,
        )
        self.runs = []
        for number, reply in enumerate(replies):
            of = session(reply, reply, session_id=f"s{number}")
            self.runs.append(DeferredRun(job(of, f"job-{number}"), of, Politeness(), prompt()))
        self.tasks = [asyncio.create_task(answered(run, self.post)) for run in self.runs]

    def charge(self, question: Question, reply: Reply) -> Reply:
        self.replies.append((question, reply))
        return msgspec.structs.replace(reply, cost_nusd=7)

    async def step(self, seconds: float = 61) -> None:
        """Let time pass, and look after the batches once."""
        await settled()
        self.world.now += seconds
        self.notes.catch_up()
        await self.post.step()
        await settled()

    async def die(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.judge.aclose()

    def judgements(self) -> list[Judgement]:
        assert all(run.done for run in self.runs)
        return [run.judgement(self.judge, started_at=1, finished_at=2) for run in self.runs]

    @property
    def done(self) -> bool:
        return all(task.done() for task in self.tasks)


def succeeded(_: str, params: dict[str, Any], text: str = POLITE) -> Result:
    message = {
        "type": "message",
        "content": [{"type": "text", "text": text}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 10, "output_tokens": 3},
    }
    return {"type": "succeeded", "message": message}


def errored(kind: str) -> Result:
    return {"type": "errored", "error": {"type": "error", "error": {"type": kind, "message": "no"}}}


@pytest.fixture
def world() -> Iterator[World]:
    with api.MessagesApi() as server:
        yield World(server)


def end_all(world: World, result: Result | None = None) -> None:
    for batch in world.server.batches.open:
        world.server.batches.end(batch, (lambda *_: result) if result else succeeded)


def asked(world: World) -> list[str]:
    """Give every question that was ever paid for."""
    return [name for requests in world.server.batches.requests.values() for name in requests]


async def test_jobs_share_a_batch_and_results_come_in_any_order(world: World) -> None:
    process = Process(world, "Yes", "Well", "No")
    await process.step(30)
    assert world.server.batches.requests == {}
    await process.step(31)
    assert [len(requests) for requests in world.server.batches.requests.values()] == [6]
    await process.step()
    assert not process.done
    end_all(world)
    await process.step()
    assert process.done
    for judgement in process.judgements():
        assert isinstance(judgement.result, Verdict)
        assert [attempt.window for attempt in judgement.attempts] == ["T1", "T3"]
        assert judgement.attempts[0].usage.input_tokens == 10
        assert judgement.cost_nusd == 14
    assert len(process.replies) == 6
    await process.die()


async def test_a_full_batch_goes_at_once(world: World) -> None:
    process = Process(world, "Yes", "Well", policy=BatchPolicy(max_requests=3, max_wait_s=60, poll_s=10))
    await process.step(1)
    assert [len(requests) for requests in world.server.batches.requests.values()] == [3]
    await process.step(60)
    assert [len(requests) for requests in world.server.batches.requests.values()] == [3, 1]
    await process.die()


async def test_a_repair_goes_with_the_next_batch(world: World) -> None:
    process = Process(world, "Yes")
    await process.step()
    world.server.batches.end("msgbatch_1", lambda name, params: succeeded(name, params, "{}"))
    await process.step()
    await process.step()
    [first, second] = world.server.batches.requests.values()
    assert len(second) == 2
    assert all(len(params["messages"]) == 3 for params in second.values())
    end_all(world)
    await process.step()
    [judgement] = process.judgements()
    assert [attempt.kind for attempt in judgement.attempts] == ["invalid", "valid"] * 2
    assert first.keys().isdisjoint(second)
    await process.die()


async def settle(world: World, process: Process) -> None:
    """Let a process go on until its jobs are done; the provider ends every batch at once."""
    for _ in range(30):
        if process.done:
            return
        await process.step()
        end_all(world)
    raise AssertionError("not done after 30 steps")


async def test_a_kill_at_any_step_neither_loses_a_job_nor_pays_for_it_twice(world: World) -> None:
    crashes = 0
    for dies_at in range(1, 40):
        with api.MessagesApi() as server:
            fresh = World(server)
            fresh.dies_at = dies_at
            first = Process(fresh, "Yes", "Well")
            try:
                await settle(fresh, first)
            except CrashError:
                crashes += 1
            died, fresh.dies_at = fresh.dies_at is None, None
            await first.die()
            # The jobs weren't committed: they come again.
            second = Process(fresh, "Yes", "Well")
            await settle(fresh, second)
            assert all(isinstance(item.result, Verdict) for item in second.judgements())
            assert len(asked(fresh)) == len(set(asked(fresh))) == 4, f"died at step {dies_at}"
            await second.die()
            if not died:
                break
    else:
        raise AssertionError("there were more steps than were tried")
    assert crashes >= 7


async def test_two_processes_with_the_same_job_pay_once(world: World) -> None:
    one, two = Process(world, "Yes", "Well"), Process(world, "Yes")
    await one.step()
    await two.step()
    assert len(asked(world)) == len(set(asked(world))) == 4
    end_all(world)
    await one.step()
    await two.step()
    assert two.judgements()[0].attempts == one.judgements()[0].attempts
    await one.die()
    await two.die()


async def test_claims_at_the_same_moment_are_decided_by_the_log(world: World) -> None:
    one, two = Process(world, "Yes"), Process(world, "Yes")
    await settled()
    ids = [question.id for question in two.runs[0].questions]
    world.log.append(Claim(key="theirs", at=world.now, ids=ids[:1]))
    world.now += 61
    await one.post.step()  # it hasn't read their claim when it writes its own
    assert asked(world) == ids[1:]
    await one.die()
    await two.die()


@pytest.mark.parametrize("result", [errored("api_error"), {"type": "expired"}, {"type": "canceled"}])
async def test_what_the_provider_failed_on_is_asked_again_and_not_for_ever(world: World, result: Result) -> None:
    process = Process(world, "Yes")
    for _ in range(2 * MAX_FAILURES):
        await process.step()
        end_all(world, result)
    assert len(world.server.batches.requests) == MAX_FAILURES
    [judgement] = process.judgements()
    assert judgement.result == Unscored(reason="unavailable", note=judgement.attempts[-1].error)
    assert [attempt.kind for attempt in judgement.attempts] == ["failed"] * 2 * MAX_FAILURES
    await process.die()


async def test_a_request_that_is_to_blame_itself_is_not_asked_again(world: World) -> None:
    process = Process(world, "Yes")
    await process.step()
    end_all(world, errored("invalid_request_error"))
    await process.step()
    [judgement] = process.judgements()
    assert isinstance(judgement.result, Unscored)
    assert judgement.result.reason == "error"
    assert len(world.server.batches.requests) == 1
    await process.die()


async def test_an_answer_that_is_missing_is_asked_again(world: World) -> None:
    process = Process(world, "Yes")
    await process.step()
    end_all(world)
    world.server.batches.results["msgbatch_1"].popitem()
    world.server.batches.requests["msgbatch_1"].popitem()
    await process.step()
    await settle(world, process)
    [judgement] = process.judgements()
    assert sorted(attempt.kind for attempt in judgement.attempts) == ["failed", "valid", "valid"]
    await process.die()


async def test_a_batch_that_was_deleted_is_asked_again(world: World) -> None:
    process = Process(world, "Yes")
    await process.step()
    del world.server.batches.requests["msgbatch_1"]
    await process.step()
    await settle(world, process)
    assert isinstance(process.judgements()[0].result, Verdict)
    await process.die()


@pytest.mark.parametrize(
    ("reply", "trouble"),
    [
        (api.rate_limited(retry_after="25"), "rate_limit"),
        (api.overloaded(), "overloaded"),
        (api.failure(403, "permission_error"), "permission"),
    ],
)
async def test_a_refused_batch_is_tried_again_after_a_while(world: World, reply: api.Reply, trouble: str) -> None:
    process = Process(world, "Yes")
    world.server.batch_failures.append(reply)
    await process.step()
    assert (process.post.trouble, asked(world)) == (trouble, [])
    await process.step(5)
    assert asked(world) == []
    await process.step(30)
    assert (process.post.trouble, len(asked(world))) == (None, 2)
    await process.die()


async def test_a_batch_whose_creation_was_not_heard_of_is_found(world: World) -> None:
    process = Process(world, "Yes")
    world.server.batch_failures.append(api.drop(0))
    await process.step()
    assert process.post.trouble == "connection"
    assert len(asked(world)) == 2
    await process.step(181)
    end_all(world)
    await process.step()
    assert process.done
    assert len(world.server.batches.requests) == 1
    await process.die()


@pytest.mark.parametrize("cancel", [True, False])
async def test_a_stop_lets_jobs_go_and_ends_batches_if_it_shall(world: World, cancel: bool) -> None:
    process = Process(world, "Yes", policy=BatchPolicy(max_wait_s=60, poll_s=10, cancel=cancel))
    await process.step()
    await process.post.stop()
    assert [await task for task in process.tasks] == [False]
    assert world.server.batches.canceled == (["msgbatch_1"] if cancel else [])
    assert await process.post.answer(process.runs[0].questions[0]) is None
    await process.die()
