"""Bands of turns: a closed set of label values for where in a session something happened, or how long it was."""

from __future__ import annotations

from typing import Final

_LIMITS: Final = ((5, "1-5"), (10, "6-10"), (20, "11-20"))
_LAST: Final = "21+"
BANDS: Final = (*(name for _, name in _LIMITS), _LAST)


def turn_band(number: int) -> str:
    """Give the band of the n-th assistant turn, counted from 1, or of a session with n of them."""
    return next((name for limit, name in _LIMITS if number <= limit), _LAST)
