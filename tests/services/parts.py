"""What tests need from the machine, and what to do when it is not there."""

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

INSTALL = "run `python -m tests.services.install`"


def checkout() -> Path:
    """Return the root folder of this checkout."""
    return Path(__file__).resolve().parents[2]


def require(part: str, available: bool, remedy: str) -> None:
    """Skip the test when a part is missing; fail instead under CI, where a skip would hide a gap."""
    if available:
        return
    reason = f"{part} is missing: {remedy}"
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def find(names: Iterable[str]) -> Path | None:
    """Return the first of these programs that is on PATH."""
    for name in names:
        path = shutil.which(name)
        if path:
            return Path(path)
    return None


def program(*names: str) -> Path:
    """Find a program under one of its names; skips or fails the test (see `require`) when there is none."""
    path = find(names)
    require(names[0], path is not None, INSTALL)
    assert path is not None
    return path
