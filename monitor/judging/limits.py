"""How many calls may be under way, and how many a minute: the limits that a worker keeps by itself. Pure.

Two kinds work together in a `Limiter`, which the `Gate` asks before each call:

`Concurrency`  calls in flight. It starts low and doubles with every clean round until the provider first says 429;
               after that a clean round adds 5 %. When more than a tenth of the calls end in 429, the limit is
               cut to 80 %, at most once per cool-down. Whatever else goes wrong only keeps it from growing.
`Bucket`       requests or tokens a minute, if the settings name a quota: filled evenly, corrected downwards by
               what the provider says is left.

A round is as many replies as the limit allows calls; it is clean with no failure and at most 5 % 429s. Times are
monotonic seconds.
"""

from __future__ import annotations

import math
from typing import Final, Literal, TypeAlias

import msgspec

from monitor.judgement import Usage
from monitor.judging.quota import Limits, Quota

Outcome: TypeAlias = Literal["answered", "rate_limited", "failed", "canceled", "unused"]
BucketName: TypeAlias = Literal["requests", "input_tokens", "output_tokens"]

MINUTE_S: Final = 60.0
MAX_COOL_DOWN_S: Final = 300.0


class LimitPolicy(msgspec.Struct, kw_only=True, frozen=True):
    """The bounds: calls in flight at first and at most, and quotas a minute (None: no such limit)."""

    start: int = 16
    maximum: int = 1_024
    cool_down_s: float = 15.0
    requests_per_minute: float | None = None
    input_tokens_per_minute: float | None = None
    output_tokens_per_minute: float | None = None


class Need(msgspec.Struct, kw_only=True, frozen=True):
    """What a call is expected to use; `input_tokens` are those that no cache serves."""

    input_tokens: int = 0
    output_tokens: int = 0


class Concurrency:
    """An adaptive limit on calls in flight. Each `begin` is followed by exactly one `end`.

    A few 429s don't cut: up to a tenth of them is taken for chance, as it comes from one full replica behind a
    balancer, however little is asked. Cutting for each would end at a limit near 1 there (a round without any is
    rare), while the retries of so few cost little.
    """

    _GROWTH: Final = 1.05
    _CUT: Final = 0.8
    # With fewer in flight than this share of the limit a clean round says nothing about the limit.
    _BUSY: Final = 0.8
    _TOLERATED: Final = 0.1
    _CLEAN: Final = 0.05
    # The share of 429s is taken over about so many calls, or twice as many as are allowed if that is more. It is
    # of the calls begun, not of the replies: a 429 comes at once and an answer takes a second, so the first
    # replies to a round of calls are its 429s.
    _MEMORY: Final = 100

    def __init__(self, policy: LimitPolicy) -> None:
        self._maximum = policy.maximum
        self._cool_down_s = policy.cool_down_s
        self.limit = min(policy.start, policy.maximum)
        self.in_flight = 0
        self._slow_start = True
        self._until = -math.inf
        self._begun = self._turned_down = 0.0
        self._peak = self._replies = self._refused = 0
        self._failed = False

    @property
    def free(self) -> bool:
        """Whether another call may begin."""
        return self.in_flight < self.limit

    def begin(self) -> None:
        """Count a call in."""
        self.in_flight += 1
        self._peak = max(self._peak, self.in_flight)
        kept = 1 - 1 / self._memory
        self._begun = self._begun * kept + 1
        self._turned_down *= kept

    def end(self, now: float, outcome: Outcome, retry_after: float = 0.0) -> None:
        """Count a call out, and learn from it; a canceled or unused one teaches nothing."""
        self.in_flight -= 1
        if outcome in {"canceled", "unused"}:
            return
        limited = outcome == "rate_limited"
        if limited:
            self._slow_start = False
        if now < self._until:
            # What is answered in a cool-down may have been asked before the cut.
            if limited:
                self._until = max(self._until, now + min(retry_after, MAX_COOL_DOWN_S))
            return
        self._refused += limited
        self._failed = self._failed or outcome == "failed"
        self._turned_down += limited
        # Half of the memory at least, since a few calls say little.
        if limited and self._turned_down > self._TOLERATED * max(self._begun, self._memory / 2):
            self._cut(now, retry_after)
        else:
            self._replied()

    @property
    def _memory(self) -> int:
        return max(self._MEMORY, 2 * self.limit)

    def _cut(self, now: float, retry_after: float) -> None:
        self.limit = max(1, math.floor(self.limit * self._CUT))
        self._until = now + max(self._cool_down_s, min(retry_after, MAX_COOL_DOWN_S))
        self._begun = self._turned_down = 0.0
        self._new_round()

    def _replied(self) -> None:
        self._replies += 1
        if self._replies < self.limit:
            return
        clean = not self._failed and self._refused <= self._CLEAN * self._replies
        if clean and self._peak >= self._BUSY * self.limit:
            grown = 2 * self.limit if self._slow_start else math.ceil(self.limit * self._GROWTH)
            self.limit = min(self._maximum, grown)
        self._new_round()

    def _new_round(self) -> None:
        self._replies = self._refused = 0
        self._peak = self.in_flight
        self._failed = False


