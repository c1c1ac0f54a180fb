import math
from email.utils import formatdate

from hypothesis import given
from hypothesis import strategies as st

from monitor.judging.retry import RetryPolicy, backoff, retry_after

NOW = 1_790_000_000
CHANCE = st.floats(0, 1, exclude_max=True)


@given(failures=st.integers(1, 10_000), chance=CHANCE)
def test_a_wait_lies_between_half_the_ceiling_and_the_ceiling(failures: int, chance: float) -> None:
    policy = RetryPolicy(base_s=0.5, max_s=8.0)
    ceiling = min(8.0, 0.5 * 2 ** min(failures - 1, 10))
    assert ceiling / 2 <= backoff(policy, failures, chance) <= ceiling


def test_waits_double_up_to_the_maximum() -> None:
    policy = RetryPolicy(base_s=0.5, max_s=8.0)
    assert [backoff(policy, failures, 0.0) for failures in range(1, 8)] == [0.25, 0.5, 1.0, 2.0, 4.0, 4.0, 4.0]


@given(failures=st.integers(1, 100), chance=CHANCE, wish=st.floats(0, 1e6))
def test_a_wait_is_never_shorter_than_the_wish(failures: int, chance: float, wish: float) -> None:
    assert backoff(RetryPolicy(), failures, chance, wish) >= wish


@given(
    headers=st.dictionaries(
        st.sampled_from(["retry-after", "retry-after-ms"]),
        st.text() | st.floats().map(str) | st.integers().map(str) | st.datetimes().map(str),
    )
)
def test_whatever_a_header_holds_gives_none_or_a_finite_wait(headers: dict[str, str]) -> None:
    wait = retry_after(headers, NOW)
    assert wait is None or (math.isfinite(wait) and wait >= 0)


@given(seconds=st.integers(0, 10**9))
def test_seconds_milliseconds_and_dates_mean_the_same(seconds: int) -> None:
    assert retry_after({"retry-after": str(seconds)}, NOW) == seconds
    assert retry_after({"retry-after-ms": str(seconds * 1000)}, NOW) == seconds
    assert retry_after({"retry-after": formatdate(NOW + seconds, usegmt=True)}, NOW) == seconds


def test_milliseconds_go_before_seconds() -> None:
    assert retry_after({"retry-after-ms": "1500", "retry-after": "9"}, NOW) == 1.5


def test_a_date_in_the_past_is_no_wait_and_nonsense_no_wish() -> None:
    assert retry_after({"retry-after": formatdate(NOW - 60, usegmt=True)}, NOW) == 0
    assert retry_after({"retry-after": "-5"}, NOW) is None
    assert retry_after({"retry-after": "nan"}, NOW) is None
    assert retry_after({"retry-after": "inf"}, NOW) is None
    assert retry_after({}, NOW) is None


def test_a_date_counts_from_the_date_of_the_reply_so_clocks_need_not_agree() -> None:
    headers = {"date": formatdate(NOW, usegmt=True), "retry-after": formatdate(NOW + 7, usegmt=True)}
    assert retry_after(headers, NOW - 3_600) == 7
    assert retry_after(headers, NOW + 3_600) == 7
