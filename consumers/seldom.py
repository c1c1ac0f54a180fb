"""A log filter for client libraries that say the same thing a hundred times a second while a broker is away."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from typing import Final

LOUD: Final = ("aiokafka", "faust", "mode")


class Seldom(logging.Filter):
    """Lets a message of the named loggers through once in `every_s` seconds, with a count of those held back.

    Messages are the same when their logger and their template are. Put it on handlers: a filter on a logger
    doesn't see what its children log.
    """

    def __init__(
        self,
        loggers: Collection[str] = LOUD,
        *,
        every_s: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._loggers = frozenset(loggers)
        self._every = every_s
        self._clock = clock
        self._last: dict[tuple[str, str], float] = {}
        self._held: dict[tuple[str, str], int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Say whether a record goes out; one that does tells how many like it did not."""
        if record.name.split(".", 1)[0] not in self._loggers:
            return True
        key = (record.name, str(record.msg))
        now = self._clock()
        last = self._last.get(key)
        if last is not None and now - last < self._every:
            self._held[key] = self._held.get(key, 0) + 1
            return False
        self._last[key] = now
        held = self._held.pop(key, 0)
        if held:
            record.msg = f"{record.msg} ({held} more like this held back)"
        return True
