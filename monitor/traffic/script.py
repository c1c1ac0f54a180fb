"""A cast template becomes a conversation: who says what, and what is true about each correction (pure).

The assistant's lines are filled from what it believes, the user's from what the user has said. A behavior is
nothing but a rule for what the assistant believes from which line on, so text and label can't come apart.
"""

from __future__ import annotations

import random
from typing import Literal

import msgspec

from monitor.traffic.casting import Cast, Part, plain_length
from monitor.traffic.labels import FAILURES, Behavior
from monitor.traffic.templates import Filler, Fix, Kind, Phrases, Say, Value
from monitor.traffic.wording import Manner, fill, mentions, spoken, typed

MAX_TURNS = 14  # fillers stop here; only corrections may lead beyond

_FILLED = 0.3
_CLOSED = 0.6
_SILENT = 0.15
_MANNERS: tuple[Manner, ...] = ("tidy", "lower", "typos")


class Spoken(msgspec.Struct, frozen=True):
    """One turn. `aside`: it holds no value, so that cutting it off leaves every label as it is."""

    role: Literal["user", "assistant"]
    text: str
    evidence: tuple[str, ...] | None = None
    aside: bool = False


class Corrected(msgspec.Struct):
    """One correction as it happened; turns count from 0."""

    turn: int
    slot: str
    behavior: Behavior
    old: str
    new: str
    reversion_turn: int | None = None
    spill: str | None = None


class Conversation(msgspec.Struct, frozen=True):
    """What was said, the corrections in it, and the turn with which it went to a person."""

    turns: tuple[Spoken, ...]
    corrections: tuple[Corrected, ...]
    handoff_turn: int | None


def perform(
    cast: Cast, phrases: Phrases, rng: random.Random, *, escalated: bool = False, abandoned: bool = False
) -> Conversation:
    """Play a cast template. `abandoned` lets a session without corrections stop half-way."""
    return _Performance(cast, phrases, rng).play(escalated=escalated, abandoned=abandoned)


