"""The queue behind the assembler's memory: the order of a heap, whatever comes when."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from monitor.assembly.ordered import OrderedQueue


@given(st.lists(st.one_of(st.integers(0, 20), st.none())))
def test_the_lowest_comes_first_and_equal_ones_in_their_order(steps: list[int | None]) -> None:
    """A number is pushed, None takes one out."""
    queue: OrderedQueue[int] = OrderedQueue()
    model: list[tuple[int, int]] = []
    for place, number in enumerate(steps):
        if number is not None:
            queue.push(number, place)
            model = sorted([*model, (number, place)])
        elif model:
            assert queue.first == model[0]
            assert queue.pop() == model.pop(0)[1]
        assert bool(queue) == bool(model)
