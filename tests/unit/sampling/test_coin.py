"""S2: the coin is exact, nested, uniform, and its two purposes are independent."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.sampling.coin import SIDES, picked, quantize, toss

SELECT = 10_285_993_132_735_252_320
HOLDOUT = 6_781_011_020_386_542_101

weights = st.integers(16, 16_000)
coins = st.integers(0, SIDES - 1)


@given(st.floats(0.001, 1.0))
def test_a_quantized_rate_has_a_whole_number_of_sixteenths_as_weight(rate: float) -> None:
    weight16 = quantize(rate)
    assert weight16 >= 16
    assert abs(16 / weight16 - rate) <= rate / 2 / 15.5  # half a sixteenth in the weight


@pytest.mark.parametrize(
    ("rate", "weight16"), [(1.0, 16), (0.5, 32), (0.05, 320), (0.3, 53), (0.99, 16), (0.001, 16_000)]
)
def test_known_rates(rate: float, weight16: int) -> None:
    assert quantize(rate) == weight16


@given(weights)
def test_the_share_of_picked_sides_is_the_probability(weight16: int) -> None:
    """The picked sides are exactly those below a threshold, whose share is 16/weight16 up to one side."""
    threshold = -(-16 * SIDES // weight16)
    assert picked(threshold - 1, weight16)
    assert not picked(threshold, weight16) or weight16 == 16
    assert abs(Fraction(threshold, SIDES) - Fraction(16, weight16)) < Fraction(1, SIDES)


@given(coins, weights, weights)
def test_what_a_rate_picks_every_higher_rate_picks(coin: int, a: int, b: int) -> None:
    light, heavy = sorted((a, b))
    assert picked(coin, light) or not picked(coin, heavy)


@given(coins)
def test_a_rate_of_one_picks_everything(coin: int) -> None:
    assert picked(coin, 16)


def test_ids_that_only_join_alike_have_different_coins() -> None:
    assert toss(b"s", "select", "ab", "c", "d") != toss(b"s", "select", "a", "bc", "d")


def test_a_long_salt_counts_to_its_end() -> None:
    assert toss(b"x" * 100 + b"1", "select", "t", "s", "g") != toss(b"x" * 100 + b"2", "select", "t", "s", "g")


def test_the_coin_never_changes() -> None:
    """Recorded: another value would pick other sessions after an upgrade, in the middle of a window."""
    assert toss(b"salt", "select", "default", "s-1", "e-1") == SELECT
    assert toss(b"salt", "holdout", "default", "s-1", "e-1") == HOLDOUT


def test_coins_are_uniform() -> None:
    """Chi-square over 64 bins, 20,000 sessions; 99.9 % of uniform coins stay below 103.4 at 63 degrees."""
    sample = [toss(b"salt", "select", "default", f"session-{n}", f"event-{n}") for n in range(20_000)]
    bins = [0] * 64
    for coin in sample:
        bins[coin >> 58] += 1
    expected = len(sample) / 64
    assert sum((count - expected) ** 2 / expected for count in bins) < 103.4


def test_the_coins_of_two_purposes_and_two_salts_are_independent() -> None:
    """Chi-square of an 8 x 8 table of pairs; 99.9 % of independent ones stay below 103.4 at 63 degrees."""
    keys = [("default", f"session-{n}", f"event-{n}") for n in range(20_000)]
    for other in ((b"salt", "holdout"), (b"salt 2", "select")):
        table = [0] * 64
        for key in keys:
            table[(toss(b"salt", "select", *key) >> 61) * 8 + (toss(other[0], other[1], *key) >> 61)] += 1
        expected = len(keys) / 64
        assert sum((count - expected) ** 2 / expected for count in table) < 103.4
