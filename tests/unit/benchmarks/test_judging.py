"""The benchmark of the judge at a tiny size, over the wire; and what its ideal is."""

import pytest

from benchmarks.judge_jobs import RUBRIC, answer, jobs
from benchmarks.judging import Plan, Server, bare, ideal, judged
from monitor.judging.prompt import load
from monitor.rubrics import RUBRICS


def test_the_ideal_keeps_every_slot_busy_in_order() -> None:
    assert ideal([1.0, 2.0, 3.0], 1) == 6.0
    assert ideal([3.0, 1.0, 1.0, 1.0], 2) == 3.0
    assert ideal([1.0, 1.0, 4.0], 2) == 5.0
    assert ideal([1.0], 5) == 1.0


@pytest.mark.parametrize("limited", [0.0, 0.3])
async def test_the_runs_do_what_they_measure(limited: float) -> None:
    items = jobs(24)
    answers = dict([await answer(job, RUBRICS[RUBRIC], load(RUBRIC)) for job in items])
    plan = Plan(answers=answers, latencies=(0.05,) * 24, limited=limited)
    with Server(plan) as url:
        run = await judged(items, 8, plan, url)
        assert (run.calls > 1.0) == (limited > 0)
        assert run.ideal_s == pytest.approx(0.1)
        assert 0 < run.achieved <= 1
        if not limited:
            alone = await bare(items, 8, plan, url)
            assert alone.cpu_ms > 0
