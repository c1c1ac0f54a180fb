"""Judge a golden set with one prompt version, by the flow, retries and checks of the judge process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from importlib.resources.abc import Traversable

from monitor.config import JudgeSettings
from monitor.golden.result import GoldenResult, compared
from monitor.golden.rows import GoldenRow, GoldenSet
from monitor.judge_file import OnProgress, Progress
from monitor.judgement import Judgement
from monitor.judging.model import JudgeModel
from monitor.judging.prices import FREE, Price
from monitor.judging.prompt import Prompts, load
from monitor.judging.prompt_files import read_prompt, sha256
from monitor.offline_judge import OfflineJudge
from monitor.rubrics import RUBRICS


async def judge_golden(
    golden: GoldenSet,
    version: str,
    model: JudgeModel,
    settings: JudgeSettings,
    *,
    folder: Traversable,
    price: Price = FREE,
    on_progress: OnProgress | None = None,
) -> GoldenResult:
    """Judge a golden set with the prompt `version` of a folder of prompts, by the default thresholds.

    An assistant's own constraints (`judge.constraints`) don't count here: the set brings its own. Raises
    `ConfigError`, `JudgeFatal` and `JudgeUnavailable`.
    """
    rubric = golden.rubric
    plain = load(rubric, version, folder=folder)
    prompts = Prompts(
        {row.id: row.constraints for row in golden.rows if row.constraints},
        lambda name, constraints: load(name, version, constraints=constraints, folder=folder),
    )
    judge = OfflineJudge(model, RUBRICS, settings, price=price, prompts=prompts)
    judgements = await _all(judge, golden.rows, rubric, settings.concurrency, on_progress)
    return GoldenResult(
        rubric=rubric,
        rubric_version=RUBRICS[rubric].version,
        judge=model.name,
        prompt_version=version,
        prompt_sha256=sha256(read_prompt(rubric, version, folder)),
        prompt_hash=plain.prompt_hash,
        golden_sha256=golden.sha256,
        rows=tuple(compared(row, judgement) for row, judgement in zip(golden.rows, judgements, strict=True)),
        calls=dict(judge.calls.by_error_type),
        tokens=dict(judge.calls.tokens),
        cost_nusd=judge.calls.cost_nusd,
    )


async def _all(
    judge: OfflineJudge,
    rows: Sequence[GoldenRow],
    rubric: str,
    limit: int,
    on_progress: OnProgress | None,
) -> list[Judgement]:
    """Judge all rows, at most `limit` at a time; the first failure of the judge ends it."""
    room = asyncio.Semaphore(limit)
    done = 0

    async def one(row: GoldenRow) -> Judgement:
        nonlocal done
        async with room:
            judgement = await judge.judge(row.job(rubric), 0)
        done += 1
        if on_progress is not None:
            on_progress(Progress(sessions=len(rows), done=done, calls=judge.calls))
        return judgement

    running = [asyncio.create_task(one(row)) for row in rows]
    try:
        return await asyncio.gather(*running)
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
