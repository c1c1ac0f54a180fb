"""Blocking work beside the loop, in a thread that the process need not wait for when it ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

T = TypeVar("T")


def in_thread(work: Callable[[], T], *, name: str) -> asyncio.Future[T]:
    """Run `work` in a daemon thread of its own, and give the future of its result.

    `asyncio.to_thread` would keep the process from ending for as long as the work hangs, such as in a database
    behind a dead network: its threads are joined at exit. Canceling the future lets go of the work without ending
    it, so the work has to be something that may be cut off anywhere, as a transaction may.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(outcome: Callable[[], None]) -> None:
        if not future.done():
            outcome()

    def run() -> None:
        outcome: Callable[[], None]
        try:
            outcome = partial(future.set_result, work())
        except Exception as error:  # noqa: BLE001 - whoever awaits it decides
            outcome = partial(future.set_exception, error)
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, outcome)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future
