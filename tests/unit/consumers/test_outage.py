"""The pause after an answer that no waiting mends (section 7: slows down, pauses, never spins)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.outage import Outage


def test_it_grows_with_each_try_and_starts_over_after_an_answer() -> None:
    outage = Outage(30.0, 100.0)
    assert outage.wait(0.0) == 0.0
    assert outage.note(0.0) == 30.0
    assert outage.note(10.0) == 20.0  # another job hears the same
    assert outage.wait(25.0) == 5.0
    assert outage.wait(30.0) == 0.0
    assert [outage.note(at) for at in (30.0, 90.0, 190.0)] == [60.0, 100.0, 100.0]
    outage.over()
    assert outage.wait(191.0) == 0.0
    assert outage.note(191.0) == 30.0


@given(st.lists(st.floats(0.0, 500.0), min_size=1, max_size=50))
def test_the_wait_is_always_above_zero_and_bounded(steps: list[float]) -> None:
    outage, now = Outage(30.0, 600.0), 0.0
    for step in steps:
        now += step
        wait = outage.note(now)
        assert 0.0 < wait < 600.001
        assert outage.wait(now) == pytest.approx(wait)
