"""What each way in which a provider fails leads to, with the real SDK over the wire.

    python -m benchmarks.judge_faults [--json]

once      the fault comes once, then right answers: what becomes of the job, how many calls, after how long.
lasting   the fault stays, for eight jobs at a time: what becomes of them, and how many calls they make.
storm     200 jobs in flight, and nothing but one fault for 20 s: calls in all, in the worst second, and the time
          from the end of the outage to the first and to the last verdict.

Waits of `once` and `lasting` are not slept but counted (the clock is moved on); those of `storm` are real. A job
that is put off is driven again after the wait, as the judge process does it; after a fatal error after 30 s.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from benchmarks.dialects import Anthropic, Dialect, Fault, OpenAiCompatible
from benchmarks.faults import faults
from benchmarks.judge_jobs import RUBRIC, answer, jobs
from consumers.job_judge import JobJudge
from monitor.config import JudgeSettings
from monitor.decision import Job
from monitor.errors import JudgeFatal
from monitor.judgement import Judgement, Unscored
from monitor.judging.drive import Driver, JobRun, Postponed
from monitor.judging.gate import Gate
from monitor.judging.limits import Limiter, LimitPolicy
from monitor.judging.model import JudgeModel
from monitor.judging.open import open_judge
from monitor.judging.prompt import load
from monitor.judging.retry import RetryPolicy
from monitor.rubrics import RUBRICS
from monitor.session import session_view
from tests.services.messages_api import API_KEY, Received, Reply, drop, hang

AT_A_TIME: Final = 8
IN_FLIGHT: Final = 200
OUTAGE_S: Final = 20.0
FATAL_WAIT_S: Final = 30.0
ROUNDS: Final = 20
DIALECTS: Final[tuple[Dialect, ...]] = (Anthropic(), OpenAiCompatible())


class Row(msgspec.Struct, kw_only=True, frozen=True):
    """One fault of one provider. `lasting` counts the ends of jobs; `calls` are those of one job, at most."""

    provider: str
    fault: str
    once: str
    once_calls: int
    once_s: float
    lasting: dict[str, int]
    lasting_calls: int


class Storm(msgspec.Struct, kw_only=True, frozen=True):
    """One outage of `OUTAGE_S`: calls while it lasted, in its worst second after the first, and the recovery."""

    provider: str
    fault: str
    calls: int
    worst_second: int
    first_verdict_s: float
    all_verdicts_s: float


class Clock:
    """Real time plus the time that was slept."""

    def __init__(self) -> None:
        self._slept = 0.0

    def __call__(self) -> float:
        """Give monotonic seconds."""
        return time.monotonic() + self._slept

    async def sleep(self, seconds: float) -> None:
        """Move the clock on, and let others run."""
        self._slept += seconds
        await asyncio.sleep(0)


class Place:
    """A server, a judge that asks it, and the jobs with their right answers."""

    def __init__(self, dialect: Dialect, timeout_s: float) -> None:
        self.dialect = dialect
        self.items = jobs(IN_FLIGHT)
        self.answers: dict[str, str] = {}
        self.fault: Fault | None = None
        self.left = 0
        self.arrivals: list[float] = []
        self._policy = RetryPolicy(attempt_timeout_s=timeout_s)

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Run the server; gives its base URL."""
        with self.dialect.server(self._reply) as server:
            yield server.base_url

    async def prepare(self) -> None:
        """Work out the right answers."""
        prompt = load(RUBRIC)
        self.answers = dict([await answer(job, RUBRICS[RUBRIC], prompt) for job in self.items])

    def right(self, number: int) -> str:
        """Give the right answer to a job."""
        return list(self.answers.values())[number]

    def driver(self, model: JudgeModel, clock: Clock) -> Driver:
        """Make a driver as a process has it, with quotas a minute, on a clock that is moved on."""
        policy = LimitPolicy(requests_per_minute=60_000, input_tokens_per_minute=1e8, output_tokens_per_minute=1e7)
        return Driver(model, self._policy, gate=Gate(Limiter(policy)), clock=clock, sleep=clock.sleep)

    def run(self, number: int) -> JobRun:
        """Make the run of a job."""
        job = self.items[number]
        return JobRun(job, session_view(job.content), RUBRICS[RUBRIC], load(RUBRIC))

    def break_down(self, fault: Fault | None, times: int = 1_000_000) -> None:
        """Fail so many of the next calls."""
        self.fault, self.left = fault, times
        self.arrivals.clear()

    def _reply(self, received: Received) -> Reply:
        self.arrivals.append(time.monotonic())
        fault = self.fault
        if fault is not None and self.left > 0 and len(self.arrivals) % fault.every == 0:
            self.left -= 1
            return fault.reply
        return self.dialect.answer(self.answers[self.dialect.question(received.body)])


