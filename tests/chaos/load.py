"""The load of a round, and the truth about it: generated conversations, made as untidy as producers make them."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from consumers.kafka import event_key
from monitor.traffic import TrafficGenerator, TrafficPlan

SESSIONS_PER_S: Final = 6
# Shares of sessions: under a session id that other tenants use too, with all events in the partition that CRC32
# gives, and with each event in any partition.
SHARED_IDS: Final = 0.15
OTHER_PARTITIONER: Final = 0.08
SCATTERED: Final = 0.02
GARBAGE: Final = 0.002

Key = tuple[str, str]


class Parcel(msgspec.Struct, frozen=True, kw_only=True):
    """One record to send, `at` seconds after the start. Garbage has no `event_id`; no `partition`: by the key."""

    at: float
    session: Key
    event_id: str | None
    is_turn: bool
    key: bytes
    value: bytes
    partition: int | None


class Load:
    """Traffic of one round: the same seed gives the same parcels, but for their event times."""

    def __init__(self, seed: int, name: str, seconds: float, partitions: int) -> None:
        self._seed = seed
        self._name = name
        self._partitions = partitions
        plan = TrafficPlan(
            sessions=round(SESSIONS_PER_S * seconds),
            duration_s=seconds,
            pace_s=0.25,
            corrected=0.5,
            escalated_plain=0.05,
            feedback_delay_s=3.0,
            rated=0.3,
            duplicates=0.03,
            disordered=0.06,
            stragglers=0.02,
            straggler_s=0.7,
        )
        self._traffic = TrafficGenerator(seed, plan)

    def parcels(self, base: float) -> Iterator[Parcel]:
        """Give all parcels in order; event times are `base` (Unix seconds) plus the time since start."""
        dice = random.Random(f"{self._seed}/parcels")
        routes: dict[Key, str] = {}
        names: dict[Key, str] = {}
        shared: dict[str, int] = {}
        for delivery in self._traffic.deliveries(base):
            if delivery.key not in names:
                names[delivery.key] = self._session_id(delivery.key, shared, dice)
                routes[delivery.key] = self._route(dice)
            parcel = self._parcel(delivery.at, delivery.event, delivery.key, names[delivery.key])
            yield msgspec.structs.replace(
                parcel, partition=self._partition(routes[delivery.key], parcel.key, dice)
            )
            if dice.random() < GARBAGE:
                broken = parcel.value[: len(parcel.value) // 2]
                yield msgspec.structs.replace(parcel, event_id=None, value=broken)

    def _session_id(self, key: Key, shared: dict[str, int], dice: random.Random) -> str:
        tenant, session_id = key
        if dice.random() >= SHARED_IDS:
            return f"{self._name}-{session_id}"
        number = shared[tenant] = shared.get(tenant, 0) + 1
        return f"{self._name}-shared-{number}"

    def _route(self, dice: random.Random) -> str:
        draw = dice.random()
        if draw < SCATTERED:
            return "scattered"
        return "crc32" if draw < SCATTERED + OTHER_PARTITIONER else "murmur2"

    def _partition(self, route: str, key: bytes, dice: random.Random) -> int | None:
        if route == "scattered":
            return dice.randrange(self._partitions)
        return zlib.crc32(key) % self._partitions if route == "crc32" else None

    def _parcel(self, at: float, event: dict[str, Any], key: Key, session_id: str) -> Parcel:
        tenant, old = key
        # The ids of events and turns begin with the session's, so equal session ids make them equal as well.
        changed = {
            name: value.replace(old, session_id) if name in {"session_id", "event_id", "turn_id"} else value
            for name, value in event.items()
        }
        return Parcel(
            at=at,
            session=(tenant, session_id),
            event_id=changed["event_id"],
            is_turn=event["type"] == "turn",
            key=event_key(tenant, session_id),
            value=msgspec.json.encode(changed),
            partition=None,
        )


class Truth:
    """What producers sent: session -> event_id -> whether it is a turn."""

    def __init__(self) -> None:
        self.sent: dict[Key, dict[str, bool]] = {}
        self.records = 0

    def note(self, parcel: Parcel) -> None:
        """Note a parcel that the broker has."""
        self.records += 1
        if parcel.event_id is not None:
            self.sent.setdefault(parcel.session, {})[parcel.event_id] = parcel.is_turn
