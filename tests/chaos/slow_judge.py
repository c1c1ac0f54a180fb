"""`backslide run judge`, with a judge as slow and uneven as a model, so that faults meet work in hand.

Run as `python -m tests.chaos.slow_judge config.yaml`.
"""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path
from typing import Final
from unittest.mock import patch

from consumers.app import run_process
from monitor.config import JudgeSettings, load
from monitor.judging.lexical import LexicalJudge
from monitor.judging.model import Completion, JudgeRequest

SECONDS: Final = (0.05, 1.5)


class SlowJudge(LexicalJudge):
    """Answers as the lexical judge does, after a while."""

    async def complete(self, request: JudgeRequest, *, timeout: float) -> Completion:  # noqa: ASYNC109
        await asyncio.sleep(random.uniform(*SECONDS))
        return await super().complete(request, timeout=timeout)


def _open(_: JudgeSettings) -> SlowJudge:
    return SlowJudge()


if __name__ == "__main__":
    with patch("consumers.judge.open_judge", _open):
        sys.exit(run_process("judge", load(Path(sys.argv[1]))))
