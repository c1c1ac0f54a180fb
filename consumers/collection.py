"""Garbage collection for a process that keeps very many objects for a long time."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

# New objects before a look at the young ones, young looks before a look at the middle-aged, and those before a
# full one. With Python's (700, 10, 10) a third of the time of `assemble` went into looking at sessions that are
# open or remembered, none of which is garbage; cycles come from failed requests alone.
THRESHOLDS: Final = (20_000, 20, 50)


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Look for cycles seldom, and never among what is there already (modules and settings)."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
