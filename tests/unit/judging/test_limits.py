"""The limits that a worker keeps by itself: calls in flight, and quotas a minute."""

import random
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.judgement import Usage
from monitor.judging.limits import Bucket, Concurrency, Limiter, LimitPolicy, Need
from monitor.judging.quota import Limits, Quota

POLICY = LimitPolicy(start=16, maximum=200)


def busy_round(limit: Concurrency, now: float, *outcomes: str) -> None:
    """Fill the limit and end as many calls, the given ones first and the others answered."""
    calls = limit.limit
    for _ in range(calls):
        limit.begin()
    for number in range(calls):
        limit.end(now, outcomes[number] if number < len(outcomes) else "answered")  # type: ignore[arg-type]


def pushed_back(limit: Concurrency, now: float) -> None:
    """End calls with 429 until the limit is cut."""
    before = limit.limit
    for _ in range(200):
        limit.begin()
        limit.end(now, "rate_limited")
        if limit.limit < before:
            return
    raise AssertionError("200 times 429, and no cut")


def test_slow_start_doubles_up_to_the_bound() -> None:
    limit = Concurrency(POLICY)
    seen = []
    for _ in range(6):
        busy_round(limit, 0.0)
        seen.append(limit.limit)
    assert seen == [32, 64, 128, 200, 200, 200]
    assert limit.in_flight == 0


def test_the_start_is_never_above_the_bound() -> None:
    assert Concurrency(LimitPolicy(start=16, maximum=4)).limit == 4


def test_after_the_first_429_a_clean_round_adds_5_percent() -> None:
    limit = Concurrency(LimitPolicy(start=100, maximum=1_000))
    busy_round(limit, 0.0, "rate_limited")
    assert limit.limit == 105  # one in a hundred is within a clean round
    busy_round(limit, 0.0)
    assert limit.limit == 111
    small = Concurrency(LimitPolicy(start=3, maximum=10))
    busy_round(small, 0.0, "rate_limited")
    assert small.limit == 3  # one of three is not
    busy_round(small, 0.0)
    assert small.limit == 4


def test_many_429s_cut_once_a_cool_down() -> None:
    limit = Concurrency(LimitPolicy(start=100, maximum=1_000))
    pushed_back(limit, 0.0)
    assert limit.limit == 80
    for _ in range(100):  # replies to what was asked before the cut
        limit.begin()
        limit.end(14.9, "rate_limited")
    assert limit.limit == 80
    pushed_back(limit, 15.0)
    assert limit.limit == 64


def test_a_retry_after_extends_the_cool_down_within_reason() -> None:
    limit = Concurrency(LimitPolicy(start=100, maximum=1_000))
    pushed_back(limit, 0.0)
    limit.begin()
    limit.end(10.0, "rate_limited", retry_after=20.0)
    busy_round(limit, 29.9)
    assert limit.limit == 80  # answers in the cool-down don't count
    busy_round(limit, 30.0)
    assert limit.limit == 84
    limit.begin()
    pushed_back(limit, 31.0)
    limit.end(32.0, "rate_limited", retry_after=86_400.0)
    before = limit.limit
    busy_round(limit, 32.0 + 300.0)
    assert limit.limit > before


def test_failures_only_keep_it_from_growing() -> None:
    limit = Concurrency(POLICY)
    busy_round(limit, 0.0, "failed")
    assert limit.limit == 16
    busy_round(limit, 0.0, *["failed"] * 16)
    assert limit.limit == 16
    busy_round(limit, 0.0)
    assert limit.limit == 32  # still in slow start: nobody said 429


def test_it_does_not_grow_while_it_is_not_used() -> None:
    limit = Concurrency(POLICY)
    for _ in range(100):
        limit.begin()
        limit.end(0.0, "answered")
    assert limit.limit == 16
    for _ in range(13):  # 81 % of 16
        limit.begin()
    for _ in range(16):
        limit.end(0.0, "answered")
        limit.begin()
    assert limit.limit == 32