class Bucket:
    """A quota a minute, which fills evenly and holds a minute's worth at most.

    A call that wants more than the bucket ever holds passes when it is full. The level may fall below zero, when a
    call used more than was expected of it.
    """

    def __init__(self, per_minute: float) -> None:
        self.size = per_minute
        self._rate = per_minute / MINUTE_S
        self._level = per_minute
        self._at = 0.0
        self._slow: tuple[float, float] = (-math.inf, self._rate)

    def level(self, now: float) -> float:
        """Give what is left; may be negative."""
        self._fill(now)
        return self._level

    def wait(self, now: float, amount: float) -> float:
        """Tell for how many seconds the bucket is too low for `amount`; 0 when it isn't."""
        self._fill(now)
        missing = min(amount, self.size) - self._level
        if missing <= 0:
            return 0.0
        until, rate = self._slow
        slowly = max(0.0, until - now)
        if missing <= slowly * rate:
            return missing / rate
        return slowly + (missing - slowly * rate) / self._rate

    def take(self, now: float, amount: float) -> None:
        """Take something out; a negative amount puts it back."""
        self._fill(now)
        self._level = min(self.size, self._level - amount)

    def correct(self, now: float, quota: Quota, under_way: float) -> None:
        """Learn from the provider: no more is left than it says, less what it can't know of (`under_way`).

        It is never corrected upwards: others may use the same quota, and the settings are the owner's word. Until
        the provider's reset the bucket fills no faster than theirs; a reset further than a minute off is a wrong
        clock, since the quotas are per minute.
        """
        if quota.remaining is None:
            return
        self._fill(now)
        left = max(0.0, quota.remaining - under_way)
        if left >= self._level:
            return
        self._level = left
        reset = min(quota.resets_in_s or 0.0, MINUTE_S)
        size = self.size if quota.limit is None else min(self.size, quota.limit)
        if reset > 0:
            self._slow = (now + reset, min(self._rate, max(0.0, size - left) / reset))

    def _fill(self, now: float) -> None:
        since = max(0.0, now - self._at)
        until, rate = self._slow
        slowly = min(since, max(0.0, until - self._at))
        self._level = min(self.size, self._level + slowly * rate + (since - slowly) * self._rate)
        self._at = max(self._at, now)


class Limiter:
    """All limits of one model together. Each `begin` is followed by exactly one `end` with the same need."""

    def __init__(self, policy: LimitPolicy | None = None) -> None:
        policy = policy or LimitPolicy()
        self.concurrency = Concurrency(policy)
        quotas: dict[BucketName, float | None] = {
            "requests": policy.requests_per_minute,
            "input_tokens": policy.input_tokens_per_minute,
            "output_tokens": policy.output_tokens_per_minute,
        }
        self.buckets = {name: Bucket(quota) for name, quota in quotas.items() if quota is not None}
        self._under_way = dict.fromkeys(self.buckets, 0)

    def wait(self, now: float, need: Need) -> float | None:
        """Tell how long a call has to wait: 0 is not at all, None until another call ends."""
        if not self.concurrency.free:
            return None
        waits = [bucket.wait(now, amount) for bucket, amount in self._parts(need)]
        return max(waits, default=0.0)

    def begin(self, now: float, need: Need) -> None:
        """Count a call in; it must not have to wait."""
        self.concurrency.begin()
        for name, bucket in self.buckets.items():
            bucket.take(now, _amount(need, name))
            self._under_way[name] += _amount(need, name)

    def end(
        self,
        now: float,
        need: Need,
        outcome: Outcome,
        *,
        usage: Usage | None = None,
        limits: Limits | None = None,
        retry_after: float = 0.0,
    ) -> None:
        """Count a call out: what it used (None: nobody knows) and what the provider said about its limits."""
        self.concurrency.end(now, outcome, retry_after)
        for name, bucket in self.buckets.items():
            amount = _amount(need, name)
            self._under_way[name] -= amount
            bucket.take(now, _used(usage, name, outcome, amount) - amount)
            quota = getattr(limits, name, None)
            if quota is not None:
                bucket.correct(now, quota, self._under_way[name])

    def _parts(self, need: Need) -> list[tuple[Bucket, int]]:
        return [(bucket, _amount(need, name)) for name, bucket in self.buckets.items()]


def _amount(need: Need, name: BucketName) -> int:
    if name == "requests":
        return 1
    return need.input_tokens if name == "input_tokens" else need.output_tokens


def _used(usage: Usage | None, name: BucketName, outcome: Outcome, expected: int) -> int:
    if outcome == "unused":
        return 0
    if name == "requests":
        return expected
    if usage is None:
        # A call that ran into its timeout or broke off may have been worked on; one that was refused wasn't.
        return 0 if outcome == "rate_limited" else expected
    # Providers count what they write to a cache, but not what they read from it.
    return usage.input_tokens + usage.cache_write_tokens if name == "input_tokens" else usage.output_tokens
