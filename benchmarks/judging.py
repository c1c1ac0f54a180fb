"""How near the judge comes to what the provider's latency allows, and what it costs in CPU besides the SDK.

    python -m benchmarks.judging [--json] [--jobs N] [--concurrency N] [--data ../shared/data]

A server in a process of its own speaks the Messages API and answers after a latency drawn from a lognormal
distribution with mean 1 s. Jobs of the correction rubric go through the whole judge but Kafka: hash, decoding,
windows, prompt, SDK, breaker, limits, ledger, parsing and checks of the answer.

`achieved_over_ideal` is the shortest time in which so many slots can serve the very latencies that were drawn, in
their order, over the time it took. In the runs with 429s the ideal counts the 2,000 answers alone: all that the
429s cost, and the waits after them, is loss. A first round that opens the connections is not measured.
`cpu_ms_per_job` is the process's CPU time a job less that of the SDK: the same calls in a bare loop.
`rubrics` is what each rubric costs on the recorded traffic in `--data`, see `benchmarks.rubric_cost`.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import json
import multiprocessing
import random
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import anthropic
import msgspec

from benchmarks import rubric_cost
from benchmarks.judge_jobs import RUBRIC, answer, jobs
from consumers.job_judge import JobJudge
from monitor.config import JudgeSettings
from monitor.decision import Job
from monitor.judgement import Judgement, Verdict
from monitor.judging.anthropic import AnthropicJudge
from monitor.judging.drive import JobRun
from monitor.judging.prices import price_of
from monitor.judging.prompt import load
from monitor.rubrics import RUBRICS
from monitor.session import session_view

MODEL: Final = "claude-haiku-5-5"
MEAN_S: Final = 1.0
SIGMA: Final = 0.5
SEED: Final = 20_261_130


class Plan(msgspec.Struct, kw_only=True, frozen=True):
    """What the server does: the answer to each question, and the latency of each answer in the order of arrival.

    A share `limited` of the calls is 429 at once, beside the answers.
    """

    answers: dict[str, str]
    latencies: tuple[float, ...]
    limited: float = 0.0


class Run(msgspec.Struct, kw_only=True, frozen=True):
    """One measured run; CPU time and calls are those of one job."""

    seconds: float
    ideal_s: float
    cpu_ms: float
    calls: float = 1.0

    @property
    def achieved(self) -> float:
        """The ideal time over the real one."""
        return self.ideal_s / self.seconds


class _Question(msgspec.Struct):
    messages: list[dict[str, Any]]


class Api(asyncio.Protocol):
    """The server's side of one connection."""

    def __init__(self, plan: Plan, state: State) -> None:
        self._plan = plan
        self._state = state
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport: Any = transport

    def data_received(self, data: bytes) -> None:
        """Collect a request and answer it."""
        self._data += data
        head, found, body = self._data.partition(b"\r\n\r\n")
        if not found or len(body) < _length(head):
            return
        self._data = b""
        question = self._state.decoder.decode(body).messages[-1]["content"]
        delay, reply = self._state.reply(self._plan, question)
        asyncio.get_running_loop().call_later(delay, self._send, reply)

    def _send(self, reply: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(reply)


class State:
    """What all connections share: which answer is next."""

    def __init__(self) -> None:
        self.decoder = msgspec.json.Decoder(_Question)
        self._chance = random.Random(SEED)
        self._next = 0

    def reply(self, plan: Plan, question: str) -> tuple[float, bytes]:
        """Give the delay and the bytes of the answer to a question."""
        if self._chance.random() < plan.limited:
            error = {"type": "error", "error": {"type": "rate_limit_error", "message": "slow down"}}
            return 0.0, _http(429, error)
        delay = plan.latencies[self._next % len(plan.latencies)]
        self._next += 1
        return delay, _http(200, _message(plan.answers[question]))


def _message(text: str) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": [{"type": "text", "text": text}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 700, "output_tokens": 300, "cache_read_input_tokens": 4_000},
    }


def _http(status: int, body: dict[str, Any]) -> bytes:
    raw = json.dumps(body).encode()
    head = f"HTTP/1.1 {status} Reply\r\ncontent-type: application/json\r\ncontent-length: {len(raw)}\r\n\r\n"
    return head.encode() + raw


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.split(b":")[1])
    return 0


def serve(pipe: Connection, raw: bytes) -> None:
    """Serve a plan until the pipe closes; the port goes through it."""
    plan = msgspec.json.decode(raw, type=Plan)

    async def run() -> None:
        state = State()
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Api(plan, state), "127.0.0.1", 0, backlog=1_024)
        pipe.send(server.sockets[0].getsockname()[1])
        await loop.run_in_executor(None, _closed, pipe)

    asyncio.run(run())


def _closed(pipe: Connection) -> None:
    try:
        pipe.recv()
    except EOFError:
        return


class Server:
    """The server's process. A context manager that gives its base URL."""

    def __init__(self, plan: Plan) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, msgspec.json.encode(plan)), daemon=True)
        self._process.start()
        theirs.close()

    def __enter__(self) -> str:
        return f"http://127.0.0.1:{self._pipe.recv()}"

    def __exit__(self, *_: object) -> None:
        self._pipe.close()
        self._process.join(timeout=10)


def ideal(latencies: Sequence[float], slots: int) -> float:
    """Give the time in which so many slots serve these latencies, each as soon as one is free, in their order."""
    free = [0.0] * slots
    for latency in latencies:
        heapq.heapreplace(free, free[0] + latency)
    return max(free)


