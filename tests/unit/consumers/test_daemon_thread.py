"""Work beside the loop: its result, its errors, and an end of the process that doesn't wait for it."""

import asyncio
import subprocess
import sys
import threading
import time

import pytest

from consumers.daemon_thread import in_thread

HANGING = """
import asyncio, time
from consumers.daemon_thread import in_thread

async def main():
    work = in_thread(lambda: time.sleep(60), name="work")
    await asyncio.wait({work}, timeout=0.1)

asyncio.run(main())
"""


async def test_the_result_and_the_error_come_back() -> None:
    assert await in_thread(lambda: threading.current_thread().name, name="beside") == "beside"
    nothing: list[int] = []
    await in_thread(nothing.clear, name="beside")
    with pytest.raises(ZeroDivisionError):
        await in_thread(lambda: 1 / 0, name="beside")


async def test_the_loop_goes_on_meanwhile_and_a_canceled_future_is_left_alone() -> None:
    go_on, ended = threading.Event(), threading.Event()

    def work() -> None:
        go_on.wait(10)
        ended.set()

    future = in_thread(work, name="beside")
    await asyncio.sleep(0)
    assert not future.done()
    future.cancel()
    go_on.set()
    assert await in_thread(lambda: ended.wait(10), name="beside")
    await asyncio.sleep(0.05)  # what comes too late must not be set
    assert future.cancelled()


def test_a_process_ends_while_work_hangs() -> None:
    started = time.monotonic()
    subprocess.run([sys.executable, "-c", HANGING], check=True, timeout=20)
    assert time.monotonic() - started < 15