def ended(outcome: Judgement | Postponed | JudgeFatal) -> str:
    """Name the end of a job."""
    if isinstance(outcome, JudgeFatal):
        return f"fatal ({outcome.error_type})"
    if isinstance(outcome, Postponed):
        return f"put off ({outcome.reason})"
    if isinstance(outcome.result, Unscored):
        return f"unscored ({outcome.result.reason})"
    return "verdict"


async def drive(driver: Driver, run: JobRun) -> Judgement | Postponed | JudgeFatal:
    """Drive a run once."""
    try:
        return await driver.drive(run)
    except JudgeFatal as error:
        return error


async def once(place: Place, model: JudgeModel, fault: Fault) -> tuple[str, int, float]:
    """Meet a fault once, after a first answer: the end, the calls, the seconds."""
    clock = Clock()
    driver = place.driver(model, clock)
    place.break_down(None)
    await driver.drive(place.run(1))
    place.break_down(fault, times=1)
    run, began, told = place.run(0), clock(), []
    for _ in range(ROUNDS):
        outcome = await drive(driver, run)
        if isinstance(outcome, Judgement):
            break
        told.append(ended(outcome))
        await clock.sleep(outcome.retry_in if isinstance(outcome, Postponed) else FATAL_WAIT_S)
    return ", then ".join([*told, ended(outcome)]), len(place.arrivals), clock() - began


async def lasting(place: Place, model: JudgeModel, fault: Fault, at_a_time: int) -> tuple[dict[str, int], int]:
    """Meet a fault for good, several jobs at a time, after a first answer: their ends, and the calls of a job."""
    clock = Clock()
    driver = place.driver(model, clock)
    place.break_down(None)
    await driver.drive(place.run(at_a_time))
    place.break_down(fault)
    runs = [place.run(number) for number in range(at_a_time)]
    outcomes = await asyncio.gather(*(drive(driver, run) for run in runs))
    calls = [
        len(outcome.attempts) if isinstance(outcome, Judgement) else run.failures + isinstance(outcome, JudgeFatal)
        for run, outcome in zip(runs, outcomes, strict=True)
    ]
    return dict(Counter(ended(outcome) for outcome in outcomes)), max(calls)


async def storm(dialect: Dialect, name: str, reply: Reply) -> Storm:
    """Let 200 jobs meet an outage, and recover."""
    place = Place(dialect, timeout_s=2.0)
    await place.prepare()
    with place.serving() as url:
        settings = judge_settings(
            dialect, url, attempt_timeout_s=2.0, concurrency=IN_FLIGHT, start_concurrency=IN_FLIGHT
        )
        model = open_judge(settings)
        judge = JobJudge(settings, model)
        place.break_down(Fault(name=name, reply=reply))
        began = time.monotonic()
        finished: list[float] = []

        async def one(job: Job) -> None:
            outcome = await judge.judge(job)
            if isinstance(outcome, Judgement) and ended(outcome) == "verdict":
                finished.append(time.monotonic())

        tasks = [asyncio.create_task(one(job)) for job in place.items]
        await asyncio.sleep(OUTAGE_S)
        arrivals = list(place.arrivals)
        place.break_down(None)
        over = time.monotonic()
        await asyncio.gather(*tasks)
        await model.aclose()
    seconds = Counter(int(at - began) for at in arrivals)
    seconds.pop(0, None)
    return Storm(
        provider=dialect.name,
        fault=name,
        calls=len(arrivals),
        worst_second=max(seconds.values(), default=0),
        first_verdict_s=round(min(finished, default=over) - over, 1),
        all_verdicts_s=round(max(finished, default=over) - over, 1) if len(finished) == IN_FLIGHT else -1.0,
    )


