"""Every way to fail of the fault matrix, with the real SDK over the wire (`python -m benchmarks.judge_faults`)."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks.dialects import Anthropic, Dialect, OpenAiCompatible
from benchmarks.faults import faults
from benchmarks.judge_faults import IN_FLIGHT, Place, judge_settings, lasting, once
from monitor.errors import JudgeUnavailable
from monitor.judgement import Unscored
from monitor.judging.drive import Driver, Postponed
from monitor.judging.model import Completion, JudgeRequest
from monitor.judging.open import open_judge

TIMED = ("hangs before the headers", "hangs in the body", "trickles")


@pytest.mark.parametrize("dialect", [Anthropic(), OpenAiCompatible()], ids=lambda dialect: dialect.name)
async def test_every_fault_leads_to_what_it_should_and_nothing_is_scored_wrongly(dialect: Dialect) -> None:
    """Section 7: classified, a bounded number of calls, never a verdict from a wrong answer."""
    place, patient = Place(dialect, timeout_s=30.0), Place(dialect, timeout_s=1.0)
    await place.prepare()
    await patient.prepare()
    with place.serving() as url, patient.serving() as other:
        model = open_judge(judge_settings(dialect, url))
        slow = open_judge(judge_settings(dialect, other))
        found = faults(dialect, place.right(0), place.right(-1))
        assert len(found) >= 50
        for fault in found:
            at, asked = (patient, slow) if fault.name in TIMED else (place, model)
            end, calls, _ = await once(at, asked, fault)
            scored = end.endswith("verdict")
            assert scored or end in {"unscored (error)", "unscored (judge_refused)"}, (fault.name, end)
            assert calls <= 4, (fault.name, calls)
            if fault.name in TIMED:
                continue  # the ends are those of any other fault that may pass, and take a timeout a call
            ends, calls = await lasting(at, asked, fault, 3)
            assert ends.keys() <= fault.leads_to, (fault.name, ends)
            assert calls <= 12, (fault.name, calls)
        await model.aclose()
        await slow.aclose()


class Down:
    """A model that is down. It counts its calls in virtual time."""

    name, provider, model = "down:1", "down", "1"

    def __init__(self, seconds: float) -> None:
        self.now = 0.0
        self.calls: list[float] = []
        self._seconds = seconds

    async def complete(self, request: JudgeRequest, *, timeout: float) -> Completion:  # noqa: ASYNC109
        self.calls.append(self.now)
        await asyncio.sleep(0)
        if self.now < self._seconds:
            raise JudgeUnavailable("overloaded", "no")
        raise JudgeUnavailable("server_error", "still no")

    async def aclose(self) -> None:
        """Nothing is open."""


async def test_200_jobs_in_flight_make_no_storm_of_calls() -> None:
    """The first round, and then one probe a cool-down, however many jobs wait: 5, 10, 20, ... 300 s."""
    model, place = Down(3_600.0), Place(Anthropic(), timeout_s=30.0)
    driver = Driver(model, clock=lambda: model.now, sleep=lambda _: asyncio.sleep(0))
    runs = [place.run(number) for number in range(IN_FLIGHT)]
    while model.now < 3_600.0:
        outcomes = await asyncio.gather(*(driver.drive(run) for run in runs))
        waits = [outcome.retry_in for outcome in outcomes if isinstance(outcome, Postponed)]
        given_up = [outcome for outcome in outcomes if not isinstance(outcome, Postponed)]
        assert all(isinstance(outcome.result, Unscored) for outcome in given_up)
        assert len(waits) + len(given_up) == len(runs)
        runs = [run for run, outcome in zip(runs, outcomes, strict=True) if isinstance(outcome, Postponed)]
        model.now += min(waits) + 1e-6
    first = sum(at == 0.0 for at in model.calls)
    assert first <= IN_FLIGHT + 20
    assert len(model.calls) - first <= 20  # 6 doublings up to 300 s, then one each 300 s
    assert len(runs) >= IN_FLIGHT - 3  # a probe that fails again and again is one job's trouble at most
