"""What is compared of one conversation: each field that the golden set grades, beside what a judge said of it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias, TypeVar

import msgspec

Said: TypeAlias = str | int | bool | None
T = TypeVar("T")


class Point(msgspec.Struct, kw_only=True, frozen=True):
    """One field at one place (`turn 2`). `graded`: a score of 1 to 5, where one off is nearly right."""

    field: str
    place: str
    expected: Said
    said: Said
    graded: bool = False

    @property
    def exact(self) -> bool:
        """Whether the judge said just that."""
        return self.expected == self.said

    @property
    def near(self) -> bool:
        """Whether the judge was at most one off; a score against none is not near."""
        if self.graded and isinstance(self.expected, int) and isinstance(self.said, int):
            return abs(self.expected - self.said) <= 1
        return self.exact

    def to_text(self) -> str:
        """Say what differs."""
        return f"{self.place}: {self.field} expected {_shown(self.expected)}, judged {_shown(self.said)}"


def paired(
    expected: Sequence[T], said: Iterable[Any], key: Callable[[T], Hashable], key_said: Callable[[Any], Hashable]
) -> Iterator[tuple[T | None, Any]]:
    """Pair what is expected with what was said under the same key, in order; what has no partner gets None."""
    left = list(said)
    for unit in expected:
        place = next((i for i, item in enumerate(left) if key_said(item) == key(unit)), None)
        yield unit, None if place is None else left.pop(place)
    for item in left:
        yield None, item


def _shown(value: Said) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)
