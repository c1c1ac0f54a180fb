"""What judging will cost a day, logged at the start of `record`: of all processes it alone knows the volume."""

from __future__ import annotations

import time
from collections import Counter
from typing import Final

import structlog

from monitor.config import Settings
from monitor.errors import ConfigError
from monitor.judging.extract import PROMPT as EXTRACTOR
from monitor.judging.extract import extraction_of
from monitor.judging.forecast import ASSUMED_EXTRACTION_TOKENS, ASSUMED_SCREEN_TOKENS, assumed_cost, forecast
from monitor.judging.open import judge_name
from monitor.judging.prices import NUSD, Price, price_of
from monitor.judging.prompt import constraints_for, load
from monitor.judging.screen import PROMPTS, screened
from monitor.rubrics import RUBRICS, configured
from monitor.rubrics.base import Rubric
from monitor.sampling.policy_file import PolicyFile
from monitor.store import Store

LOOK_BACK_D: Final = 7.0


def expected_cost(settings: Settings, judge: str, store: Store) -> None:
    """Log the expected cost of a day, by stratum, and how it is known. Raises `StoreError`.

    A judge without a price, a broken policy or prompt is for `judge` and `sample` to refuse; recording goes on.
    """
    log = structlog.get_logger().bind(process="record", judge=judge)
    try:
        price = price_of(judge, settings.judge.prices)
        screens = _screens(settings)
        policy = PolicyFile(settings.sampling.policy, rubrics=RUBRICS).policy
        constraints = constraints_for(settings.judge.constraints, None)
        assumed = {
            name: _full(rubric, constraints, price) + screens.get(name, 0)
            for name, rubric in configured(settings.rubrics).items()
        }
    except ConfigError as error:
        log.warning("judge_cost_unknown", reason=str(error))
        return
    if price.free and not any(screens.values()):
        return
    now = time.time()
    found = forecast(policy, store.volumes(now - LOOK_BACK_D * 86_400, judge), round(now * 1000), assumed)
    by_stratum: Counter[str] = Counter()
    for item in found:
        by_stratum[item.stratum] += item.cost_nusd_a_day
    log.info(
        "expected_judge_cost",
        usd_a_day=round(by_stratum.total() / NUSD, 4),
        usd_a_day_by_stratum={name: round(cost / NUSD, 4) for name, cost in by_stratum.items()},
        jobs_a_day=round(sum(item.jobs_a_day for item in found), 1),
        usd_a_job={f"{item.stratum}/{item.rubric}": item.cost_nusd_a_job / NUSD for item in found},
        cost_of_a_job="measured" if all(item.measured for item in found) else "partly assumed",
        prices=price.version,
    )


def _full(rubric: Rubric, constraints: str, price: Price) -> int:
    """Give what judging is assumed to cost, in 1e-9 $: one question, and the one before it where there is one."""
    cost = assumed_cost(load(rubric.name, constraints=constraints), price)
    if extraction_of(rubric) is None:
        return cost
    return cost + assumed_cost(load(EXTRACTOR, constraints=constraints), price, ASSUMED_EXTRACTION_TOKENS)


def _screens(settings: Settings) -> dict[str, int]:
    """Give what a first look is assumed to cost, in 1e-9 $, by rubric that is screened. Raises `ConfigError`."""
    screen = settings.judge.screen
    if not screen.model:
        return {}
    price = price_of(judge_name(screen), settings.judge.prices)
    constraints = constraints_for(settings.judge.constraints, None)
    return {
        name: assumed_cost(load(PROMPTS[name], constraints=constraints), price, ASSUMED_SCREEN_TOKENS)
        for name in screened(screen)
    }
