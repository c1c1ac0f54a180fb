"""When to ask again: the provider's wish, and a back-off with jitter. Pure: time and chance are arguments."""

from __future__ import annotations

import math
from collections.abc import Mapping
from email.utils import mktime_tz, parsedate_tz

import msgspec

from monitor.judging.quota import number, server_time


class RetryPolicy(msgspec.Struct, kw_only=True, frozen=True):
    """How one job's calls are repeated; times in seconds.

    `deadline_s` is the one hard deadline of a job, started at its first call (J3). A wait that the provider asks
    for is honored up to `retry_after_cap_s`; beyond it the job is put off. `max_failures` bounds the failed calls
    of a job over all the times it was put off, so that a session that always fails can't hold up the others.
    """

    deadline_s: float = 120.0
    attempt_timeout_s: float = 60.0
    retry_after_cap_s: float = 30.0
    max_failures: int = 12
    base_s: float = 0.5
    max_s: float = 8.0


def backoff(policy: RetryPolicy, failures: int, chance: float, retry_after: float | None = None) -> float:
    """Give the seconds to wait after `failures` failed calls in a row (1 or more).

    Exponential with "equal jitter": half of `base_s * 2^(failures-1)`, capped at `max_s`, is certain and `chance`
    in [0, 1) decides on the rest; never less than the provider's own wish.
    """
    # ldexp saturates slowly; the exponent is capped because 2^1024 is not a float.
    ceiling = min(policy.max_s, math.ldexp(policy.base_s, min(failures - 1, 64)))
    return max(ceiling * (1 + chance) / 2, retry_after or 0.0)


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Read a provider's wish to wait from its headers, in seconds from `now` (Unix seconds); None without one.

    `retry-after-ms` goes before `retry-after`, which holds seconds or an HTTP date (RFC 9110, 10.2.3). What can't
    be read is no wish; a date in the past is a wait of 0. A reply with its own `date` counts from that, so clocks
    need not agree. `headers` must be lower-case or case-insensitive.
    """
    milliseconds = number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    text = headers.get("retry-after")
    seconds = number(text)
    return seconds if seconds is not None else _until(text, server_time(headers, now))


def _until(text: str | None, now: float) -> float | None:
    date = parsedate_tz(text or "")
    if date is None:
        return None
    try:
        return max(0.0, mktime_tz(date) - now)
    except (ValueError, OverflowError):
        return None