class _Performance:
    def __init__(self, cast: Cast, phrases: Phrases, rng: random.Random) -> None:
        self._cast, self._phrases, self._rng = cast, phrases, rng
        self._manner: Manner = rng.choices(_MANNERS, (55, 30, 15))[0]
        self._values = {slot: self._draw(kind) for slot, kind in sorted(cast.template.slots.items())}
        self._belief = {slot: self._text(slot, values[0]) for slot, values in self._values.items()}
        self._said = dict(self._belief)
        self._causes = {at: self._cause(fix) for at, fix in cast.template.fixes.items() if at in cast.parts}
        self._changes: dict[int, list[tuple[str, str, Corrected]]] = {}
        self._again: dict[int, tuple[Fix, Corrected]] = {}
        self._turns: list[Spoken] = []
        self._used: set[str] = set()
        self._corrections: list[Corrected] = []
        self._fillers = [filler for filler in cast.domain.fillers if self._harmless(filler)]

    def play(self, *, escalated: bool, abandoned: bool) -> Conversation:
        closing = not escalated and not abandoned and self._rng.random() < _CLOSED
        script = self._cast.template.script
        room = (
            MAX_TURNS - plain_length(self._cast.template) - 2 * len(self._cast.parts) - 2 * (closing or escalated)
        )
        stop = self._rng.randrange(2, len(script) + 1) if abandoned and not self._cast.parts else len(script)
        for at, step in enumerate(script[:stop]):
            if isinstance(step, Fix):
                if at in self._cast.parts:
                    self._correct(at, step, self._cast.parts[at])
                continue
            if at and step.role == "user" and room > 1 and self._fillers and self._rng.random() < _FILLED:
                self._fill_in()
                room -= 2
            self._say(at, step)
        if self._turns[-1].role == "user":
            self._turns.pop()  # cut half-way: the question was never asked
        if closing:
            self._pair(self._phrases.groups["closing"])
        handoff = self._hand_off() if escalated else None
        return Conversation(tuple(self._turns), tuple(self._corrections), handoff)

    def _say(self, at: int, step: Say) -> None:
        line = self._rng.choice(step.lines)
        if step.role == "user":
            self._turns.append(Spoken("user", typed(line, self._said, self._manner, self._rng)))
            return
        self._change_beliefs(at)
        evidence = None if step.evidence is None else tuple(fill(text, self._belief) for text in step.evidence)
        aside = not self._cast.parts
        self._turns.append(Spoken("assistant", spoken(line, self._belief, self._rng), evidence, aside))
        if at in self._again:
            self._correct_again(*self._again[at])

    def _change_beliefs(self, at: int) -> None:
        for slot, value, correction in self._changes.get(at, ()):
            self._belief[slot] = value
            if correction.behavior == "reverted":
                correction.reversion_turn = len(self._turns)

    def _correct(self, at: int, fix: Fix, part: Part) -> None:
        old, new, _ = self._versions(fix.slot)
        correction = Corrected(len(self._turns), fix.slot, part.behavior, old, new)
        family = self._kind(fix.slot).family
        lines = fix.lines * 2 + self._phrases.lines("neutral", family)
        caused = self._phrases.lines(self._causes[at], family)
        self._user(self._fresh(caused if self._rng.random() < 0.4 else lines), fix, correction)  # noqa: PLR2004
        self._answer(fix, correction)
        self._schedule(at, fix, part, correction)
        self._corrections.append(correction)

    def _answer(self, fix: Fix, correction: Corrected) -> None:
        behavior = correction.behavior
        if behavior not in {"ignored", "disputed"}:
            self._belief[fix.slot] = self._partly(fix.slot) if behavior == "partial" else correction.new
        family = self._kind(fix.slot).family
        use = {"ignored": "ignore", "disputed": "dispute"}.get(behavior)
        if use is None:
            use = "silent" if self._rng.random() < _SILENT else "ack"
        lines = self._phrases.lines(use, family)
        if behavior == "partial":
            lines = tuple(line for line in lines if "{old}" not in line)
        values = self._about(fix, correction)
        self._turns.append(Spoken("assistant", spoken(self._fresh(lines), values, self._rng)))

    def _schedule(self, at: int, fix: Fix, part: Part, correction: Corrected) -> None:
        later = self._cast.template.replies(fix.slot, after=at)
        if part.behavior == "reverted":
            # The first line after the correction still holds the new value: used, and only then lost.
            self._changes.setdefault(self._rng.choice(later[1:]), []).append(
                (fix.slot, correction.old, correction)
            )
        elif part.behavior == "superseded":
            self._again[later[0]] = (fix, correction)
        elif part.bystander is not None:
            correction.spill = self._versions(part.bystander)[1]
            first = self._cast.template.replies(part.bystander, after=at)[0]
            self._changes.setdefault(first, []).append((part.bystander, correction.spill, correction))

    def _correct_again(self, fix: Fix, first: Corrected) -> None:
        newest = self._versions(fix.slot)[2]
        correction = Corrected(len(self._turns), fix.slot, "taken", first.new, newest)
        self._user(
            self._rng.choice(self._phrases.lines("recheck" if self._kind(fix.slot).fact else "again")),
            fix,
            correction,
        )
        self._answer(fix, correction)
        self._corrections.append(correction)

    def _user(self, line: str, fix: Fix, correction: Corrected) -> None:
        self._turns.append(Spoken("user", typed(line, self._about(fix, correction), self._manner, self._rng)))

    def _fresh(self, lines: tuple[str, ...]) -> str:
        """Pick a line that hasn't been used in this conversation, as long as there is one."""
        line = self._rng.choice([line for line in lines if line not in self._used] or lines)
        self._used.add(line)
        return line

    def _about(self, fix: Fix, correction: Corrected) -> dict[str, str]:
        return {"old": correction.old, "new": correction.new, "value": self._belief[fix.slot], "thing": fix.thing}

    def _fill_in(self) -> None:
        filler = self._fillers.pop(self._rng.randrange(len(self._fillers)))
        self._pair({"user": filler.user, "bot": filler.bot}, filler.evidence)

    def _hand_off(self) -> int:
        failed = any(c.behavior in FAILURES for c in self._corrections)
        group = self._phrases.groups["handoff"]
        self._pair({"user": group["angry" if failed else "calm"], "bot": group["bot"]})
        return len(self._turns) - 1

    def _pair(self, group: dict[str, tuple[str, ...]], evidence: tuple[str, ...] | None = None) -> None:
        self._turns.append(Spoken("user", typed(self._rng.choice(group["user"]), {}, self._manner, self._rng)))
        self._turns.append(
            Spoken("assistant", spoken(self._rng.choice(group["bot"]), {}, self._rng), evidence, True)
        )

    def _draw(self, kind_name: str) -> tuple[Value, Value, Value]:
        pools = [self._rng.sample(pool, 3) for pool in self._cast.domain.kinds[kind_name].pools]
        old, new, newest = zip(*pools, strict=True)
        return old, new, newest

    def _text(self, slot: str, value: Value) -> str:
        return self._kind(slot).text(value)

    def _kind(self, slot: str) -> Kind:
        return self._cast.domain.kinds[self._cast.template.slots[slot]]

    def _versions(self, slot: str) -> tuple[str, str, str]:
        old, new, newest = self._values[slot]
        return self._text(slot, old), self._text(slot, new), self._text(slot, newest)

    def _partly(self, slot: str) -> str:
        old, new, _ = self._values[slot]
        kept = self._rng.randrange(len(old))
        return self._text(slot, tuple(old[i] if i == kept else new[i] for i in range(len(old))))

    def _cause(self, fix: Fix) -> str:
        if not fix.heard:
            return "assumed"
        cause = self._rng.choice(
            ("misheard", "slip") if self._kind(fix.slot).fact else ("misheard", "slip", "change")
        )
        if cause == "misheard":
            self._said[fix.slot] = self._versions(fix.slot)[1]
        return cause

    def _harmless(self, filler: Filler) -> bool:
        """Say whether a filler names none of this session's values, which would blur the labels."""
        values = [text for slot in self._values for text in self._versions(slot)]
        return not any(mentions(line, value) for line in (*filler.user, *filler.bot) for value in values)
