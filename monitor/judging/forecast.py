"""What judging will cost a day: recent finished sessions, by the policy's rates, by the cost of a job. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from monitor.judgement import Usage
from monitor.judging.prices import Price
from monitor.judging.prompt import Prompt
from monitor.sampling.policy import Policy, Stratum
from monitor.store.costs import DAY_MS, Volume

CHARACTERS_A_TOKEN: Final = 3
ASSUMED_WINDOW_TOKENS: Final = 2_000
ASSUMED_OUTPUT_TOKENS: Final = 1_200
ASSUMED_SCREEN_TOKENS: Final = 100
ASSUMED_EXTRACTION_TOKENS: Final = 200
_SHORTEST_DAYS: Final = 1 / 24


class Forecast(msgspec.Struct, kw_only=True, frozen=True):
    """What one rubric will take in one stratum. `measured`: the cost of a job is that of recent jobs."""

    stratum: str
    rubric: str
    sessions_a_day: float
    jobs_a_day: float
    cost_nusd_a_job: int
    measured: bool

    @property
    def cost_nusd_a_day(self) -> int:
        """The expected cost of a day, in 1e-9 $."""
        return round(self.jobs_a_day * self.cost_nusd_a_job)


def assumed_cost(prompt: Prompt, price: Price, output_tokens: int = ASSUMED_OUTPUT_TOKENS) -> int:
    """Give the cost of a job of which nothing is known, in 1e-9 $.

    One call: the frozen prefix from the cache, at three characters a token, 2,000 tokens of window and 1,200 of
    answer (of a screen's: 100, of an extraction's: 200).
    """
    usage = Usage(
        input_tokens=ASSUMED_WINDOW_TOKENS,
        cache_read_tokens=len(prompt.system) // CHARACTERS_A_TOKEN,
        output_tokens=output_tokens,
    )
    return price.cost(usage)


def forecast(policy: Policy, volumes: Sequence[Volume], now: int, assumed: Mapping[str, int]) -> list[Forecast]:
    """Give what each rubric of each stratum of the policy will take, if traffic goes on as it was.

    `now` is Unix milliseconds; `volumes` reach back from there as far as they go, but not less than an hour.
    `assumed` gives the cost of a job by rubric where no job was judged by this judge yet.
    """
    known = {volume.stratum: volume for volume in volumes}
    first = min((volume.first for volume in volumes), default=now)
    days = max(_SHORTEST_DAYS, (now - first) / DAY_MS)
    return [
        _of(stratum, rubric, known.get(stratum.name), days, assumed[rubric])
        for stratum in policy.strata
        for rubric in stratum.rubrics
    ]


def _of(stratum: Stratum, rubric: str, volume: Volume | None, days: float, assumed: int) -> Forecast:
    finished = 0 if volume is None else volume.finished
    judged = None if volume is None else volume.judged.get(rubric)
    # The frame of a rubric may leave sessions out: then fewer jobs than selected sessions.
    share = min(1.0, judged.judgements / volume.selected) if volume and judged and volume.selected else 1.0
    measured = judged is not None and judged.mine > 0
    return Forecast(
        stratum=stratum.name,
        rubric=rubric,
        sessions_a_day=finished / days,
        jobs_a_day=finished / days * stratum.rate * share,
        cost_nusd_a_job=judged.cost_nusd // judged.mine if judged and measured else assumed,
        measured=measured,
    )
