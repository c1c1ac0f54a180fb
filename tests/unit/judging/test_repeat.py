"""The coin of self-agreement: its share, the same jobs each time, and only live ones."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.decision import job_id, repeat_id
from monitor.judging.repeat import repeat_of
from tests.unit.judging.politeness import job, session

JOB = job(session("Yes"))


def live(number: int) -> str:
    return job_id("t", f"s{number}", "e0", "correction")


def picked(share: float, numbers: range) -> set[int]:
    return {n for n in numbers if repeat_of(msgspec.structs.replace(JOB, job_id=live(n)), share) is not None}


def test_a_share_of_jobs_is_picked_and_the_same_ones_at_every_larger_share() -> None:
    numbers = range(20_000)
    small, large = picked(0.02, numbers), picked(0.1, numbers)
    assert 340 <= len(small) <= 460  # 400 +- 3 standard deviations
    assert 1_870 <= len(large) <= 2_130
    assert small < large


@given(st.text())
def test_none_at_zero_and_all_at_one(name: str) -> None:
    item = msgspec.structs.replace(JOB, job_id=job_id("t", name, "e0", "correction"))
    assert repeat_of(item, 0.0) is None
    again = repeat_of(item, 1.0)
    assert again is not None
    assert (again.run, again.job_id) == ("repeat", repeat_id(item.job_id))
    assert msgspec.structs.replace(again, run="live", job_id=item.job_id) == item


@pytest.mark.parametrize("run", ["repeat", "file"])
def test_only_live_jobs_are_repeated(run: str) -> None:
    assert repeat_of(msgspec.structs.replace(JOB, run=run), 1.0) is None
