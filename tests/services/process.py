"""One child process: started with a log, signalled by its pid, and never left behind."""

import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path


class ServiceError(RuntimeError):
    """A service did not start, or did not do what it was asked."""


class Child:
    """A process that this test process started and alone controls.

    Use it from any thread, `asyncio.to_thread` included.
    """

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self.command = mortal(command)
        self.log = log
        started: Future[subprocess.Popen[bytes]] = Future()
        # The death signal is tied to the thread that forks, not to the whole process (prctl(2)): a child
        # started in a pool thread would die with that thread. So each child has a thread that waits for it.
        threading.Thread(target=self._own, args=(started,), daemon=True, name=f"own-{log.stem}").start()
        self._process = started.result()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it has not ended yet (a stopped process is alive)."""
        return self._process.poll() is None

    @property
    def status(self) -> int | None:
        """Its exit status, negative for a signal; None while it is there."""
        return self._process.poll()

    def stop(self, grace: float = 15.0) -> None:
        """SIGTERM, and SIGKILL when it is still there after `grace` seconds."""
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)  # a paused process gets no SIGTERM before it goes on
        try:
            self._process.wait(grace)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self._signal(signal.SIGKILL)
        self._process.wait(10)

    def pause(self) -> None:
        """SIGSTOP: it keeps its memory and sockets, and does nothing.

        The kernel stops threads one by one after the call, so this waits until all of them have stopped.
        WNOWAIT leaves the news in place, for a second call and for the thread that waits for the end.
        """
        self._signal(signal.SIGSTOP)
        with suppress(ChildProcessError):  # it ended before
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)

    def resume(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def tail(self, lines: int = 30) -> str:
        """Return the end of its log."""
        return tail(self.log, lines)

    def _signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def _own(self, started: "Future[subprocess.Popen[bytes]]") -> None:
        try:
            process = self._spawn()
        except OSError as error:
            started.set_exception(error)
            return
        started.set_result(process)
        process.wait()

    def _spawn(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            # An own session keeps Ctrl-C in the terminal from reaching it before the fixtures' tear-down.
            return subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )


def mortal(command: Sequence[str]) -> list[str]:
    """Return the command, made to die with the thread that starts it (Linux; elsewhere unchanged).

    setpriv replaces itself by the command, so the pid is the command's. It is used in place of
    `preexec_fn`, which is unsafe in a process with threads.
    """
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL", "--", *command] if setpriv else list(command)


def tail(log: Path, lines: int = 30) -> str:
    """Return the last lines of a log file, or a note that there is none."""
    if not log.is_file():
        return "(no log)"
    text = log.read_text(encoding="utf-8", errors="replace")
    return "\n".join(text.splitlines()[-lines:]) or "(empty log)"
