"""What the log says of the cost of judging; and that nothing is judged at an unknown price."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from consumers import judge as judge_process
from consumers.expected_cost import expected_cost
from consumers.health import Health
from monitor.config import Settings, load
from monitor.errors import ConfigError
from monitor.judgement import Screening
from monitor.metrics import Meters
from monitor.replay import run_replay
from monitor.session import LogSpan
from monitor.store import Store
from tests.unit.store.builders import RUBRICS, decision, judgement

HAIKU = "anthropic:claude-haiku-5-5"
UNKNOWN = "anthropic:claude-of-tomorrow"


def settings(model: str, **more: Any) -> Settings:
    return load(None, {"judge.model": model, "judge.api_key": "k", **more})


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(f"sqlite:///{tmp_path}/store.sqlite", rubrics=RUBRICS)


def logged(settings: Settings, store: Store) -> list[Any]:
    with capture_logs() as logs:
        expected_cost(settings, settings.judge.model, store)
    return logs


def test_the_expected_cost_comes_from_policy_and_volume(store: Store) -> None:
    """40 base sessions in two days, of which the built-in policy picks 5 %, at half a cent a job."""
    two_days_ago = LogSpan(partition=0, first=1, last=9, closed_at=round((time.time() - 2 * 86_400) * 1000))
    sessions = [decision(f"s{number}", span=two_days_ago) for number in range(40)]
    judged = [judgement(f"s{number}", judge=HAIKU, cost_nusd=5_000_000) for number in range(40)]
    store.record([*sessions, *judged])
    (line,) = logged(settings(HAIKU), store)
    assert (line["event"], line["prices"]) == ("expected_judge_cost", "2026-11-30")
    assumed = [line["usd_a_job"][f"base/{rubric}"] for rubric in ("refusal", "hallucination", "conversation")]
    assert line["usd_a_job"]["base/correction"] == 0.005
    assert 0 < min(assumed) < max(assumed) < 0.005
    assert line["usd_a_day_by_stratum"]["base"] == pytest.approx(20 * 0.05 * (0.005 + sum(assumed)), rel=1e-2)
    assert line["usd_a_day"] == line["usd_a_day_by_stratum"]["base"]
    assert line["cost_of_a_job"] == "partly assumed"  # the other strata are empty


def test_the_question_that_finds_corrections_is_part_of_it(store: Store) -> None:
    two_days_ago = LogSpan(partition=0, first=1, last=9, closed_at=round((time.time() - 2 * 86_400) * 1000))
    store.record([decision("s1", span=two_days_ago)])
    (plain,) = logged(settings(HAIKU), store)
    (line,) = logged(settings(HAIKU, **{"rubrics.correction.extractor": "model"}), store)
    extra = {name: line["usd_a_job"][name] - plain["usd_a_job"][name] for name in plain["usd_a_job"]}
    assert {name for name, more in extra.items() if more} == {
        name for name in extra if name.endswith("/correction")
    }
    assert all(0 < more < plain["usd_a_job"][name] for name, more in extra.items() if more)


def test_the_screen_is_part_of_it(store: Store) -> None:
    """What it cost is part of the measured cost of a job; what isn't measured is assumed, for a free judge too."""
    two_days_ago = LogSpan(partition=0, first=1, last=9, closed_at=round((time.time() - 2 * 86_400) * 1000))
    first = Screening(
        judge=HAIKU,
        provider="anthropic",
        model="claude-haiku-5-5",
        prompt_version="v1",
        prompt_hash="h",
        verdict="look",
        cost_nusd=1_000_000,
    )
    screened = judgement("s1", judge=HAIKU, cost_nusd=4_000_000, screen=first)
    store.record([decision("s1", span=two_days_ago), screened])
    screen = {"judge.screen.model": HAIKU, "judge.screen.api_key": "k", "judge.screen.rubrics": ["correction"]}
    (line,) = logged(settings(HAIKU, **screen), store)
    assert line["usd_a_job"]["base/correction"] == 0.005
    (free,) = logged(settings("lexical", **screen), store)
    assert 0 < free["usd_a_job"]["base/correction"] < 0.005
    (line,) = logged(settings("lexical", **screen | {"judge.screen.model": UNKNOWN}), store)
    assert line["event"] == "judge_cost_unknown"


def test_what_is_free_or_unknown_is_said(store: Store) -> None:
    assert logged(settings("lexical"), store) == []
    (line,) = logged(settings(UNKNOWN), store)
    assert line["event"] == "judge_cost_unknown"
    assert "judge.prices" in line["reason"]


async def test_a_judge_without_a_price_is_not_started() -> None:
    meters = Meters(judge_process.METERS, version="0", process="judge")
    unpriced = settings(UNKNOWN)
    with pytest.raises(ConfigError, match=r"no price is known.*judge\.prices"):
        await judge_process.serve(unpriced, meters, asyncio.Event(), Health(time.monotonic))
    with pytest.raises(ConfigError, match="no price is known"):
        await run_replay(Path("never-opened.jsonl"), unpriced)
