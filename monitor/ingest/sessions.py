"""Sessions, one a line, as events.

    {"session_id": "s1", "assistant": "concierge", "assistant_version": "2026.10", "turns": [
      {"turn_index": 0, "turn_id": "s1-0", "role": "user", "text": "...", "ts": 1790000000},
      {"turn_index": 1, "turn_id": "s1-1", "role": "assistant", "text": "...",
       "evidence": [{"id": "d1", "text": "..."}]}
     ],
     "corrections": [{"turn_id": "s1-2", "error_turn_id": "s1-1"}]}

Only `session_id`, `turns` and each turn's `role` and `text` have to be there. `tenant` and the attributes of an
assistant (`assistant`, `assistant_version`, `model`, `prompt_version`, `channel`, `risk_level`, `traffic_class`)
hold for the whole session; a turn may state its own. `evidence: []` says that retrieval found nothing, no
`evidence` says nothing. `corrections` names the user turns that correct something, where that is known; `turn_id`
has to be there, the rest is as in a `correction` event. Other keys, such as labels, are passed over.

A turn without `ts` (Unix seconds) comes one second after the one before it. A session without any time starts at
`SYNTHETIC_START` plus its line number in seconds. Event ids are derived from session_id and turn_id, so a turn
that stands in the file twice is taken in once. No end is invented: the session closes by inactivity.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from monitor.errors import InvalidEvent
from monitor.ingest.ids import as_id, derived_id

SYNTHETIC_START: Final = 946_684_800.0
"""2000-01-01 00:00 UTC: plainly no time of a real session."""

_ATTRIBUTES: Final = (
    "assistant",
    "assistant_version",
    "model",
    "prompt_version",
    "channel",
    "risk_level",
    "traffic_class",
)
_CORRECTION: Final = ("turn_id", "text", "error_turn_id", "corrected_claim", "correction_content")
_OWN: Final = ("turn_index", "role", "text", "finish_reason", *_ATTRIBUTES)


def session_events(session: Mapping[str, Any], line: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Give the events of a session, each with its place in the line, such as `turns[3]`.

    The values themselves are for the decoder to check. Raises `InvalidEvent` (`invalid_field`) where there is no
    structure to take them from.
    """
    turns = _dicts(session["turns"], "turns")
    common = {name: session[name] for name in _ATTRIBUTES if session.get(name) is not None}
    identity = {"session_id": as_id(session.get("session_id"))}
    if session.get("tenant") is not None:
        identity["tenant"] = as_id(session["tenant"])
    if identity["session_id"] is None:
        raise InvalidEvent("invalid_field", "session_id: is missing")
    times = _times(turns, line)
    for position, (turn, ts) in enumerate(zip(turns, times, strict=True)):
        turn_id = as_id(turn.get("turn_id"))
        shared = {**identity, "turn_id": f"t{position}" if turn_id is None else turn_id, "ts": ts}
        own = {name: turn[name] for name in _OWN if turn.get(name) is not None}
        yield f"turns[{position}]", {"type": "turn", "event_id": _id(shared, "turn"), **shared, **common, **own}
        if turn.get("evidence") is not None:
            place = f"turns[{position}].evidence"
            passages = [dict(item) for item in _dicts(turn["evidence"], place)]
            yield place, {"type": "evidence", "event_id": _id(shared, "evidence"), **shared, "passages": passages}
    yield from _corrections(session, identity, times[-1] if times else SYNTHETIC_START + line)


def _corrections(
    session: Mapping[str, Any], identity: Mapping[str, Any], ts: Any
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Give the corrections that a session names, at the time of its last turn: all of it has been said by then."""
    for position, item in enumerate(_dicts(session.get("corrections") or [], "corrections")):
        own = {name: item[name] for name in _CORRECTION if item.get(name) is not None}
        own |= {name: as_id(own[name]) for name in ("turn_id", "error_turn_id") if name in own}
        event_id = derived_id(identity["session_id"], "correction", str(position))
        event = {"type": "correction", "event_id": event_id, **identity, "ts": ts, **own}
        yield f"corrections[{position}]", event


def _id(shared: Mapping[str, Any], kind: str) -> str:
    return derived_id(shared["session_id"], kind, shared["turn_id"])


def _dicts(value: Any, place: str) -> Sequence[Mapping[str, Any]]:
    if not isinstance(value, list):
        raise InvalidEvent("invalid_field", f"{place}: must be a list, not {type(value).__name__}")
    for position, item in enumerate(value):
        if not isinstance(item, dict):
            raise InvalidEvent("invalid_field", f"{place}[{position}]: must be an object")
    return value


def _times(turns: Sequence[Mapping[str, Any]], line: int) -> list[Any]:
    """Give a time for each turn; what isn't a number stays as it is, for the decoder to refuse."""
    stated = [turn.get("ts") for turn in turns]
    starts = (float(ts) - place for place, ts in enumerate(stated) if isinstance(ts, int | float))
    before = max(next(starts, SYNTHETIC_START + line), 0.0) - 1
    times: list[Any] = []
    for ts in stated:
        times.append(before + 1 if ts is None else ts)
        before = times[-1] if isinstance(times[-1], int | float) else before
    return times
