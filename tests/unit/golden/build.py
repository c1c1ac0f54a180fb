"""Golden sets judged by perfect judges, and prompts in a folder of one's own."""

from __future__ import annotations

from monitor.decision import Job
from monitor.golden.rows import GoldenRow, GoldenSet, read
from monitor.golden.scale import NotJudged
from monitor.judgement import Judgement, Outcomes, Result
from monitor.judging.prompt_files import package
from monitor.rubrics import RUBRICS
from monitor.rubrics.base import WindowResult
from tests.unit.golden import perfect


def golden(rubric: str) -> GoldenSet:
    return read(package(), rubric)


def judgement(rubric: str, job: Job, result: Result) -> Judgement:
    return Judgement(
        job_id=job.job_id,
        tenant=job.tenant,
        session_id=job.session_id,
        segment=job.segment,
        content_hash=job.content_hash,
        rubric=rubric,
        mode=RUBRICS[rubric].mode,
        rubric_version="1",
        prompt_version="v1",
        prompt_hash="",
        judge="perfect",
        provider="perfect",
        model="perfect",
        result=result,
        outcomes=Outcomes(),
        attempts=[],
        started_at=0,
        finished_at=0,
    )


def perfectly(rubric: str, row: GoldenRow) -> Judgement:
    """Judge a conversation with the answers of a perfect judge, through the rubric's own steps."""
    found = RUBRICS[rubric]
    skipped = found.applies(row.session)
    if skipped is not None:
        return judgement(rubric, row.job(rubric), skipped)
    answers = _answers(rubric, row)
    results = [
        WindowResult(
            window_id=window.window_id,
            result=found.preflight(window)
            or found.parse(answers.get(window.window_id, answers.get("", "")), window),
        )
        for window in found.windows(row.session)
    ]
    return judgement(rubric, row.job(rubric), found.merge(row.session, results))


def _answers(rubric: str, row: GoldenRow) -> dict[str, str]:
    if rubric == "refusal":
        return {} if isinstance(row.expected, NotJudged) else {"": perfect.refusal(row)}
    if rubric == "correction_whole":
        return {"": perfect.corrections_whole(row)}
    return perfect.correction_events(row)