async def _all(items: Sequence[Any], slots: int, one: Callable[[Any], Awaitable[None]]) -> None:
    """Do all items, so many at a time, in order."""
    left = iter(items)

    async def slot() -> None:
        for item in left:
            await one(item)

    await asyncio.gather(*(slot() for _ in range(slots)))


async def _measured(
    items: Sequence[Any], slots: int, skip: int, plan: Plan, one: Callable[[Any], Awaitable[None]]
) -> tuple[float, float, float]:
    """Give seconds, ideal seconds and CPU seconds of all items but the first ones."""
    await _all(items[:skip], slots, one)
    rest = items[skip:]
    began, cpu = time.perf_counter(), time.process_time()
    await _all(rest, slots, one)
    seconds, spent = time.perf_counter() - began, time.process_time() - cpu
    return seconds, ideal(plan.latencies[skip : skip + len(rest)], slots), spent


async def bare(items: Sequence[Job], slots: int, plan: Plan, base_url: str) -> Run:
    """Make the same calls with the SDK alone."""
    judge = AnthropicJudge(MODEL, api_key="k", base_url=base_url)
    client = anthropic.AsyncAnthropic(api_key="k", base_url=base_url, max_retries=0)
    rubric, prompt = RUBRICS[RUBRIC], load(RUBRIC)
    requests = [JobRun(job, session_view(job.content), rubric, prompt).request for job in items]
    parameters = [judge.params_for(request) for request in requests if request is not None]

    async def one(params: dict[str, Any]) -> None:
        response = await client.messages.with_raw_response.create(**params, timeout=60.0)
        if not response.http_response.content:
            raise RuntimeError("an empty answer")

    seconds, best, cpu = await _measured(parameters, slots, slots, plan, one)
    await client.close()
    await judge.aclose()
    return Run(seconds=seconds, ideal_s=best, cpu_ms=cpu / (len(items) - slots) * 1000)


async def judged(items: Sequence[Job], slots: int, plan: Plan, base_url: str, *, cold: bool = False) -> Run:
    """Judge the jobs; `cold`: as a new process, which starts with few calls at a time.

    Raises `RuntimeError` unless each one ends in a verdict.
    """
    calls = 0

    def count(_: object) -> None:
        nonlocal calls
        calls += 1

    model = AnthropicJudge(MODEL, api_key="k", base_url=base_url)
    start = 16 if cold else slots
    settings = JudgeSettings(concurrency=slots, start_concurrency=start)
    judge = JobJudge(settings, model, price=price_of(model.name, {}), on_call=count)

    async def one(job: Job) -> None:
        outcome = await judge.judge(job)
        if not isinstance(outcome, Judgement) or not isinstance(outcome.result, Verdict):
            raise RuntimeError(f"no verdict: {outcome}")  # noqa: TRY004 - no matter of types

    skip = 0 if cold else slots
    seconds, best, cpu = await _measured(items, slots, skip, plan, one)
    await model.aclose()
    return Run(seconds=seconds, ideal_s=best, cpu_ms=cpu / (len(items) - skip) * 1000, calls=calls / len(items))


async def measure(count: int, slots: int) -> dict[str, Run]:
    """Run everything, one after the other, each against a server of its own."""
    items = jobs(count + slots)
    prompt = load(RUBRIC)
    answers = dict([await answer(job, RUBRICS[RUBRIC], prompt) for job in items])
    chance = random.Random(SEED)
    draws = tuple(chance.lognormvariate(-SIGMA * SIGMA / 2, SIGMA) * MEAN_S for _ in range(len(items)))
    plain = Plan(answers=answers, latencies=draws)
    limited = Plan(answers=answers, latencies=draws, limited=0.05)
    runs = {}
    with Server(plain) as url:
        runs["sdk"] = await bare(items, slots, plain, url)
    with Server(plain) as url:
        runs["judge"] = await judged(items, slots, plain, url)
    with Server(limited) as url:
        runs["judge_429"] = await judged(items, slots, limited, url)
    with Server(plain) as url:
        runs["judge_cold"] = await judged(items[slots:], slots, plain, url, cold=True)
    return runs


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--jobs", type=int, default=2_000)
    parser.add_argument("--concurrency", type=int, default=200)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    given = parser.parse_args()
    traffic = given.data / rubric_cost.TRAFFIC
    if not traffic.exists():
        print(f"{traffic} isn't there: the cost of the rubrics is left out", file=sys.stderr)
    costs = rubric_cost.costs(given.data) if traffic.exists() else {}
    runs = asyncio.run(measure(given.jobs, given.concurrency))
    sdk = runs["sdk"].cpu_ms
    figures = {
        "achieved_over_ideal": runs["judge"].achieved,
        "cpu_ms_per_job": runs["judge"].cpu_ms - sdk * runs["judge"].calls,
        "sdk_cpu_ms_per_call": sdk,
        "sdk_achieved_over_ideal": runs["sdk"].achieved,
        "achieved_over_ideal_429": runs["judge_429"].achieved,
        "cpu_ms_per_job_429": runs["judge_429"].cpu_ms - sdk * runs["judge_429"].calls,
        "achieved_over_ideal_cold_start": runs["judge_cold"].achieved,
    }
    rounded = {name: round(value, 3) for name, value in figures.items()}
    if given.json:
        print(json.dumps(rounded | {"rubrics": msgspec.to_builtins(costs)}))
        return
    for name, value in rounded.items():
        print(f"{name:32} {value}")
    if costs:
        print(f"\n{rubric_cost.table(costs)}")


if __name__ == "__main__":
    main()
