"""What judging will cost a day, by policy and recent volume."""

import pytest

from monitor.judging.forecast import assumed_cost, forecast
from monitor.judging.prices import price_of
from monitor.sampling.policy import parse_policy
from monitor.store.costs import DAY_MS, JudgedVolume, Volume
from tests.unit.judging.politeness import prompt

POLICY = parse_policy(
    """
strata:
  - {name: escalated, when: "signals.escalations > 0", rate: 1.0, rubrics: [correction]}
  - {name: base, rate: 0.05, rubrics: [correction]}
""",
    source="test",
    rubrics=["correction"],
)
NOW = 1_790_000_000_000


def volume(stratum: str, finished: int, selected: int, days: float = 2.0, **judged: int) -> Volume:
    found = {"correction": JudgedVolume(**judged)} if judged else {}
    return Volume(
        stratum=stratum, first=NOW - round(days * DAY_MS), finished=finished, selected=selected, judged=found
    )


def test_volume_times_rate_times_the_measured_cost_of_a_job() -> None:
    found = forecast(
        POLICY,
        [
            volume("escalated", 400, 400, judgements=400, mine=200, cost_nusd=200_000_000),
            # An earlier policy selected 10 % of these; half of them were outside the rubric's frame.
            volume("base", 20_000, 2_000, judgements=1_000, mine=0, cost_nusd=0),
            volume("gone", 999, 999),
        ],
        NOW,
        {"correction": 3_000_000},
    )
    escalated, base = found
    assert (escalated.sessions_a_day, escalated.jobs_a_day) == (200, 200)
    assert (escalated.cost_nusd_a_job, escalated.measured) == (1_000_000, True)
    assert escalated.cost_nusd_a_day == 200_000_000
    assert base.sessions_a_day == 10_000
    assert base.jobs_a_day == pytest.approx(10_000 * 0.05 / 2)
    assert (base.cost_nusd_a_job, base.measured) == (3_000_000, False)


def test_without_history_nothing_is_expected_but_the_cost_of_a_job_is_said() -> None:
    found = forecast(POLICY, [], NOW, {"correction": 3_000_000})
    assert [(item.jobs_a_day, item.cost_nusd_a_job, item.measured) for item in found] == [
        (0, 3_000_000, False)
    ] * 2


def test_a_first_minute_is_not_taken_for_a_day() -> None:
    """One session a minute ago would be 1,440 a day; an hour at least is assumed to have passed."""
    found = forecast(POLICY, [volume("escalated", 1, 1, days=1 / 1_440)], NOW, {"correction": 1})
    assert found[0].sessions_a_day == pytest.approx(24)


def test_a_job_of_which_nothing_is_known() -> None:
    """The prefix read from the cache at 0.01 $, 2,000 tokens at 0.10 $, 1,200 at 0.50 $ a million."""
    cost = assumed_cost(prompt(), price_of("anthropic:claude-haiku-5-5", {}))
    assert cost == 2_000 * 100 + 1_200 * 500 + len(prompt().system) // 3 * 10
