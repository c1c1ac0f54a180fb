"""What a reply's headers tell of the provider's limits: how much is left, and when it is full again. Pure.

Times are turned into seconds from the reply's own `date` header where it has one, so that a clock that is off on
either side doesn't turn a second into an hour.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import datetime
from email.utils import mktime_tz, parsedate_tz
from typing import Final

import msgspec

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|us|µs|ns|h|m|s)")
_SECONDS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


class Quota(msgspec.Struct, kw_only=True, frozen=True):
    """One limit: its size, what is left of it, and seconds from now until it is whole again. None: not told."""

    limit: int | None = None
    remaining: int | None = None
    resets_in_s: float | None = None


class Limits(msgspec.Struct, kw_only=True, frozen=True):
    """The limits that a reply told. `tokens` is for all tokens, or the tightest where a provider has several."""

    requests: Quota | None = None
    tokens: Quota | None = None
    input_tokens: Quota | None = None
    output_tokens: Quota | None = None


def anthropic_limits(headers: Mapping[str, str], now: float) -> Limits | None:
    """Read `anthropic-ratelimit-<what>-{limit,remaining,reset}`; resets are RFC 3339 times, `now` Unix seconds."""
    base = server_time(headers, now)

    def quota(what: str) -> Quota | None:
        name = f"anthropic-ratelimit-{what}"
        return _quota(
            headers.get(f"{name}-limit"),
            headers.get(f"{name}-remaining"),
            _until(headers.get(f"{name}-reset"), base),
        )

    return _limits(
        requests=quota("requests"),
        tokens=quota("tokens"),
        input_tokens=quota("input-tokens"),
        output_tokens=quota("output-tokens"),
    )


def openai_limits(headers: Mapping[str, str], now: float) -> Limits | None:
    """Read `x-ratelimit-{limit,remaining,reset}-{requests,tokens}`; a reset is `6m0.5s`, `1` or a time."""
    base = server_time(headers, now)

    def quota(what: str) -> Quota | None:
        reset = headers.get(f"x-ratelimit-reset-{what}")
        return _quota(
            headers.get(f"x-ratelimit-limit-{what}"),
            headers.get(f"x-ratelimit-remaining-{what}"),
            _until(reset, base) if (seconds := duration_s(reset)) is None else seconds,
        )

    return _limits(requests=quota("requests"), tokens=quota("tokens"))


def server_time(headers: Mapping[str, str], now: float) -> float:
    """Give the Unix time in a reply's `date` header, `now` without one."""
    date = parsedate_tz(headers.get("date", ""))
    try:
        return now if date is None else float(mktime_tz(date))
    except (ValueError, OverflowError):
        return now


def duration_s(text: str | None) -> float | None:
    """Read seconds (`12`, `0.5`) or a duration as Go writes it (`1h2m3.5s`, `120ms`); None for anything else."""
    seconds = number(text)
    if seconds is not None:
        return seconds
    text = (text or "").strip()
    parts = _DURATION.findall(text)
    if not parts or "".join(amount + unit for amount, unit in parts) != text:
        return None
    return sum(float(amount) * _SECONDS[unit] for amount, unit in parts)


def number(text: str | None) -> float | None:
    """Read a finite number of 0 or more; None for anything else."""
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _limits(**quotas: Quota | None) -> Limits | None:
    return Limits(**quotas) if any(quota is not None for quota in quotas.values()) else None


def _quota(limit: str | None, remaining: str | None, resets_in_s: float | None) -> Quota | None:
    size, left = _count(limit), _count(remaining)
    if size is None and left is None:
        return None
    return Quota(limit=size, remaining=left, resets_in_s=resets_in_s)


def _count(text: str | None) -> int | None:
    value = number(text)
    return None if value is None else int(value)


def _until(text: str | None, base: float) -> float | None:
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    if moment.tzinfo is None:
        return None
    return max(0.0, moment.timestamp() - base)
