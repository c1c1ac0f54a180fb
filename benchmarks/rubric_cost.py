"""What each rubric costs: how fast the lexical judge goes through recorded traffic, and how long the prompts are.

    python -m benchmarks.rubric_cost --data FOLDER [--json]

The traffic is FOLDER/star_base_traffic.jsonl; `python -m benchmarks.judging --data FOLDER` prints this as well.
Tokens are estimated at three characters each, from the requests that a provider would get: system text, schema and
messages. The cacheable part is what the requests of a rubric share, system text and schema; how much of it is
really read from a cache depends on the provider and shows in `backslide_judge_cache_hit_ratio`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.agreement.rows import Row, read, row
from monitor.config import JudgeSettings
from monitor.judgement import Skipped
from monitor.judging.forecast import CHARACTERS_A_TOKEN
from monitor.judging.lexical import LexicalJudge
from monitor.judging.model import Completion, JudgeRequest
from monitor.offline_judge import OfflineJudge
from monitor.rubrics import configured
from monitor.settings import RubricSettings

TRAFFIC: Final = "star_base_traffic.jsonl"


class Cost(msgspec.Struct, kw_only=True, frozen=True):
    """One rubric over `sessions` sessions, of which it concerns the share `concerned`.

    `prompt_tokens` and `questions` are those of a session that is asked about, `asked` how many are.
    `sessions_per_s` is of all sessions; `cacheable` the share of prompt tokens that is the same in each request.
    """

    sessions: int
    concerned: float
    asked: int
    sessions_per_s: float
    questions: float
    prompt_tokens: float
    cacheable: float


class Weighing(LexicalJudge):
    """The lexical judge, which adds up the lengths of what it is asked, in characters."""

    def __init__(self) -> None:
        super().__init__()
        self.questions = self.shared = self.own = 0

    async def complete(self, request: JudgeRequest, *, timeout: float) -> Completion:  # noqa: ASYNC109
        """Weigh a request, and answer it."""
        self.questions += 1
        self.shared += len(request.system) + len(json.dumps(request.schema))
        self.own += sum(len(message.text) for message in request.messages)
        return await super().complete(request, timeout=timeout)


async def cost(rubric: str, rows: Sequence[Row]) -> Cost:
    """Judge all rows by one rubric: once to weigh the requests, then once for the time."""
    asked = concerned = 0
    weighing = Weighing()
    judge = OfflineJudge(weighing, configured(RubricSettings()), JudgeSettings())
    jobs = [item.job(rubric) for item in rows]
    for job in jobs:
        before = weighing.questions
        judgement = await judge.judge(job, 0)
        asked += weighing.questions > before
        concerned += not isinstance(judgement.result, Skipped)
    plain = OfflineJudge(LexicalJudge(), configured(RubricSettings()), JudgeSettings())
    began = time.perf_counter()
    for job in jobs:
        await plain.judge(job, 0)
    seconds = time.perf_counter() - began
    characters = weighing.shared + weighing.own
    return Cost(
        sessions=len(jobs),
        concerned=round(concerned / len(jobs), 3),
        asked=asked,
        sessions_per_s=round(len(jobs) / seconds, 1),
        questions=round(weighing.questions / max(asked, 1), 2),
        prompt_tokens=round(characters / CHARACTERS_A_TOKEN / max(asked, 1)),
        cacheable=round(weighing.shared / max(characters, 1), 3),
    )


def costs(data: Path) -> dict[str, Cost]:
    """Give the cost of every rubric on the traffic in a folder. Raises `FileNotFoundError` without it."""
    rows = [row(record, line) for line, record in enumerate(read(data / TRAFFIC))]

    async def measure() -> dict[str, Cost]:
        return {name: await cost(name, rows) for name in configured(RubricSettings())}

    return asyncio.run(measure())


def table(found: dict[str, Cost]) -> str:
    """Write costs for people."""
    titles = f"{'sessions/s':>10} {'asked':>9} {'questions':>9} {'prompt tokens':>13} {'cacheable':>9}"
    lines = [f"{'rubric':18} {titles}"]
    for name, item in found.items():
        asked = f"{item.asked}/{item.sessions}"
        lines.append(
            f"{name:18} {item.sessions_per_s:10.0f} {asked:>9} {item.questions:9.2f} "
            f"{item.prompt_tokens:13,.0f} {item.cacheable:9.1%}"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if not (given.data / TRAFFIC).exists():
        sys.exit(f"{given.data / TRAFFIC} isn't there")
    found = costs(given.data)
    print(json.dumps(msgspec.to_builtins(found)) if given.json else table(found))


if __name__ == "__main__":
    main()
