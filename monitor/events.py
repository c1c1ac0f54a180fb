"""Wire events of the source topic: one tagged union, strict types, one JSON object an event.

Every event carries `type`, `event_id`, `session_id`, `ts` (event time, Unix seconds) and `tenant`.
`decode` gives the event and the bytes to keep for it; what it can't accept raises `InvalidEvent` with a
reason from `EVENT_ERRORS`. `backslide schema events` prints the JSON Schema of the same types.
"""

from __future__ import annotations

import json
import math
import re
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args

import msgspec

from monitor.errors import InvalidEvent

Id: TypeAlias = Annotated[
    str, msgspec.Meta(min_length=1, max_length=256, description="An identifier; never empty.")
]
Timestamp: TypeAlias = Annotated[
    float, msgspec.Meta(ge=0, le=253_402_300_799, description="Unix time in seconds, fractions allowed.")
]
Label: TypeAlias = Annotated[str, msgspec.Meta(max_length=256)]
Role: TypeAlias = Literal["user", "assistant", "system", "tool"]
RiskLevel: TypeAlias = Literal["normal", "high"]
TrafficClass: TypeAlias = Literal["live", "shadow", "internal", "test", "synthetic"]
Rating: TypeAlias = Literal["up", "down"]

EVENT_ERRORS: Final = ("undecodable", "unknown_type", "invalid_field", "too_large")


class _Event(msgspec.Struct, kw_only=True, frozen=True, tag_field="type", omit_defaults=True):
    """What every event but a tick has."""

    event_id: Id
    session_id: Id
    ts: Timestamp
    tenant: Id = "default"


class Turn(_Event, kw_only=True, frozen=True, tag="turn"):
    """Something said. `turn_index` orders turns; without it, event time does (A3).

    `finish_reason` is the model's own (`stop`, `length`, `cancelled`, ...): a cut reply is not judged.
    `assistant_version`, `model` and `prompt_version` describe the assistant that answers in this session.
    """

    turn_id: Id
    role: Role
    text: str
    turn_index: Annotated[int, msgspec.Meta(ge=0)] | None = None
    finish_reason: Label | None = None
    assistant: Label | None = None
    assistant_version: Label | None = None
    model: Label | None = None
    prompt_version: Label | None = None
    channel: Label | None = None
    risk_level: RiskLevel = "normal"
    traffic_class: TrafficClass = "live"


class Passage(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """One retrieved passage, document or tool result. `rank` counts from 1."""

    id: Id
    text: str
    rank: Annotated[int, msgspec.Meta(ge=1)] | None = None
    score: float | None = None


class Evidence(_Event, kw_only=True, frozen=True, tag="evidence"):
    """What an assistant turn could rest on. Zero passages mean that retrieval found nothing."""

    turn_id: Id
    passages: tuple[Passage, ...] = ()


class Correction(_Event, kw_only=True, frozen=True, tag="correction"):
    """A producer that knows that a user turn corrects something. `turn_id` is that user turn."""

    turn_id: Id
    text: str | None = None
    error_turn_id: Id | None = None
    corrected_claim: str | None = None
    correction_content: str | None = None


class Escalation(_Event, kw_only=True, frozen=True, tag="escalation"):
    """The session went to a human."""

    turn_id: Id | None = None
    reason: Label | None = None


class Feedback(_Event, kw_only=True, frozen=True, tag="feedback"):
    """A user's rating, of a turn if `turn_id` is given, else of the session."""

    rating: Rating
    turn_id: Id | None = None
    text: str | None = None


class SessionEnd(_Event, kw_only=True, frozen=True, tag="session_end"):
    """The producer knows that the session is over; stragglers are taken in for the grace time."""

    reason: Label | None = None


class Tick(msgspec.Struct, kw_only=True, frozen=True, tag_field="type", tag="tick"):
    """Time for an idle partition (A1): appended by the partition's owner, without a key."""

    ts: Timestamp


SessionEvent: TypeAlias = Turn | Evidence | Correction | Escalation | Feedback | SessionEnd
Event: TypeAlias = SessionEvent | Tick
EventType: TypeAlias = Literal["turn", "evidence", "correction", "escalation", "feedback", "session_end", "tick"]
EVENT_TYPES: Final = get_args(EventType)
TAGS: Final[dict[type[Event], str]] = {kind: str(kind.__struct_config__.tag) for kind in get_args(Event)}

# The wire types need 3. The limit keeps later stages, which decode the event inside of a session's record and on
# another call stack, from meeting a recursion limit that this one did not.
_MAX_DEPTH = 64

_MAX_MESSAGE = 300
_ALLOWED: Final = {
    "type": EVENT_TYPES,
    "role": get_args(Role),
    "risk_level": get_args(RiskLevel),
    "traffic_class": get_args(TrafficClass),
    "rating": get_args(Rating),
}

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_JSON_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)


