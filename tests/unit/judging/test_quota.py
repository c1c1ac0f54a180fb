from collections.abc import Callable
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.judging.quota import Limits, Quota, anthropic_limits, duration_s, openai_limits, server_time

NOW = 1_790_000_000.0  # 2026-09-21T14:13:20Z


def test_the_limits_of_an_anthropic_reply_are_read() -> None:
    headers = {
        "anthropic-ratelimit-requests-limit": "50",
        "anthropic-ratelimit-requests-remaining": "0",
        "anthropic-ratelimit-requests-reset": "2026-09-21T14:13:21Z",
        "anthropic-ratelimit-tokens-limit": "90000",
        "anthropic-ratelimit-input-tokens-remaining": "40000",
        "anthropic-ratelimit-input-tokens-reset": "2026-09-21T14:13:20.500+00:00",
        "anthropic-ratelimit-output-tokens-limit": "8000",
        "anthropic-ratelimit-output-tokens-remaining": "7000",
        "anthropic-ratelimit-output-tokens-reset": "2026-09-21T14:12:00Z",
    }
    assert anthropic_limits(headers, NOW) == Limits(
        requests=Quota(limit=50, remaining=0, resets_in_s=1.0),
        tokens=Quota(limit=90_000),
        input_tokens=Quota(remaining=40_000, resets_in_s=0.5),
        output_tokens=Quota(limit=8_000, remaining=7_000, resets_in_s=0.0),
    )


def test_the_limits_of_an_openai_reply_are_read() -> None:
    headers = {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "59",
        "x-ratelimit-reset-requests": "1s",
        "x-ratelimit-limit-tokens": "150000",
        "x-ratelimit-remaining-tokens": "149984",
        "x-ratelimit-reset-tokens": "6m0.5s",
    }
    assert openai_limits(headers, NOW) == Limits(
        requests=Quota(limit=60, remaining=59, resets_in_s=1.0),
        tokens=Quota(limit=150_000, remaining=149_984, resets_in_s=360.5),
    )


@pytest.mark.parametrize("read", [anthropic_limits, openai_limits])
def test_no_headers_are_no_limits(read: Callable[[dict[str, str], float], Limits | None]) -> None:
    assert read({"content-type": "application/json"}, NOW) is None


def test_a_reset_counts_from_the_date_of_the_reply_so_clocks_need_not_agree() -> None:
    """A worker whose clock is an hour slow must not wait for an hour."""
    headers = {
        "date": formatdate(NOW, usegmt=True),
        "anthropic-ratelimit-requests-remaining": "0",
        "anthropic-ratelimit-requests-reset": "2026-09-21T14:13:25Z",
    }
    limits = anthropic_limits(headers, NOW - 3_600)
    assert limits is not None
    assert limits.requests == Quota(remaining=0, resets_in_s=5.0)


@pytest.mark.parametrize("date", ["", "soon", "Mon, 99 Foo 2026 99:99:99 GMT"])
def test_without_a_readable_date_the_own_clock_counts(date: str) -> None:
    assert server_time({"date": date}, NOW) == NOW


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("12", 12.0),
        ("0.5", 0.5),
        ("120ms", 0.12),
        ("1h2m3.5s", 3_723.5),
        ("6m", 360.0),
        ("17us", 17e-6),
        ("", None),
        (None, None),
        ("-1", None),
        ("inf", None),
        ("1 s", None),
        ("1x", None),
        ("s", None),
        ("2026-09-21T14:13:25Z", None),
    ],
)
def test_durations_are_read(text: str | None, seconds: float | None) -> None:
    assert duration_s(text) == (None if seconds is None else pytest.approx(seconds))


@given(st.dictionaries(st.sampled_from(["date", "reset", "limit", "remaining"]), st.text(max_size=30)))
def test_no_header_makes_it_fail(values: dict[str, str]) -> None:
    headers = {"date": values.get("date", "")}
    for name, value in values.items():
        headers[f"anthropic-ratelimit-tokens-{name}"] = value
        headers[f"x-ratelimit-{name}-tokens"] = value
    for limits in (anthropic_limits(headers, NOW), openai_limits(headers, NOW)):
        quota = limits.tokens if limits else None
        assert quota is None or (quota.resets_in_s or 0) >= 0
