"""One headless Chromium that is asked for more than documents: what a page logs, how wide it is, how it looks.

It is spoken to in the DevTools protocol over a pair of pipes (`--remote-debugging-pipe`): a JSON object each, with
NUL at its end. Scripts that are evaluated this way run whatever the policy of the page forbids.
"""

import base64
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.services.chromium import FLAGS, TIMEOUT_SECONDS, browser
from tests.services.process import ServiceError, mortal

# The browser reads its commands from descriptor 3 and writes to 4, whatever numbers the pipes have here.
_LAUNCHER = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3]]
os.dup2(ends[0], 3)
os.dup2(ends[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Page:
    """A tab. `problems` are what the console and the policy of the page complained of since it was opened."""

    def __init__(self, commands: int, answers: int) -> None:
        self.problems: list[str] = []
        self._commands = commands
        self._answers = answers
        self._number = 0
        self._buffer = b""
        self._loaded = False
        self._session: str | None = None
        target = self._call("Target.createTarget", {"url": "about:blank"})["targetId"]
        attached = self._call("Target.attachToTarget", {"targetId": target, "flatten": True})
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._call(f"{domain}.enable")

    def open(self, url: str, *, width: int = 1400, height: int = 900, dark: bool = False) -> None:
        """Load a page in a window of a size, and wait until it is there."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._call("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", {"features": [scheme]})
        self.problems.clear()
        self._loaded = False
        failed = self._call("Page.navigate", {"url": url}).get("errorText")
        if failed:
            raise ServiceError(f"Chromium can't open {url}: {failed}")
        limit = time.monotonic() + TIMEOUT_SECONDS
        while not self._loaded:
            self._take(self._read(limit))

    def run(self, script: str) -> Any:
        """Evaluate an expression in the page and give its value; promises are waited for."""
        asked = {"expression": script, "returnByValue": True, "awaitPromise": True}
        answer = self._call("Runtime.evaluate", asked)
        if "exceptionDetails" in answer:
            raise ServiceError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """Write a PNG picture of the window, or of the whole page."""
        data = self._call("Page.captureScreenshot", {"format": "png", "captureBeyondViewport": whole})["data"]
        path.write_bytes(base64.b64decode(data))

    def press(self, key: str) -> None:
        """Press and release a key, such as `Tab` or `Enter`."""
        text = {"text": "\r"} if key == "Enter" else {}
        code = {"Tab": 9, "Enter": 13}[key]
        told = {"key": key, "code": key, "windowsVirtualKeyCode": code, **text}
        for kind in ("keyDown", "keyUp"):
            self._call("Input.dispatchKeyEvent", {"type": kind, **told})

    def _call(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        self._number += 1
        asked: dict[str, Any] = {"id": self._number, "method": method, "params": params or {}}
        if self._session:
            asked["sessionId"] = self._session
        os.write(self._commands, json.dumps(asked).encode() + b"\0")
        limit = time.monotonic() + TIMEOUT_SECONDS
        while True:
            message = self._read(limit)
            if message.get("id") == self._number:
                if "error" in message:
                    raise ServiceError(f"{method}: {message['error']}")
                result: dict[str, Any] = message["result"]
                return result
            self._take(message)

    def _take(self, event: dict[str, Any]) -> None:
        method, params = event.get("method"), event.get("params", {})
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Log.entryAdded" and params["entry"]["level"] in {"error", "warning"}:
            self.problems.append(params["entry"]["text"])
        elif method == "Runtime.exceptionThrown" or (
            method == "Runtime.consoleAPICalled" and params["type"] in {"error", "warning"}
        ):
            self.problems.append(json.dumps(params)[:500])

    def _read(self, limit: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._answers], [], [], max(0.0, limit - time.monotonic()))
            if not ready:
                raise ServiceError(f"Chromium gave no answer within {TIMEOUT_SECONDS:.0f} s")
            more = os.read(self._answers, 1 << 16)
            if not more:
                raise ServiceError("Chromium ended")
            self._buffer += more
        raw, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(raw)
        return message


@contextmanager
def open_page() -> Iterator[Page]:
    """Start a browser with one tab; raises ServiceError when there is none, or it doesn't answer."""
    program = browser()
    if program is None:
        raise ServiceError("chromium is missing: Debian package chromium")
    to_browser, commands = os.pipe()
    answers, from_browser = os.pipe()
    flags = [flag for flag in FLAGS if not flag.startswith("--virtual-time-budget")]
    launcher = [sys.executable, "-c", _LAUNCHER, str(to_browser), str(from_browser), str(program), *flags]
    with tempfile.TemporaryDirectory(prefix="backslide-chromium-", ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            mortal([*launcher, f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(to_browser, from_browser),
            start_new_session=True,  # its helpers are in the same group, and end with it
        )
        os.close(to_browser)
        os.close(from_browser)
        try:
            yield Page(commands, answers)
        finally:
            os.close(commands)
            os.close(answers)
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