def test_canceled_and_unused_calls_teach_nothing() -> None:
    limit = Concurrency(POLICY)
    busy_round(limit, 0.0, *["canceled", "unused"] * 8)
    assert (limit.limit, limit.in_flight) == (16, 0)


@pytest.mark.parametrize("seed", range(5))
def test_429s_by_chance_don_t_starve_it(seed: int) -> None:
    """5 % whatever is asked: a cut for each would end near 1, growth only in rounds without any near 16."""
    chance, limit, now = random.Random(seed), Concurrency(POLICY), 0.0
    means = []
    for _ in range(600):
        now += 1.0
        busy_round(limit, now, *["rate_limited" if chance.random() < 0.05 else "answered" for _ in range(200)])
        means.append(limit.limit)
    assert sum(means[300:]) / 300 > 150


def test_429s_that_come_before_the_answers_are_not_all_there_is() -> None:
    """Of 200 calls begun at once the 429s are told at once, and the answers a second later."""
    limit = Concurrency(LimitPolicy(start=200, maximum=200))
    for _ in range(200):
        limit.begin()
    for _ in range(15):
        limit.end(0.01, "rate_limited")
    assert limit.limit == 200
    for _ in range(15):
        limit.end(0.02, "rate_limited")
    assert limit.limit == 160  # more than 20 of the 200


@pytest.mark.parametrize("capacity", [1, 10, 60])
def test_it_settles_at_what_the_provider_takes(capacity: int) -> None:
    """A provider that answers so many calls a second and refuses the rest is asked for little more than that."""
    limit, now = Concurrency(POLICY), 0.0
    asked = answered = 0
    for second in range(600):
        now += 1.0
        calls = limit.limit
        good = min(calls, capacity)
        busy_round(limit, now, *["answered"] * good, *["rate_limited"] * (calls - good))
        if second >= 300:
            asked, answered = asked + calls, answered + good
    assert answered >= 0.8 * 300 * capacity
    assert asked <= 1.15 * answered + 300


def test_a_bucket_fills_evenly_and_holds_a_minute() -> None:
    bucket = Bucket(60.0)
    assert bucket.wait(0.0, 60.0) == 0
    bucket.take(0.0, 60.0)
    assert bucket.wait(0.0, 5.0) == pytest.approx(5.0)
    assert bucket.wait(5.0, 5.0) == 0
    assert bucket.level(1_000.0) == 60.0


def test_what_is_larger_than_the_bucket_passes_when_it_is_full() -> None:
    bucket = Bucket(60.0)
    bucket.take(0.0, 10.0)
    assert bucket.wait(0.0, 1_000.0) == pytest.approx(10.0)
    bucket.take(10.0, 1_000.0)
    assert bucket.level(10.0) == -940.0


def test_a_bucket_is_corrected_downwards_only() -> None:
    bucket = Bucket(600.0)
    bucket.correct(0.0, Quota(limit=600, remaining=100), under_way=30.0)
    assert bucket.level(0.0) == 70.0
    bucket.correct(0.0, Quota(limit=600, remaining=500), under_way=0.0)
    assert bucket.level(0.0) == 70.0
    bucket.correct(0.0, Quota(remaining=0), under_way=30.0)
    assert bucket.level(0.0) == 0.0
    bucket.correct(0.0, Quota(limit=600), under_way=0.0)
    assert bucket.level(0.0) == 0.0


def test_until_the_reset_it_fills_as_slowly_as_the_provider_s() -> None:
    bucket = Bucket(600.0)  # 10 a second
    bucket.correct(0.0, Quota(limit=120, remaining=0, resets_in_s=40.0), under_way=0.0)
    assert bucket.level(20.0) == pytest.approx(60.0)  # 3 a second
    assert bucket.wait(20.0, 80.0) == pytest.approx(20.0 / 3)
    assert bucket.wait(20.0, 220.0) == pytest.approx(20.0 + 100.0 / 10)
    assert bucket.level(50.0) == pytest.approx(120.0 + 100.0)


