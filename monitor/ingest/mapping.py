"""Other JSON as events, by a mapping file (YAML) that says where each field of an event lies.

    events: messages              # dotted path to a list in each line; without it a line is one event
    only:                         # what to take in: path -> values; anything else is passed over
      kind: [message, rating]
    fields:
      type: {path: kind, map: {message: turn, rating: feedback}}     # without `type` everything is a turn
      tenant: {value: acme}                                          # a constant
      session_id: ^.conversation.id                                  # ^ is the line, where `events` is used
      turn_index: "#"                                                # the place in the list, from 0
      ts: {path: sent_at, time: unix_ms}                             # unix_s (the default), unix_ms, rfc3339
      role: {path: author.kind, map: {customer: user, bot: assistant}, default: tool}
      text: body
      evidence: {path: sources, each: {id: doc, text: snippet}}      # becomes an evidence event beside the turn

A field is a path, or an object with `path` or `value`, and with `map`, `default`, `time` or `each`. A path is
keys joined by dots; a number in it is a place in a list. A value that is absent or null takes the `default`, and
without one the field is left out. A value that `map` doesn't know takes the `default`, and without one the line is
invalid. `event_id` and `turn_id` may be left out: they are derived from the session and the place in the file, so
that reading the same file again gives the same ids. Field names are those of the wire events (`backslide schema
events`), plus `evidence`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from monitor.config import explain, read_yaml
from monitor.errors import ConfigError, InvalidEvent
from monitor.events import Passage, SessionEvent
from monitor.ingest.ids import as_id, derived_id

TimeFormat: TypeAlias = Literal["unix_s", "unix_ms", "rfc3339"]
Scalar: TypeAlias = str | int | float | bool
FIELDS: Final = frozenset(
    {"type", "evidence", *(name for event in get_args(SessionEvent) for name in event.__struct_fields__)}
)
_PASSAGE: Final = frozenset(Passage.__struct_fields__)
_POSITION: Final = "#"
_LINE: Final = "^"
_SHOWN: Final = 60


class Found(NamedTuple):
    """What a line holds: events with their places in it, and how many items were left out on purpose."""

    events: list[tuple[str, dict[str, Any]]]
    passed_over: int


class _Place(NamedTuple):
    """Where paths start: the item, the line around it, and where they lie."""

    item: Any
    line: dict[str, Any]
    position: int
    number: int


class _Spec(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str | None = Field(default=None, min_length=1)
    value: Scalar | None = None
    map: dict[str, Scalar] | None = None
    default: Scalar | None = None
    time: TimeFormat | None = None
    each: dict[str, str] | None = None

    @field_validator("map", mode="before")
    @classmethod
    def _keys_as_text(cls, value: Any) -> Any:
        return {_key(key): item for key, item in value.items()} if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _one_source(self) -> _Spec:
        if (self.path is None) == (self.value is None):
            raise ValueError("needs either a `path` or a `value`")
        if self.path is None and (self.map or self.time or self.each):
            raise ValueError("`map`, `time` and `each` go with a `path`")
        unknown = sorted(set(self.each or ()) - _PASSAGE)
        if unknown:
            raise ValueError(f"`each` knows {', '.join(sorted(_PASSAGE))}, not {', '.join(unknown)}")
        return self


class Mapping(BaseModel):
    """A checked mapping."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    events: str | None = None
    only: dict[str, list[Scalar]] = {}
    fields: dict[str, _Spec]

    @field_validator("fields", mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {name: {"path": spec} if isinstance(spec, str) else spec for name, spec in value.items()}

    @model_validator(mode="after")
    def _known_fields(self) -> Mapping:
        unknown = sorted(set(self.fields) - FIELDS)
        if unknown:
            raise ValueError(f"fields: unknown {', '.join(unknown)}; allowed: {', '.join(sorted(FIELDS))}")
        missing = sorted({"session_id", "ts"} - set(self.fields))
        if missing:
            raise ValueError(f"fields: {' and '.join(missing)} must be mapped")
        return self

    def read(self, line: dict[str, Any], number: int) -> Found:
        """Give the events of line `number`. Raises `InvalidEvent` (`invalid_field`) that names the field."""
        items = self._items(line)
        found: list[tuple[str, dict[str, Any]]] = []
        passed_over = 0
        for position, item in enumerate(items):
            place = _Place(item, line, position, number)
            if all(_find(place, path) in allowed for path, allowed in self.only.items()):
                found.extend(self._event(place))
            else:
                passed_over += 1
        return Found(found, passed_over)

    def _items(self, line: dict[str, Any]) -> Sequence[Any]:
        if self.events is None:
            return [line]
        items = _walk(line, self.events)
        if not isinstance(items, list):
            what = "is missing" if items is None else f"must be a list, not {type(items).__name__}"
            raise InvalidEvent("invalid_field", f"{self.events} (the mapping's `events`): {what}")
        return items

    def _event(self, place: _Place) -> Iterator[tuple[str, dict[str, Any]]]:
        where = "" if self.events is None else f"{self.events}[{place.position}]"
        try:
            values = {name: _value(place, name, spec) for name, spec in self.fields.items()}
        except InvalidEvent as error:
            raise InvalidEvent(error.reason, f"{where}: {error}" if where else str(error)) from None
        event = {name: value for name, value in values.items() if value is not None}
        passages = event.pop("evidence", None)
        event = self._identified(event, place)
        yield where, event
        if passages is not None:
            shared: dict[str, Any] = {
                name: event[name] for name in ("tenant", "session_id", "turn_id", "ts") if name in event
            }
            event_id = derived_id(event["event_id"], "evidence")
            yield where, {"type": "evidence", "event_id": event_id, **shared, "passages": passages}

    def _identified(self, event: dict[str, Any], place: _Place) -> dict[str, Any]:
        event.setdefault("type", "turn")
        for name in ("session_id", "tenant", "event_id", "turn_id"):
            if name in event:
                event[name] = as_id(event[name])
        if event["type"] == "turn":
            event.setdefault("turn_id", f"l{place.number}-{place.position}")
        if "event_id" not in event:
            named = event.get("turn_id") if event["type"] == "turn" else (place.number, place.position)
            event["event_id"] = derived_id(event.get("session_id"), event["type"], named)
        return event


def load_mapping(path: Path) -> Mapping:
    """Read a mapping file. Raises `ConfigError` that names file, key, value and what is allowed."""
    return _checked(read_yaml(path), str(path))


def parse_mapping(text: str, *, source: str) -> Mapping:
    """Read a mapping from YAML text; `source` names it in errors. Raises `ConfigError`."""
    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{source}: not valid YAML: {' '.join(str(error).split())}") from None
    return _checked(values, source)


def _checked(values: Any, source: str) -> Mapping:
    try:
        return Mapping.model_validate(values)
    except ValidationError as error:
        raise ConfigError(explain(error, source)) from None


def _value(place: _Place, name: str, spec: _Spec) -> Any:
    if spec.path is None:
        return spec.value
    found = _find(place, spec.path)
    if found is not None and spec.map is not None:
        key = _key(found)
        if key not in spec.map and spec.default is None:
            allowed = ", ".join(spec.map)
            raise _wrong(name, spec.path, found, f"isn't in its map; allowed: {allowed}")
        found = spec.map.get(key)
    if found is None:
        return spec.default
    if name == "ts" or spec.time is not None:
        return _time(name, spec, found)
    return _passages(name, spec, found) if name == "evidence" else found


def _passages(name: str, spec: _Spec, found: Any) -> list[Any]:
    if not isinstance(found, list):
        raise _wrong(name, spec.path, found, "must be a list")
    if spec.each is None:
        return found
    return [
        {field: value for field, path in spec.each.items() if (value := _walk(item, path)) is not None}
        for item in found
    ]


def _time(name: str, spec: _Spec, found: Any) -> float:
    try:
        if spec.time == "rfc3339":
            moment = datetime.fromisoformat(found)
            if moment.tzinfo is None:
                raise _wrong(name, spec.path, found, "has no time zone")
            return moment.timestamp()
        if isinstance(found, bool):
            raise TypeError  # noqa: TRY301 - the same complaint as for any other wrong type
        return float(found) / (1000 if spec.time == "unix_ms" else 1)
    except (TypeError, ValueError, OverflowError):
        raise _wrong(name, spec.path, found, f"is no {spec.time or 'unix_s'} time") from None


def _wrong(name: str, path: str | None, found: Any, what: str) -> InvalidEvent:
    return InvalidEvent("invalid_field", f"{name} (path {path}): {found!r:.{_SHOWN}} {what}")


def _key(found: Any) -> str:
    # YAML and JSON write true in small letters.
    return str(found).lower() if isinstance(found, bool) else str(found)


def _find(place: _Place, path: str) -> Any:
    if path == _POSITION:
        return place.position
    if path.startswith(f"{_LINE}."):
        return _walk(place.line, path[2:])
    return _walk(place.item, path)


def _walk(value: Any, path: str) -> Any:
    """Follow a path; None where it leads nowhere."""
    for key in path.split("."):
        if isinstance(value, dict):
            value = value.get(key)
        elif isinstance(value, list) and key.isdecimal() and int(key) < len(value):
            value = value[int(key)]
        else:
            return None
    return value
