"""Waiting for leave to make a call: bounded, in order, urgent first, nothing lost by canceling."""

import asyncio
import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.errors import JudgeUnavailable
from monitor.judgement import Usage
from monitor.judging.gate import Gate, Pass
from monitor.judging.limits import Limiter, LimitPolicy
from monitor.judging.model import Completion
from tests.unit.judging.limiting import REQUEST

ANSWER = Completion(text="")


def gate(calls: int = 1, **quotas: float) -> Gate:
    return Gate(Limiter(LimitPolicy(start=calls, maximum=calls, **quotas)))


async def test_urgent_callers_go_first_and_the_others_in_order() -> None:
    own, entered = gate(), []
    held = await own.enter(REQUEST, urgent=False)

    async def call(name: str) -> None:
        leave = await own.enter(REQUEST, urgent=name.startswith("u"))
        entered.append(name)
        await asyncio.sleep(0)
        own.leave(leave, ANSWER)

    tasks = [asyncio.create_task(call(name)) for name in ("r1", "r2", "u1", "r3", "u2")]
    await asyncio.sleep(0)
    assert own.waiting == 5
    own.leave(held, ANSWER)
    await asyncio.wait_for(asyncio.gather(*tasks), 5)
    assert entered == ["u1", "u2", "r1", "r2", "r3"]
    assert (own.waiting, own.limiter.concurrency.in_flight) == (0, 0)


async def test_a_quota_that_is_used_up_is_waited_for() -> None:
    own = gate(10, requests_per_minute=600)
    own.limiter.buckets["requests"].take(asyncio.get_running_loop().time(), 599.5)
    began = asyncio.get_running_loop().time()
    leave = await asyncio.wait_for(own.enter(REQUEST, urgent=False), 5)
    assert asyncio.get_running_loop().time() - began >= 0.04
    own.leave(leave, ANSWER)


async def test_canceling_gives_the_place_to_the_next_one() -> None:
    own = gate()
    held = await own.enter(REQUEST, urgent=False)
    first, second = (asyncio.create_task(own.enter(REQUEST, urgent=False)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    assert own.waiting == 1
    own.leave(held, ANSWER)
    own.leave(await asyncio.wait_for(second, 5), ANSWER)
    assert own.limiter.concurrency.in_flight == 0


async def test_canceling_one_that_was_just_let_in_gives_its_place_back() -> None:
    own = gate()
    held = await own.enter(REQUEST, urgent=False)
    waiter = asyncio.create_task(own.enter(REQUEST, urgent=False))
    await asyncio.sleep(0)
    own.leave(held, ANSWER)  # the waiter is let in, and hasn't run yet
    waiter.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await waiter
    own.leave(await asyncio.wait_for(own.enter(REQUEST, urgent=False), 5), ANSWER)
    assert own.limiter.concurrency.in_flight == 0


async def test_a_pass_that_is_not_used_costs_nothing() -> None:
    own = gate(requests_per_minute=600)
    own.abandon(await own.enter(REQUEST, urgent=False), made=False)
    assert own.limiter.buckets["requests"].level(0.0) == 600
    own.abandon(await own.enter(REQUEST, urgent=False), made=True)
    assert own.limiter.buckets["requests"].level(0.0) == pytest.approx(599, abs=0.5)


async def need(own: Gate, **changes: int) -> tuple[int, int]:
    leave = await own.enter(msgspec.structs.replace(REQUEST, **changes), urgent=False)
    own.abandon(leave, made=False)
    return leave.need.input_tokens, leave.need.output_tokens


async def test_what_is_expected_of_a_call() -> None:
    """Characters by 3; the prefix while it isn't cached; the output as it was lately, within what is allowed."""
    own = gate()
    assert await need(own) == (1_200, 1_000)
    assert await need(own, max_tokens=300) == (1_200, 300)
    cached = Completion(text="", usage=Usage(cache_read_tokens=900, output_tokens=2_000))
    own.leave(await own.enter(REQUEST, urgent=False), cached)
    assert await need(own) == (200, 1_100)
    unread = Completion(text="", usage=Usage(cache_write_tokens=900, output_tokens=100))
    own.leave(await own.enter(REQUEST, urgent=False), unread)
    assert await need(own) == (1_200, 1_000)
    own.leave(await own.enter(REQUEST, urgent=False), JudgeUnavailable("overloaded", "no"))
    assert await need(own) == (1_200, 1_000)


@given(
    acts=st.lists(st.sampled_from(["enter", "urgent", "leave", "cancel", "refused", "unused"]), max_size=60),
    calls=st.integers(1, 4),
)
def test_whatever_happens_places_are_neither_lost_nor_made(acts: list[str], calls: int) -> None:
    async def play() -> None:
        own = gate(calls)
        tasks: list[asyncio.Task[Pass]] = []
        for act in acts:
            done = [task for task in tasks if task.done() and not task.cancelled()]
            if act in {"enter", "urgent"}:
                tasks.append(asyncio.create_task(own.enter(REQUEST, urgent=act == "urgent")))
            elif act == "cancel" and tasks:
                tasks[-1].cancel()  # maybe one that was let in: then it is as good as never used
            elif done:
                tasks.remove(done[0])
                leave = done[0].result()
                if act == "unused":
                    own.abandon(leave, made=False)
                else:
                    own.leave(leave, ANSWER if act == "leave" else JudgeUnavailable("connection", "no"))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            tasks = [task for task in tasks if not task.cancelled()]
            inside = sum(task.done() for task in tasks)
            assert own.limiter.concurrency.in_flight == inside <= calls
            assert own.waiting == len(tasks) - inside
            assert not own.waiting or inside == own.limiter.concurrency.limit
        for task in tasks:
            task.cancel()

    asyncio.run(play())
