"""What happens in each round. Pure."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from tests.chaos.faults import FAULTS

TWO_AT_ONCE: Final = 0.35


class Plan(msgspec.Struct, frozen=True):
    """One round. The seed decides about its load and its faults, down to their moments."""

    number: int
    seed: int
    faults: tuple[str, ...]


def plan_round(campaign: int, number: int, store: str, only: Collection[str] = ()) -> Plan:
    """Plan a round of a campaign; `only` restricts the faults."""
    seed = random.Random(f"{campaign}/{number}").getrandbits(48)
    dice = random.Random(f"{seed}/plan")
    names = [name for name, fault in FAULTS.items() if store in fault.stores and (not only or name in only)]
    first = _draw(names, dice)
    others = [name for name in names if name != first and not _clash(name, first)]
    if others and dice.random() < TWO_AT_ONCE:
        return Plan(number, seed, (first, _draw(others, dice)))
    return Plan(number, seed, (first,))


def _draw(names: Sequence[str], dice: random.Random) -> str:
    return dice.choices(names, [FAULTS[name].weight for name in names])[0]


def _clash(one: str, other: str) -> bool:
    """Two faults of the store undo each other; a broker that is down can't be reached anyway."""
    return {one, other} == {"broker_kill", "unreachable"} or (
        one.startswith("store") and other.startswith("store")
    )
