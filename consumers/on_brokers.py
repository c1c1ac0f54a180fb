"""Work on the brokers for a command that ends: one clear error instead of a client's log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from aiokafka.errors import KafkaError

from monitor.errors import BackslideError

T = TypeVar("T")


def on_brokers(work: Coroutine[Any, Any, T], servers: str) -> T:
    """Run work to its end. Raises `BackslideError` that names the brokers when they can't be used."""
    # aiokafka says the same through the log, which commands don't set up.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    try:
        return asyncio.run(work)
    except KafkaError as error:
        raise BackslideError(
            f"kafka.bootstrap_servers = {servers}: {type(error).__name__}; is the broker there and reachable?"
        ) from None