def judge_settings(dialect: Dialect, url: str, **more: Any) -> JudgeSettings:
    """Give the settings of a judge that asks a server."""
    return JudgeSettings.model_validate({"model": dialect.model, "base_url": url, "api_key": API_KEY} | more)


async def matrix(dialect: Dialect, timeout_s: float = 0.5, at_a_time: int = AT_A_TIME) -> list[Row]:
    """Go through all faults of a provider."""
    place = Place(dialect, timeout_s)
    await place.prepare()
    rows = []
    with place.serving() as url:
        model = open_judge(judge_settings(dialect, url))
        for fault in faults(dialect, place.right(0), place.right(-1)):
            end, calls, seconds = await once(place, model, fault)
            ends, most = await lasting(place, model, fault, at_a_time)
            rows.append(
                Row(
                    provider=dialect.name,
                    fault=fault.name,
                    once=end,
                    once_calls=calls,
                    once_s=round(seconds, 1),
                    lasting=ends,
                    lasting_calls=most,
                )
            )
        await model.aclose()
    return rows


async def storms(dialect: Dialect) -> list[Storm]:
    """Let all kinds of outages come, one after the other."""
    replies = {
        "429": dialect.failure(429),
        "429, retry-after 2 s": dialect.failure(429, retry_after="2"),
        "500": dialect.failure(500),
        "529": dialect.failure(529),
        "drops before the headers": drop(None),
        "hangs before the headers": hang(),
    }
    return [await storm(dialect, name, reply) for name, reply in replies.items()]


def table(rows: Sequence[Row], outages: Sequence[Storm]) -> str:
    """Lay it out as two tables in Markdown."""
    lines = [
        _line(
            ("provider", "fault", "once: ends in", "calls", "seconds", "lasting: eight jobs end in", "calls a job")
        ),
        _line(["---"] * 7),
    ]
    for row in rows:
        ends = ", ".join(f"{count} {end}" for end, count in sorted(row.lasting.items()))
        cells = (row.provider, row.fault, row.once, row.once_calls, row.once_s, ends, row.lasting_calls)
        lines.append(_line(cells))
    lines += [
        "",
        _line(("provider", "outage", "calls in 20 s", "worst second but the first", "first verdict, s", "all, s")),
        _line(["---"] * 6),
    ]
    for item in outages:
        worst, first = item.worst_second, item.first_verdict_s
        lines.append(_line((item.provider, item.fault, item.calls, worst, first, item.all_verdicts_s)))
    return "\n".join(lines)


def _line(cells: Sequence[object]) -> str:
    return f"| {' | '.join(str(cell) for cell in cells)} |"


async def _everything() -> tuple[list[Row], list[Storm]]:
    rows, outages = [], []
    for dialect in DIALECTS:
        rows += await matrix(dialect)
        outages += await storms(dialect)
    return rows, outages


def main() -> None:
    """Go through everything and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    rows, outages = asyncio.run(_everything())
    if given.json:
        sys.stdout.write(json.dumps(msgspec.to_builtins({"faults": rows, "outages": outages}), indent=1) + "\n")
    else:
        sys.stdout.write(table(rows, outages) + "\n")


if __name__ == "__main__":
    main()
