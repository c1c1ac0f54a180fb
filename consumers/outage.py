"""How long to leave a judge alone after it said that no call will do until someone acts. Pure."""

from __future__ import annotations


class Outage:
    """A pause of `base_s` seconds, doubled by each further such answer up to `max_s`. Times are monotonic seconds.

    What several jobs hear at once is one answer: within a pause nothing grows.
    """

    def __init__(self, base_s: float = 30.0, max_s: float = 600.0) -> None:
        self._base = base_s
        self._max = max_s
        self._next = base_s
        self._until: float | None = None

    def note(self, now: float) -> float:
        """Take note of such an answer; give the seconds to wait."""
        if self._until is None or now >= self._until:
            self._until = now + self._next
            self._next = min(2 * self._next, self._max)
        return self._until - now

    def wait(self, now: float) -> float:
        """Give the seconds for which no call is to be made; 0 when there is no pause."""
        return 0.0 if self._until is None else max(0.0, self._until - now)

    def over(self) -> None:
        """Note that the judge has answered."""
        self._next = self._base
        self._until = None
