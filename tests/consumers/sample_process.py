"""A sampler process for tests that kill it: `python -m tests.consumers.sample_process settings.json`."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import time
from pathlib import Path

from consumers.health import Health
from consumers.sample import METERS, SamplerFailed, serve
from consumers.seldom import Seldom
from monitor.config import Settings
from monitor.metrics import Meters


class Announced(Health):
    def ready(self, ready: bool, reason: str = "") -> None:
        if ready != self.is_ready[0]:
            print("ready" if ready else "-")
        super().ready(ready, reason)


async def main(settings: Settings) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    meters = Meters(METERS, version="test", process="sample")
    try:
        await serve(settings, meters, stop, Announced(time.monotonic))
    except SamplerFailed as error:
        print(error, repr(error.__cause__), flush=True)
        os._exit(3)


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    handler = logging.StreamHandler()
    handler.addFilter(Seldom())
    logging.basicConfig(handlers=[handler])
    asyncio.run(main(Settings(**json.loads(Path(sys.argv[1]).read_text()))))
