"""A judge process for tests that kill it: `python -m tests.consumers.judge_process settings.json`."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sys
import time
from pathlib import Path

from consumers.health import Health
from consumers.job_judge import JobJudge
from consumers.judge import METERS, Worker
from monitor.config import Settings, load
from monitor.judging.lexical import LexicalJudge
from monitor.judging.model import Completion, JudgeRequest
from monitor.metrics import Meters


class Slow(LexicalJudge):
    """The lexical judge, as slow and uneven as a model."""

    async def complete(self, request: JudgeRequest, *, timeout: float) -> Completion:  # noqa: ASYNC109
        await asyncio.sleep(random.uniform(0.01, 0.25))
        return await super().complete(request, timeout=timeout)


async def main(settings: Settings) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    meters = Meters(METERS, version="test", process="judge")
    await Worker(settings, meters, Health(time.monotonic), JobJudge(settings.judge, Slow())).run(stop)


if __name__ == "__main__":
    asyncio.run(main(load(None, json.loads(Path(sys.argv[1]).read_text()))))
