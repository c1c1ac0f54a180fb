"""Which dead letters are meant. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

import msgspec

from consumers.dead_letters.reading import Letter, State
from monitor.errors import ConfigError

_AGO: Final = re.compile(r"(\d{1,9})([smhd])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


class Filter(msgspec.Struct, kw_only=True, frozen=True):
    """What a letter has to be; None and an empty tuple let everything through.

    `topic`, `partition` and the offsets (both included) are those of the record that was put aside. `key` is the
    record's own, or `tenant/session_id`. `since` is included, `until` is not (Unix ms).
    """

    ids: tuple[str, ...] = ()
    stage: str | None = None
    reason: str | None = None
    topic: str | None = None
    partition: int | None = None
    first_offset: int | None = None
    last_offset: int | None = None
    tenant: str | None = None
    key: str | None = None
    since: int | None = None
    until: int | None = None
    state: State | None = None

    @property
    def is_open(self) -> bool:
        """Whether it lets everything through."""
        return self == Filter()

    def matches(self, letter: Letter) -> bool:
        """Say whether a letter is meant, apart from its state: its mark comes later in the topic."""
        wanted = (
            not self.ids or letter.id in self.ids,
            self.stage in {None, letter.stage},
            self.reason in {None, letter.reason},
            self.tenant in {None, letter.tenant},
            self.since is None or letter.at >= self.since,
            self.until is None or letter.at < self.until,
            self._key_matches(letter),
            self._place_matches(letter),
        )
        return all(wanted)

    def _key_matches(self, letter: Letter) -> bool:
        if self.key is None or self.key == f"{letter.tenant}/{letter.session_id}":
            return True
        return letter.key is not None and self.key.encode("utf-8", "surrogateescape") == letter.key

    def _place_matches(self, letter: Letter) -> bool:
        at = letter.source or letter.place
        return (
            self.topic in {None, at.topic}
            and self.partition in {None, at.partition}
            and (self.first_offset is None or at.offset >= self.first_offset)
            and (self.last_offset is None or at.offset <= self.last_offset)
        )


def offset_range(text: str | None) -> tuple[int | None, int | None]:
    """Read `100`, `100-200`, `100-` or `-200`. Raises `ConfigError`."""
    if text is None:
        return None, None
    found = re.fullmatch(r"(\d{1,18})?(-)?(\d{1,18})?", text)
    if found is None or not (found[1] or found[3]) or (found[1] and found[3] and not found[2]):
        raise ConfigError(f"--offsets {text!r}: not a range; allowed are 100, 100-200, 100- and -200")
    first = int(found[1]) if found[1] else None
    last = int(found[3]) if found[3] else (None if found[2] else first)
    if first is not None and last is not None and first > last:
        raise ConfigError(f"--offsets {text!r}: ends before it begins")
    return first, last


def moment(option: str, text: str | None, now: float) -> int | None:
    """Read a time: ISO 8601 (UTC unless it names a zone), or `90s`, `30m`, `2h`, `7d` ago. Gives Unix ms.

    Raises `ConfigError`.
    """
    if text is None:
        return None
    ago = _AGO.fullmatch(text)
    if ago:
        return round((now - int(ago[1]) * _SECONDS[ago[2]]) * 1000)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"{option} {text!r}: not a time; allowed are 2026-11-30T12:00 (UTC, or with a zone), 30m, 2h and 7d"
        ) from None
    return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