@pytest.mark.parametrize("skew", [0.0, 3_600.0, 86_400.0 * 365])
def test_a_reset_by_a_wrong_clock_costs_a_minute_at_most(skew: float) -> None:
    bucket = Bucket(600.0)
    bucket.correct(0.0, Quota(limit=600, remaining=0, resets_in_s=skew), under_way=0.0)
    assert bucket.wait(0.0, 600.0) <= 60.0 + 1e-9


Step: TypeAlias = tuple[float, int, int | None, int | None, float | None]


@given(
    steps=st.lists(
        st.tuples(
            st.floats(0, 30),
            st.integers(0, 500),
            st.integers(0, 500) | st.none(),
            st.integers(1, 2_000) | st.none(),
            st.floats(0, 1e6) | st.none(),
        ),
        max_size=30,
    )
)
def test_after_its_wait_a_bucket_has_what_was_asked_for(steps: list[Step]) -> None:
    bucket, now = Bucket(300.0), 0.0
    for pause, amount, remaining, size, reset in steps:
        now += pause
        wait = bucket.wait(now, amount)
        assert wait >= 0
        now += wait
        assert bucket.level(now) >= min(amount, 300.0) - 1e-6
        bucket.take(now, amount)
        bucket.correct(now, Quota(limit=size, remaining=remaining, resets_in_s=reset), 0.0)
        assert bucket.level(now) <= 300.0


NEED = Need(input_tokens=1_000, output_tokens=200)


def quotas() -> Limiter:
    return Limiter(
        LimitPolicy(requests_per_minute=10, input_tokens_per_minute=6_000, output_tokens_per_minute=1_000)
    )


def levels(limiter: Limiter) -> dict[str, float]:
    return {name: bucket.level(0.0) for name, bucket in limiter.buckets.items()}


def test_the_tightest_bucket_decides() -> None:
    limiter = quotas()
    for _ in range(5):
        assert limiter.wait(0.0, NEED) == 0
        limiter.begin(0.0, NEED)
    assert levels(limiter) == {"requests": 5, "input_tokens": 1_000, "output_tokens": 0}
    assert limiter.wait(0.0, NEED) == pytest.approx(12.0)


def test_what_was_expected_is_set_right_by_what_was_used() -> None:
    limiter = quotas()
    limiter.begin(0.0, NEED)
    usage = Usage(input_tokens=300, cache_write_tokens=100, cache_read_tokens=50_000, output_tokens=450)
    limiter.end(0.0, NEED, "answered", usage=usage)
    assert levels(limiter) == {"requests": 9, "input_tokens": 5_600, "output_tokens": 550}


@pytest.mark.parametrize(
    ("outcome", "left"),
    [
        ("rate_limited", (9, 6_000, 1_000)),
        ("failed", (9, 5_000, 800)),
        ("canceled", (9, 5_000, 800)),
        ("unused", (10, 6_000, 1_000)),
    ],
)
def test_what_a_call_without_usage_used(outcome: str, left: tuple[int, int, int]) -> None:
    limiter = quotas()
    limiter.begin(0.0, NEED)
    limiter.end(0.0, NEED, outcome)  # type: ignore[arg-type]
    assert tuple(levels(limiter).values()) == left


def test_what_the_provider_says_is_left_counts_without_what_it_has_not_seen() -> None:
    limiter = quotas()
    limiter.begin(0.0, NEED)
    limiter.begin(0.0, NEED)
    told = Limits(requests=Quota(limit=10, remaining=4), output_tokens=Quota(limit=1_000, remaining=150))
    limiter.end(0.0, NEED, "answered", usage=Usage(input_tokens=1_000, output_tokens=200), limits=told)
    assert levels(limiter) == {"requests": 3, "input_tokens": 4_000, "output_tokens": 0}


def test_without_quotas_only_the_calls_in_flight_are_bounded() -> None:
    limiter = Limiter(LimitPolicy(start=1, maximum=1))
    limiter.begin(0.0, NEED)
    assert limiter.wait(0.0, NEED) is None
    limiter.end(0.0, NEED, "answered", limits=Limits(requests=Quota(limit=1, remaining=0, resets_in_s=60.0)))
    assert limiter.wait(0.0, NEED) == 0
