"""A queue in the order of a number that nearly always comes in that order: cheaper than a heap."""

from __future__ import annotations

from bisect import insort
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class OrderedQueue(Generic[T]):
    """Items by their number, the lowest first; those with the same number in the order of their coming."""

    __slots__ = ("_items",)

    def __init__(self) -> None:
        self._items: deque[tuple[int, T]] = deque()

    def __bool__(self) -> bool:
        return bool(self._items)

    @property
    def first(self) -> tuple[int, T]:
        """The lowest number and its item. Raises `IndexError` when empty."""
        return self._items[0]

    def push(self, number: int, item: T) -> None:
        """Add an item: at the end, if none has a higher number."""
        items = self._items
        if items and number < items[-1][0]:
            insort(items, (number, item), key=_number)
        else:
            items.append((number, item))

    def pop(self) -> T:
        """Take the first item out."""
        return self._items.popleft()[1]


def _number(entry: tuple[int, object]) -> int:
    return entry[0]
