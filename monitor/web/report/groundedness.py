"""The groundedness of a session's turns as columns, under the names of their turn bands. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

TALL: Final = 72
"""The height of a column that is grounded in full."""
STEP: Final = 36
WIDTH: Final = 22
BAND_GAP: Final = 16
LEFT: Final = 6
TOP: Final = 18
FOOT: Final = 40


class Column(msgspec.Struct, kw_only=True, frozen=True):
    """A turn's column; `ratio` is None without a claim. `x` is its left end, `height` goes up from the base."""

    turn: int
    x: int
    height: int
    ratio: float | None
    claims: int


class Band(msgspec.Struct, kw_only=True, frozen=True):
    """The turns of a band lie from `start` to `end`."""

    name: str
    start: int
    end: int


class Chart(msgspec.Struct, kw_only=True, frozen=True):
    """The whole chart; `base` is the line that columns stand on."""

    width: int
    height: int
    base: int
    columns: tuple[Column, ...]
    bands: tuple[Band, ...]


def chart(turns: Iterable[tuple[int, float | None, int, str]]) -> Chart:
    """Lay out (turn, groundedness, claims, band), in the order of the turns; a new band begins after a gap."""
    columns: list[Column] = []
    bands: list[Band] = []
    x = LEFT
    for turn, ratio, claims, band in turns:
        if not bands or bands[-1].name != band:
            x += BAND_GAP if bands else 0
            bands.append(Band(name=band, start=x, end=x + WIDTH))
        share = min(max(ratio or 0.0, 0.0), 1.0)
        columns.append(Column(turn=turn, x=x, height=round(share * TALL), ratio=ratio, claims=claims))
        bands[-1] = msgspec.structs.replace(bands[-1], end=x + WIDTH)
        x += STEP
    return Chart(
        width=x - STEP + WIDTH + LEFT if columns else 2 * LEFT,
        height=TOP + TALL + FOOT,
        base=TOP + TALL,
        columns=tuple(columns),
        bands=tuple(bands),
    )
