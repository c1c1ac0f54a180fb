"""Two prompt versions on the same golden set: what one breaks, what it mends, and whether it is worse. Pure."""

from __future__ import annotations

from math import comb
from typing import Literal, TypeAlias

import msgspec

from monitor.golden.result import GoldenResult, RowResult

Change: TypeAlias = Literal["broken", "mended", "wrong_in_both"]


class Pair(msgspec.Struct, kw_only=True, frozen=True):
    """One conversation under both versions."""

    old: RowResult
    new: RowResult

    @property
    def change(self) -> Change | None:
        """What the new version did to it; None where both are right."""
        if self.old.right:
            return None if self.new.right else "broken"
        return "mended" if self.new.right else "wrong_in_both"


class Versions(msgspec.Struct, kw_only=True, frozen=True):
    """A version (`new`) beside the one that it is to replace (`old`)."""

    old: GoldenResult
    new: GoldenResult

    def pairs(self) -> list[Pair]:
        """Give the conversations, each under both versions."""
        return [Pair(old=old, new=new) for old, new in zip(self.old.rows, self.new.rows, strict=True)]

    def changed(self, change: Change) -> list[Pair]:
        """Give the conversations that changed so."""
        return [pair for pair in self.pairs() if pair.change == change]

    @property
    def worse(self) -> bool:
        """Whether the new version breaks more conversations than it mends."""
        return len(self.changed("broken")) > len(self.changed("mended"))

    def chance(self) -> float:
        """Give how probable a difference of this size or more is by chance (exact McNemar test, two-sided)."""
        broken, mended = len(self.changed("broken")), len(self.changed("mended"))
        n = broken + mended
        tail = sum(comb(n, k) for k in range(min(broken, mended) + 1)) / float(2**n)
        return min(1.0, 2 * tail)
