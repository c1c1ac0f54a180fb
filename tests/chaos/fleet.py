"""The processes of a pipeline, each an own OS process, restarted when it ends, as Kubernetes would."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from tests.services.process import Child

FIRST_DELAY_S: Final = 0.5
LONGEST_DELAY_S: Final = 4.0
STEADY_S: Final = 10.0
STOP_S: Final = 20.0
LOOK_S: Final = 0.05


class Exit(msgspec.Struct, frozen=True):
    """The end of a process: when (Unix seconds), which, and its status (negative: the signal)."""

    at: float
    member: str
    status: int


class Piped(Child):
    """A child whose log is written by us, so that a limit on the files that it writes doesn't reach its log."""

    def _spawn(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            self.command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        threading.Thread(target=self._copy, args=(process,), daemon=True, name=f"log-{self.log.stem}").start()
        return process

    def _copy(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with self.log.open("ab", buffering=0) as log, process.stdout as lines:
            for line in lines:
                log.write(line)


class Member:
    """One process under the fleet's control."""

    def __init__(self, name: str, process: str, command: Sequence[str], log: Path) -> None:
        self.name = name
        self.process = process
        self.command = list(command)
        self.log = log
        self.child: Child | None = None
        self.starts = 0
        self.started = 0.0

    @property
    def age(self) -> float:
        """Seconds since its last start."""
        return time.monotonic() - self.started

    @property
    def running(self) -> Child | None:
        """The process, if there is one just now."""
        return self.child if self.child is not None and self.child.alive else None

    def is_replaced(self, starts: int) -> bool:
        """Whether it was started again since there were so many starts, and has had a moment."""
        return self.starts > starts and self.age > 1.0


class Fleet:
    """All processes of a pipeline: `processes` says how many of each. They share one settings file."""

    def __init__(
        self, config: Path, folder: Path, processes: Mapping[str, int], *, named: bool, limited: bool
    ) -> None:
        """Prepare. `named`: static membership; `limited`: permissions of files hold for `record` and `web` too."""
        self.members = [
            Member(name, process, _command(process, config, name if named else None, limited=limited), log)
            for process, count in processes.items()
            for number in range(count)
            if (name := f"{process}-{number}") and (log := folder / f"{name}.log")
        ]
        self.exits: list[Exit] = []
        self._stopping = False
        self._keepers: list[asyncio.Task[None]] = []

    def of(self, process: str) -> list[Member]:
        """Give the members that run a process."""
        return [member for member in self.members if member.process == process]

    def start(self) -> None:
        """Start everything, and keep it running."""
        self._keepers = [asyncio.create_task(self._keep(member)) for member in self.members]

    async def stop(self) -> list[Exit]:
        """SIGTERM to all; give those that did not leave in peace."""
        self._stopping = True
        await asyncio.gather(*(asyncio.to_thread(_stop, member) for member in self.members))
        await asyncio.gather(*self._keepers)
        return [
            Exit(time.time(), member.name, status)
            for member in self.members
            # One that is only just starting has no handler yet.
            if (status := (member.child.status or 0) if member.child else 0) and member.age > STEADY_S
        ]

    async def roll(self, members: Sequence[Member]) -> None:
        """Replace members one after the other, as a deployment does."""
        for member in members:
            starts = member.starts
            if (child := member.running) is not None:
                await asyncio.to_thread(child.stop, STOP_S)
            await _until(partial(member.is_replaced, starts))

    async def _keep(self, member: Member) -> None:
        delay = FIRST_DELAY_S
        while not self._stopping:
            child = member.child = await asyncio.to_thread(Piped, member.command, member.log)
            member.starts += 1
            member.started = time.monotonic()
            await _until(partial(_ended, child))
            if self._stopping:
                return
            self.exits.append(Exit(time.time(), member.name, child.status or 0))
            delay = FIRST_DELAY_S if member.age > STEADY_S else min(2 * delay, LONGEST_DELAY_S)
            until = time.monotonic() + delay
            await _until(partial(self._may_start, until))

    def _may_start(self, at: float) -> bool:
        return self._stopping or time.monotonic() >= at


def _ended(child: Child) -> bool:
    return not child.alive


async def _until(done: Callable[[], bool]) -> None:
    while not done():  # noqa: ASYNC110 - nothing announces it
        await asyncio.sleep(LOOK_S)


def forbid_writing(child: Child, *, forbidden: bool) -> None:
    """Make every write to a file fail with EFBIG, open files included, or allow them again."""
    try:
        _, hard = resource.prlimit(child.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(child.pid, resource.RLIMIT_FSIZE, (0 if forbidden else hard, hard))
    except ProcessLookupError:
        return  # it has just ended; whoever watches applies it to the next one


def _stop(member: Member) -> None:
    if (child := member.running) is not None:
        child.stop(STOP_S)


def _command(process: str, config: Path, instance: str | None, *, limited: bool) -> list[str]:
    line = [sys.executable, "-m", "consumers", "run", process, "--config", str(config)]
    if process == "judge":
        line = [sys.executable, "-m", "tests.chaos.slow_judge", str(config)]
    if instance is not None:
        line = ["env", f"BACKSLIDE_KAFKA__INSTANCE_ID={instance}", *line]
    if limited and process in {"record", "web"} and os.geteuid() == 0 and shutil.which("setpriv"):
        # To root without this capability a file's permissions mean what they say.
        line = ["setpriv", "--bounding-set", "-dac_override", "--inh-caps", "-dac_override", "--", *line]
    return line
