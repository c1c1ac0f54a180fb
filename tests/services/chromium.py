"""Pages as a browser shows them, through headless Chromium."""

import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from tests.services.parts import find
from tests.services.process import ServiceError, mortal

TIMEOUT_SECONDS = 60.0
FLAGS = (
    "--headless",
    "--no-sandbox",  # CI runs as root, where the sandbox refuses to work; only our own pages are opened
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--virtual-time-budget=15000",
)


def browser() -> Path | None:
    """Find the browser's program, if there is one."""
    return find(["chromium", "chromium-browser", "google-chrome"])


def screenshot(url: str, path: Path, width: int = 1210, height: int = 900) -> None:
    """Write a PNG picture of the page; raises ServiceError when there is none in the end."""
    path.unlink(missing_ok=True)
    _, errors = _run([f"--window-size={width},{height}", f"--screenshot={path.resolve()}", url])
    if not path.is_file() or path.stat().st_size == 0:
        raise ServiceError(f"Chromium wrote no picture of {url}:\n{errors[-3000:]}")


def dump_dom(url: str) -> str:
    """Return the page's document as HTML, after its scripts have run."""
    document, errors = _run(["--dump-dom", url])
    if not document.strip():
        raise ServiceError(f"Chromium gave no document for {url}:\n{errors[-3000:]}")
    return document


def _run(arguments: Sequence[str]) -> tuple[str, str]:
    _expect_listener(arguments[-1])
    program = browser()
    if program is None:
        raise ServiceError("chromium is missing: Debian package chromium")
    with tempfile.TemporaryDirectory(prefix="backslide-chromium-", ignore_cleanup_errors=True) as profile:
        return _finish([str(program), *FLAGS, f"--user-data-dir={profile}", *arguments])


def _expect_listener(url: str) -> None:
    """Refuse an address where nothing listens: Chromium would return its own error page as if it were ours."""
    parts = urlsplit(url)
    if parts.scheme != "http":
        return
    try:
        socket.create_connection((parts.hostname or "", parts.port or 80), 5).close()
    except OSError as error:
        raise ServiceError(f"nothing listens at {url}: {error}") from error


def _finish(command: Sequence[str]) -> tuple[str, str]:
    process = subprocess.Popen(
        mortal(command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,  # its helpers are in the same group, and end with it
    )
    try:
        output, errors = process.communicate(timeout=TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise ServiceError(f"Chromium took over {TIMEOUT_SECONDS:.0f} s: {command[-1]}") from error
    finally:
        _end_group(process)
    if process.returncode != 0:
        raise ServiceError(f"Chromium failed ({process.returncode}):\n{errors[-3000:]}")
    return output, errors


def _end_group(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
