"""Every answer of the lexical judge to real sessions is one that the rubrics accept."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.agreement.rows import read, row
from monitor.config import JudgeSettings
from monitor.judgement import Unscored
from monitor.judging.lexical import LexicalJudge
from monitor.offline_judge import OfflineJudge
from monitor.rubrics import RUBRICS

FILES = {
    "star_base_traffic.jsonl": 40,
    "mtrag_injected.jsonl": 40,
    "mtrag_human_gpt4o.jsonl": 40,
    "tau_airline_gpt4o.jsonl": 20,
    "sgd_corrections.jsonl": 40,
    "xstest_refusals.jsonl": 80,
}


@pytest.mark.parametrize("file", FILES)
async def test_no_lexical_answer_to_a_real_session_is_refused(file: str, shared_data: Path) -> None:
    if not (shared_data / file).exists():
        pytest.skip(f"{file} isn't among the transcripts")
    judge = OfflineJudge(LexicalJudge(), RUBRICS, JudgeSettings())
    rows = [row(record, line) for line, record in enumerate(read(shared_data / file)[: FILES[file]])]
    for rubric in RUBRICS:
        for item in rows:
            judgement = await judge.judge(item.job(rubric), 0)
            assert not isinstance(judgement.result, Unscored), (rubric, item.session.session_id, judgement.result)
