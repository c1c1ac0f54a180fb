"""A sampler process for tests that kill it: `python -m tests.consumers.sample_process settings.json`."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from pathlib import Path

from consumers.sample import METERS, SamplerFailed, serve
from consumers.seldom import Seldom
from monitor.config import Settings
from monitor.metrics import Meters

RUBRICS = ("correction",)


async def main(settings: Settings) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    meters = Meters(METERS, version="test", process="sample")
    try:
        await serve(settings, meters, stop, lambda ready, _: print("ready" if ready else "-"), rubrics=RUBRICS)
    except SamplerFailed as error:
        print(error, repr(error.__cause__), flush=True)
        os._exit(3)


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    handler = logging.StreamHandler()
    handler.addFilter(Seldom())
    logging.basicConfig(handlers=[handler])
    asyncio.run(main(Settings(**json.loads(Path(sys.argv[1]).read_text()))))
