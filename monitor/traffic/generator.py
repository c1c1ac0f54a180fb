"""Sessions in time: who arrives when, what goes on the wire, in which order it is delivered (pure; no clock)."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator
from typing import Any

import msgspec

from monitor.traffic.casting import Cast, Casting, Part
from monitor.traffic.labels import BEHAVIORS, FAILURES, Behavior, CorrectionLabel, SessionLabel
from monitor.traffic.plan import TrafficPlan
from monitor.traffic.script import Conversation, perform
from monitor.traffic.templates import Domain, load_domains, load_phrases
from monitor.traffic.wire import SessionEvents, SessionFacts

_MODELS = ("brook-large", "brook-small")
_CHANNELS = ("web", "web", "app", "sms")


class Delivery(msgspec.Struct, frozen=True):
    """One event on its way: `at` seconds after the start, JSON-encodable, with the key (tenant, session_id)."""

    at: float
    event: dict[str, Any]
    key: tuple[str, str]


class TrafficGenerator:
    """Traffic with known truth: the same seed and plan give the same sessions, to the last byte.

    Sessions arrive as a Poisson process, given their number. Both iterators may be used at any time and
    repeatedly; each session has a random stream of its own, so labels and deliveries agree.
    """

    def __init__(self, seed: int, plan: TrafficPlan | None = None) -> None:
        self._seed = seed
        self._plan = plan or TrafficPlan()
        self._domains = load_domains()
        self._casting = Casting(self._domains)
        self._phrases = load_phrases()
        clock = random.Random(f"{seed}/arrivals")  # noqa: S311 - a demo's dice, not a secret
        self._starts = sorted(clock.uniform(0, self._plan.duration_s) for _ in range(self._plan.sessions))

    @property
    def plan(self) -> TrafficPlan:
        """The plan in use."""
        return self._plan

    def deliveries(self, base_time: float) -> Iterator[Delivery]:
        """Give all deliveries in order; event times are `base_time` (Unix seconds) plus the time since start."""
        waiting: list[tuple[float, int, int, Delivery]] = []
        for number, start in enumerate(self._starts):
            while waiting and waiting[0][0] <= start:
                yield heapq.heappop(waiting)[3]
            for place, delivery in enumerate(self._session_deliveries(number, base_time)):
                heapq.heappush(waiting, (delivery.at, number, place, delivery))
        while waiting:
            yield heapq.heappop(waiting)[3]

    def labels(self) -> Iterator[SessionLabel]:
        """Give the truth about each session, in order of arrival."""
        for number in range(self._plan.sessions):
            facts, cast, conversation, _ = self._session(number)
            yield _label(facts, cast, conversation)

    def _session_deliveries(self, number: int, base_time: float) -> Iterator[Delivery]:
        facts, _, conversation, rng = self._session(number)
        for at, event in SessionEvents(facts, self._plan, self._phrases, rng).deliveries(conversation):
            dated = {**event, "ts": round(base_time + event["ts"], 6)}
            yield Delivery(at, dated, (facts.tenant, facts.session_id))

    def _session(self, number: int) -> tuple[SessionFacts, Cast, Conversation, random.Random]:
        rng = random.Random(f"{self._seed}/{number}")  # noqa: S311 - a demo's dice, not a secret
        start = self._starts[number]
        second = start >= self._plan.duration_s / 2
        cast = self._cast(second, rng)
        escalated = rng.random() < self._escalation(cast)
        abandoned = not cast.parts and not escalated and rng.random() < self._plan.abandoned
        conversation = perform(cast, self._phrases, rng, escalated=escalated, abandoned=abandoned)
        session_id = f"{cast.domain.name}-{number:06d}-{rng.getrandbits(32):08x}"
        facts = SessionFacts(
            session_id=session_id,
            start=start,
            domain=cast.domain,
            assistant_version=self._plan.releases[second].version,
            prompt_version=f"{cast.domain.assistant}-p{8 if second else 7}",
            model=rng.choice(_MODELS),
            channel=rng.choice(_CHANNELS),
            ended=not abandoned and rng.random() < self._plan.ended,
        )
        return facts, cast, conversation, rng

    def _cast(self, second: bool, rng: random.Random) -> Cast:
        if rng.random() >= self._plan.corrected:
            return self._plain(rng)
        number = 1
        if rng.random() < self._plan.several:
            number = 3 if rng.random() < self._plan.third else 2
        odds = self._plan.odds(self._plan.releases[second].mix, heavy=number > 1)
        while True:
            # Some threesomes fit no template (three partial ones, say): these few are drawn again.
            behaviors: list[Behavior] = rng.choices(BEHAVIORS, odds, k=number)
            if cast := self._casting.pick(behaviors, rng):
                return cast

    def _plain(self, rng: random.Random) -> Cast:
        domain: Domain = rng.choice(self._domains)
        parts: dict[int, Part] = {}
        return Cast(domain, rng.choice(domain.templates), parts)

    def _escalation(self, cast: Cast) -> float:
        behaviors = {part.behavior for part in cast.parts.values()}
        if "reverted" in behaviors:
            return self._plan.escalated_reverted
        return self._plan.escalated_failed if behaviors & set(FAILURES) else self._plan.escalated_plain


def _label(facts: SessionFacts, cast: Cast, conversation: Conversation) -> SessionLabel:
    return SessionLabel(
        session_id=facts.session_id,
        tenant=facts.tenant,
        assistant=facts.domain.assistant,
        assistant_version=facts.assistant_version,
        domain=cast.domain.name,
        template=cast.template.name,
        corrections=tuple(
            CorrectionLabel(
                turn_index=c.turn,
                turn_id=facts.turn_id(c.turn),
                behavior=c.behavior,
                old=c.old,
                new=c.new,
                reversion_turn_index=c.reversion_turn,
                spill=c.spill,
            )
            for c in sorted(conversation.corrections, key=lambda correction: correction.turn)
        ),
        escalated=conversation.handoff_turn is not None,
    )