def event_type(event: Event) -> str:
    """Give the wire name of an event's type, such as `turn`."""
    return TAGS[type(event)]


class EventDecoder:
    """Decodes events; one per consumer. Text with lone surrogates or raw control characters is accepted."""

    def __init__(self, *, max_bytes: int = 262_144) -> None:
        self._max_bytes = max_bytes
        self._decode = msgspec.json.Decoder(Event).decode

    def decode(self, raw: bytes) -> tuple[Event, bytes]:
        """Give the event and the bytes to keep for it (the same ones unless they had to be mended).

        Raises `InvalidEvent` with reason `too_large`, `undecodable`, `unknown_type` or `invalid_field`.
        """
        if len(raw) > self._max_bytes:
            raise self._too_large(len(raw))
        try:
            event, kept = self._decode(raw), raw
        except msgspec.ValidationError as error:
            raise _invalid(error) from None
        except msgspec.DecodeError as error:
            event, kept = self._decode_mended(mend(raw, error))
        except RecursionError:
            raise _too_deep() from None
        if kept.find(b"{", 1) == kept.find(b"[") == -1 and kept.isascii():
            return event, kept  # most turns: nothing in them can nest
        _check_kept(kept)
        return event, kept

    def _decode_mended(self, mended: bytes) -> tuple[Event, bytes]:
        # Escaping a raw control character makes six bytes of one.
        if len(mended) > self._max_bytes:
            raise self._too_large(len(mended))
        try:
            return self._decode(mended), mended
        except msgspec.ValidationError as error:
            raise _invalid(error) from None

    def _too_large(self, size: int) -> InvalidEvent:
        return InvalidEvent(
            "too_large",
            f"event of {size} bytes; at most {self._max_bytes} are accepted (assembly.max_event_bytes)",
        )


def encode(event: Event) -> bytes:
    """Encode an event as the JSON that goes on the wire."""
    return msgspec.json.encode(event)


def schema() -> dict[str, Any]:
    """Give the JSON Schema of the union of all events."""
    return msgspec.json.schema(Event)


def _invalid(error: msgspec.ValidationError) -> InvalidEvent:
    message = str(error)
    unknown = message.startswith("Invalid value") and message.endswith("at `$.type`")
    # It quotes the value, which may be as long as the event; the end says where.
    short = message if len(message) <= _MAX_MESSAGE else f"{message[:150]} ... {message[-100:]}"
    return InvalidEvent("unknown_type" if unknown else "invalid_field", f"{short}{_remedy(message)}")


def _remedy(message: str) -> str:
    """Say what is allowed where the decoder only says that a value isn't."""
    field = (
        message.rsplit("`$.", 1)[-1].rstrip("`") if message.startswith(("Invalid", "Expected `float` <=")) else ""
    )
    if field == "ts":
        return "; ts is Unix time in seconds, not in milliseconds"
    return f"; allowed: {', '.join(_ALLOWED[field])}" if field in _ALLOWED else ""


def mend(raw: bytes, error: msgspec.DecodeError) -> bytes:
    """Re-encode JSON that only a lenient parser takes: raw control characters, lone surrogates (become U+FFFD).

    `error` is what the strict one said. Raises `InvalidEvent` (`undecodable`) with its words when both refuse.
    """
    try:
        value = json.loads(
            raw.decode("utf-8"), strict=False, parse_constant=_refuse_constant, parse_float=_finite_float
        )
        return msgspec.json.encode(_without_surrogates(value))
    except RecursionError:
        raise _too_deep() from None
    except ValueError:
        raise InvalidEvent("undecodable", f"not valid JSON: {error}") from None


def _check_kept(kept: bytes) -> None:
    """Refuse what the decoder skips in fields it does not know: bad UTF-8, and nesting without end."""
    if not kept.isascii():
        try:
            kept.decode("utf-8")
        except UnicodeDecodeError as error:
            raise InvalidEvent("undecodable", f"not UTF-8 at byte {error.start}") from None
    # Brackets inside of strings don't nest, but there are seldom as many.
    if kept.count(b"[") + kept.count(b"{") > _MAX_DEPTH and _depth(kept) > _MAX_DEPTH:
        raise _too_deep()


def _depth(valid_json: bytes) -> int:
    depth = deepest = 0
    for byte in _JSON_STRING.sub(b"", valid_json):
        if byte in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif byte in b"]}":
            depth -= 1
    return deepest


def _too_deep() -> InvalidEvent:
    return InvalidEvent("undecodable", f"JSON nested more than {_MAX_DEPTH} levels deep")


def _finite_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is out of range")
    return value


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return _LONE_SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    return value
