"""Ids for what came without one: the same file gives the same ids, whenever and wherever it is read."""

from __future__ import annotations

import hashlib
from typing import Any


def derived_id(*parts: object) -> str:
    """Derive an event id from what names the event: 32 hex digits."""
    state = hashlib.blake2b(digest_size=16)
    for part in parts:
        # A lone surrogate is refused later, by name; it must not end in a traceback here.
        raw = str(part).encode("utf-8", "surrogatepass")
        # Length prefixes keep ("ab", "c") and ("a", "bc") apart.
        state.update(len(raw).to_bytes(4, "big"))
        state.update(raw)
    return state.hexdigest()


def as_id(value: Any) -> Any:
    """Write a number as an id; anything else stays as it is, for the decoder to judge."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value
