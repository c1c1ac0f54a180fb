"""Value contrast: corrections without a marker word are found, answers and choices are not taken for them."""

from __future__ import annotations

import pytest

from monitor.session import Session
from monitor.signals import correction_turns
from tests.unit.correction_wording import CORRECTIONS, NEAR_MISSES
from tests.unit.rubrics.build import chat


def told(lines: tuple[str, ...]) -> Session:
    """Make a session in which the last line is the user's."""
    return chat(*(("u" if (len(lines) - at) % 2 else "a", line) for at, line in enumerate(lines)))


def found(lines: tuple[str, ...]) -> bool:
    session = told(lines)
    return session.turns[-1].index in correction_turns(session)
