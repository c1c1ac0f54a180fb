"""A circuit breaker for one judge model: when it is down, nothing is asked but a probe now and then. Pure.

closed     calls pass. It opens after `threshold` failures in a row from at least two jobs (one job that always
           fails is that job's trouble), or at once when told (`trip`). Calls that the provider turns away to slow
           us down come back at once, before the answers to calls made with them: those must also be half of all
           that are out, or a burst of calls would open it by the few that a healthy provider turns away.
open       no call passes for the cool-down. An open breaker starts no job's deadline (J3).
half open  one call passes, the probe. If it succeeds the breaker closes, if it fails the cool-down doubles.

Every call holds a `Ticket` and settles it exactly once: `succeeded`, `failed`, `trip` or `abandon`.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

BreakerState: TypeAlias = Literal["closed", "open", "half_open"]

_MIN_JOBS: Final = 2


class BreakerPolicy(msgspec.Struct, kw_only=True, frozen=True):
    """When to open and for how long, in seconds: `cool_down_s`, doubled by each failed probe up to the maximum."""

    threshold: int = 5
    cool_down_s: float = 5.0
    max_cool_down_s: float = 300.0


class Ticket(msgspec.Struct, kw_only=True, frozen=True):
    """Leave to make one call, for one job."""

    number: int
    job: str
    epoch: int
    probe: bool


class Refused(msgspec.Struct, kw_only=True, frozen=True):
    """No leave: ask again after `retry_in` seconds (always above 0)."""

    retry_in: float


class Breaker:
    """The state behind one model. `now` is a monotonic clock in seconds."""

    def __init__(self, policy: BreakerPolicy | None = None) -> None:
        self._policy = policy or BreakerPolicy()
        # Each opening and closing starts an epoch: what a call of an earlier one says of failure is old news.
        self._epoch = 0
        self._opened = 0
        self._until: float | None = None
        self._probing = False
        self._failures = 0
        self._jobs: set[str] = set()
        self._answered = False
        self._rejected: set[str] = set()
        self._admitted = 0
        self._out: set[int] = set()

    def state(self, now: float) -> BreakerState:
        """Tell the state at a time."""
        if self._until is None:
            return "closed"
        return "open" if now < self._until else "half_open"

    def wait(self, now: float) -> float:
        """Tell for how many seconds nothing will pass: what a worker pauses for; 0 unless it is open."""
        return 0.0 if self._until is None else max(0.0, self._until - now)

    def admit(self, now: float, job: str) -> Ticket | Refused:
        """Ask for leave to make a call."""
        if self._until is None:
            return self._ticket(job, probe=False)
        if now < self._until:
            return Refused(retry_in=self._until - now)
        if self._probing:
            return Refused(retry_in=self._policy.cool_down_s)
        self._probing = True
        return self._ticket(job, probe=True)

    def succeeded(self, ticket: Ticket) -> None:
        """Settle a call that was answered, even an old one: the model is up, so the breaker closes."""
        self.abandon(ticket)
        if self._until is not None:
            self._epoch += 1
            self._until, self._probing, self._opened = None, False, 0
        self._answered = True
        self._failures = 0
        self._jobs.clear()
        self._rejected.clear()

    def failed(self, now: float, ticket: Ticket, *, limited: bool = False) -> None:
        """Settle a call that failed in a way that may pass; `limited`: the provider asks for fewer calls."""
        self.abandon(ticket)
        if ticket.epoch != self._epoch:
            return
        self._failures += 1
        self._jobs.add(ticket.job)
        enough = max(self._policy.threshold, len(self._out) if limited else 0)
        if ticket.probe or (self._failures >= enough and len(self._jobs) >= _MIN_JOBS):
            self._open(now, self._cool_down())

    def trip(self, now: float, ticket: Ticket, wait: float = 0.0) -> None:
        """Settle a call that says that no other call will do better: open, for `wait` seconds if longer."""
        self.abandon(ticket)
        if ticket.epoch == self._epoch:
            self._open(now, max(self._cool_down(), min(wait, self._policy.max_cool_down_s)))

    def rejected(self, ticket: Ticket) -> bool:
        """Settle a call that the provider calls invalid; tell whether that is this job's own fault.

        It is when the model has answered before and since then has rejected few other jobs. Otherwise the set-up
        is wrong (a schema, an option that the model doesn't know), and every job would be rejected.
        """
        self.abandon(ticket)
        self._rejected.add(ticket.job)
        return self._answered and len(self._rejected) < self._policy.threshold

    def abandon(self, ticket: Ticket) -> None:
        """Settle a call that says nothing of the model, such as a canceled one. Harmless when done twice."""
        self._out.discard(ticket.number)
        if ticket.probe and ticket.epoch == self._epoch:
            self._probing = False

    def _ticket(self, job: str, *, probe: bool) -> Ticket:
        self._admitted += 1
        self._out.add(self._admitted)
        return Ticket(number=self._admitted, job=job, epoch=self._epoch, probe=probe)

    def _cool_down(self) -> float:
        return min(self._policy.max_cool_down_s, self._policy.cool_down_s * 2.0 ** min(self._opened, 64))

    def _open(self, now: float, seconds: float) -> None:
        self._epoch += 1
        self._opened += 1
        self._until = now + seconds
        self._probing = False
