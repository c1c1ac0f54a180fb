"""One conversation becomes wire events with times, duplicates, disorder and stragglers (pure)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import msgspec

from monitor.traffic.labels import FAILURES
from monitor.traffic.plan import TrafficPlan
from monitor.traffic.script import Conversation, Spoken
from monitor.traffic.templates import Domain, Phrases


class SessionFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for a whole session. `start` is seconds since the start of the traffic."""

    session_id: str
    start: float
    domain: Domain
    assistant_version: str
    prompt_version: str
    model: str
    channel: str
    ended: bool

    @property
    def tenant(self) -> str:
        """The tenant that the session belongs to."""
        return self.domain.tenant

    def turn_id(self, index: int) -> str:
        """Name a turn."""
        return f"{self.session_id}-t{index}"


class SessionEvents:
    """Writes the events of one session; times in `ts` are seconds since the start of the traffic."""

    def __init__(self, facts: SessionFacts, plan: TrafficPlan, phrases: Phrases, rng: random.Random) -> None:
        self._facts, self._plan, self._phrases, self._rng = facts, plan, phrases, rng
        self._indexed = rng.random() >= plan.unindexed
        self._number = 0

    def deliveries(self, conversation: Conversation) -> Iterator[tuple[float, dict[str, Any]]]:
        """Give (time of delivery, event), not in order of delivery."""
        for event in self._events(conversation):
            at = event["ts"] + self._delay(event)
            yield at, event
            if self._rng.random() < self._plan.duplicates:
                yield at + self._rng.uniform(0, self._plan.disorder_s), dict(event)

    def _events(self, conversation: Conversation) -> Iterator[dict[str, Any]]:
        times = self._times(len(conversation.turns))
        for index, (spoken, ts) in enumerate(zip(conversation.turns, times, strict=True)):
            yield self._turn(index, spoken, ts)
            if spoken.evidence is not None:
                yield self._evidence(index, spoken.evidence, ts)
        end = times[-1]
        if (turn := conversation.handoff_turn) is not None:
            reason = "assistant_error" if _failures(conversation) else "user_request"
            yield self._event(
                "escalation", end + 0.05 * self._plan.pace_s, turn_id=self._facts.turn_id(turn), reason=reason
            )
        if self._rng.random() < self._plan.rated:
            yield self._feedback(conversation, end)
        if self._facts.ended:
            yield self._event(
                "session_end", end + self._pause(), reason="resolved" if turn is None else "handed_over"
            )

    def _turn(self, index: int, spoken: Spoken, ts: float) -> dict[str, Any]:
        facts = self._facts
        event = self._event(
            "turn",
            ts,
            turn_id=facts.turn_id(index),
            role=spoken.role,
            text=spoken.text,
            assistant=facts.domain.assistant,
            assistant_version=facts.assistant_version,
            model=facts.model,
            prompt_version=facts.prompt_version,
            channel=facts.channel,
            risk_level=facts.domain.risk_level,
        )
        if self._indexed:
            event["turn_index"] = index
        if spoken.role == "assistant":
            cut = spoken.aside and self._rng.random() < self._plan.truncated
            event["finish_reason"] = "length" if cut else "stop"
            event["text"] = spoken.text[: max(1, len(spoken.text) * 2 // 3)] if cut else spoken.text
        return event

    def _evidence(self, index: int, texts: tuple[str, ...], ts: float) -> dict[str, Any]:
        passages = [
            {"id": f"{self._facts.domain.name}-kb-{rank}", "text": text, "rank": rank}
            for rank, text in enumerate(texts, start=1)
        ]
        return self._event("evidence", ts, turn_id=self._facts.turn_id(index), passages=passages)

    def _feedback(self, conversation: Conversation, end: float) -> dict[str, Any]:
        happy = self._rng.random() < (0.15 if _failures(conversation) else 0.85)
        rating = "up" if happy else "down"
        late = self._rng.random() < self._plan.late_rating
        wait = self._plan.feedback_delay_s * self._rng.uniform(0.5, 1.5) if late else self._pause()
        event = self._event("feedback", end + wait, rating=rating)
        if self._rng.random() < 0.3:  # noqa: PLR2004 - few users write something
            event["text"] = self._rng.choice(self._phrases.groups["feedback"][rating])
        return event

    def _event(self, kind: str, ts: float, **fields: Any) -> dict[str, Any]:
        self._number += 1
        return {
            "type": kind,
            "event_id": f"{self._facts.session_id}-e{self._number}",
            "session_id": self._facts.session_id,
            "tenant": self._facts.tenant,
            "ts": ts,
            **fields,
        }

    def _times(self, turns: int) -> list[float]:
        times = [self._facts.start]
        while len(times) < turns:
            times.append(times[-1] + self._pause())
        return times

    def _pause(self) -> float:
        # Mean 1 pace; never shorter than 0.3, so that event time alone orders turns.
        return self._plan.pace_s * (0.3 + self._rng.gammavariate(2, 0.35))

    def _delay(self, event: dict[str, Any]) -> float:
        if event["type"] == "turn" and self._rng.random() < self._plan.stragglers:
            return self._rng.uniform(self._plan.straggler_s / 2, self._plan.straggler_s)
        return self._rng.uniform(0, self._plan.disorder_s) if self._rng.random() < self._plan.disordered else 0.0


def _failures(conversation: Conversation) -> bool:
    return any(correction.behavior in FAILURES for correction in conversation.corrections)
