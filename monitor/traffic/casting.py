"""Which template can show which behaviors, and where in its script (pure)."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, permutations

import msgspec

from monitor.traffic.labels import Behavior
from monitor.traffic.templates import Domain, Fix, Say, Template


class Part(msgspec.Struct, frozen=True):
    """What happens at one correction. `bystander` is the unrelated slot that an over-applied one changes."""

    behavior: Behavior
    bystander: str | None = None


class Cast(msgspec.Struct, frozen=True):
    """A template with its behaviors, by place in the script; places left out are no correction in this session."""

    domain: Domain
    template: Template
    parts: dict[int, Part]


class Casting:
    """Finds templates for behaviors. What it has found it remembers: there are few combinations."""

    def __init__(self, domains: Sequence[Domain]) -> None:
        self._domains = domains
        self._found: dict[tuple[Behavior, ...], list[list[Cast]]] = {}

    def pick(self, behaviors: Sequence[Behavior], rng: random.Random) -> Cast | None:
        """Pick a template that can show the behaviors, all with the same probability; None if there is none."""
        wanted = tuple(sorted(behaviors))
        if wanted not in self._found:
            self._found[wanted] = casts(self._domains, wanted)
        return rng.choice(rng.choice(self._found[wanted])) if self._found[wanted] else None


def casts(domains: Sequence[Domain], behaviors: Sequence[Behavior]) -> list[list[Cast]]:
    """Give every way to show the behaviors, each at a correction of its own; one list a template that has any."""
    found = [
        [Cast(domain, template, parts) for parts in _parts(domain, template, behaviors)]
        for domain in domains
        for template in domain.templates
    ]
    return [ways for ways in found if ways]


def _parts(domain: Domain, template: Template, behaviors: Sequence[Behavior]) -> Iterator[dict[int, Part]]:
    fixes = template.fixes
    for places in combinations(fixes, len(behaviors)):
        for order in sorted(set(permutations(behaviors))):
            given = dict(zip(places, order, strict=True))
            parts = _with_bystanders(template, given)
            if parts is not None and all(_fits(domain, template, fixes[at], what) for at, what in given.items()):
                yield parts


def _fits(domain: Domain, template: Template, fix: Fix, behavior: Behavior) -> bool:
    # Taking a part of a value only shows where the value has parts; all else fits every correction of a template.
    return behavior != "partial" or len(domain.kinds[template.slots[fix.slot]].parts) > 1


def _with_bystanders(template: Template, given: Mapping[int, Behavior]) -> dict[int, Part] | None:
    free = sorted(set(template.slots) - {template.fixes[at].slot for at in given})
    parts: dict[int, Part] = {}
    for at, behavior in given.items():
        bystander = None
        if behavior == "over_applied":
            bystander = next((slot for slot in free if _shows_change(template, slot, at)), None)
            if bystander is None:
                return None
            free.remove(bystander)
        parts[at] = Part(behavior, bystander)
    return parts


def _shows_change(template: Template, slot: str, at: int) -> bool:
    return bool(template.replies(slot, before=at)) and bool(template.replies(slot, after=at))


def plain_length(template: Template) -> int:
    """Give the number of turns without corrections and fillers."""
    return sum(isinstance(step, Say) for step in template.script)
