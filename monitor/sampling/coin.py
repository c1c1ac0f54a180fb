"""The coin that picks sessions (S2): a salted hash, so that the same session always falls the same way.

Coins are whole numbers below 2^64 and weights are whole sixteenths, so that picking is exact integer arithmetic:
the probability in force is 16/weight16 to within 2^-64, and a session picked at a rate is picked at every higher.
"""

from __future__ import annotations

import hashlib
from typing import Final, Literal, TypeAlias

Purpose: TypeAlias = Literal["select", "holdout"]
SIDES: Final = 1 << 64


def quantize(rate: float) -> int:
    """Turn a rate in (0, 1] into a weight in whole sixteenths; the probability in force is 16/weight."""
    return max(16, round(16 / rate))


def toss(salt: bytes, purpose: Purpose, tenant: str, session_id: str, segment: str) -> int:
    """Toss a session's coin for a purpose: uniform below `SIDES`, independent between purposes."""
    # A key of BLAKE2 holds 64 bytes; a longer salt must not be cut.
    state = hashlib.blake2b(
        digest_size=8, key=hashlib.blake2b(salt, digest_size=32).digest(), person=purpose.encode()
    )
    for part in (tenant, session_id, segment):
        raw = part.encode()
        # Length prefixes keep ("ab", "c") and ("a", "bc") apart.
        state.update(len(raw).to_bytes(4, "big"))
        state.update(raw)
    return int.from_bytes(state.digest(), "big")


def picked(coin: int, weight16: int) -> bool:
    """Say whether a coin picks its session at the probability 16/weight16."""
    return coin * weight16 < 16 * SIDES
