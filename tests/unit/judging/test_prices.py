"""What calls cost: exact, from a table with a date, and never an unknown amount."""

import tomllib
from decimal import Decimal
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.config import load
from monitor.errors import ConfigError
from monitor.judgement import Usage
from monitor.judging.prices import FREE, NUSD, dollars, price_of, price_table
from monitor.settings import PriceSettings

HAIKU = "anthropic:claude-haiku-5-5"


def haiku() -> tuple[int, ...]:
    price = price_of(HAIKU, {})
    usages = (
        Usage(input_tokens=1_000),
        Usage(output_tokens=1_000),
        Usage(cache_read_tokens=1_000),
        Usage(cache_write_tokens=1_000),
    )
    return tuple(price.cost(usage) for usage in usages)


def test_the_shipped_table_has_a_date_a_source_and_sound_prices() -> None:
    table = price_table()
    assert len(table.version) == len("2026-11-30")
    assert table.source
    for name, price in table.models.items():
        rates = price.rates
        assert price.free == (name == "lexical")
        assert price.free or 0 < rates.cache_read < rates.input < rates.cache_write_5m < rates.cache_write_1h
        assert price.free or rates.input < rates.output


def test_every_entry_of_the_file_is_read() -> None:
    raw = tomllib.loads((files("monitor.judging") / "prices.toml").read_text("utf-8"))
    assert set(price_table().models) == set(raw["models"])
    assert price_of(HAIKU, {}).version == raw["version"]


def test_each_type_of_token_has_its_price() -> None:
    """A thousand tokens at 0.10, 0.50, 0.01 and 0.125 $ a million."""
    assert haiku() == (100_000, 500_000, 10_000, 125_000)
    hour = Usage(cache_write_tokens=1_000, cache_write_1h_tokens=1_000)
    assert price_of(HAIKU, {}).cost(hour) == 200_000
    mixed = Usage(cache_write_tokens=1_000, cache_write_1h_tokens=400)
    assert price_of(HAIKU, {}).cost(mixed) == 600 * 125 + 400 * 200


def test_thinking_is_part_of_the_output() -> None:
    price = price_of(HAIKU, {})
    assert price.cost(Usage(output_tokens=100, thinking_tokens=90)) == price.cost(Usage(output_tokens=100))


@pytest.mark.parametrize(
    ("usage", "cost"),
    [
        (Usage(input_tokens=100_000), 100_000 * 100),
        (Usage(input_tokens=100_001), 100_001 * 500),
        (Usage(input_tokens=1, cache_read_tokens=100_000, output_tokens=10), 500 + 100_000 * 50 + 10 * 2_500),
        (Usage(cache_write_tokens=100_001, cache_write_1h_tokens=100_001), 100_001 * 1_000),
        (Usage(output_tokens=200_000), 200_000 * 500),
    ],
)
def test_long_prompts_have_prices_of_their_own(usage: Usage, cost: int) -> None:
    assert price_of(HAIKU, {}).cost(usage) == cost


def test_a_batch_costs_half_and_is_rounded_once() -> None:
    price = price_of(HAIKU, {})
    assert price.cost(Usage(input_tokens=10_000), batch=True) == 500_000
    assert price.cost(Usage(cache_write_tokens=1), batch=True) == 63  # 62.5
    assert price.cost(Usage(cache_write_tokens=1)) == 125


def test_a_judge_without_a_price_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        price_of("openai_compatible:llama-4", {})
    text = str(caught.value)
    assert "judge.prices" in text
    assert "'openai_compatible:llama-4'" in text
    assert HAIKU in text


def test_prices_come_from_the_settings_first() -> None:
    local = "openai_compatible:llama-4"
    judge = load(None, {"judge.prices": {local: "free", HAIKU: {"input": "1.5", "output": 3}}}).judge
    assert price_of(local, judge.prices) == FREE
    price = price_of(HAIKU, judge.prices)
    assert price.version == "settings"
    # Without prices of a cache, what it holds costs as much as any input.
    usage = Usage(input_tokens=1_000_000, cache_read_tokens=1_000_000, cache_write_tokens=1_000_000)
    assert price.cost(usage) == 3 * 1_500_000_000
    assert price.cost(Usage(output_tokens=1_000_000), batch=True) == 3 * NUSD


@pytest.mark.parametrize(
    "wrong",
    [
        {"input": 1},
        {"input": -1, "output": 1},
        {"input": 1, "output": 1, "cached": 1},
        {"input": "0.0000001", "output": 1},
        {"input": 1, "output": 1, "batch": 2},
        "gratis",
        {"input": 1, "output": 1, "above": {"input": 1, "output": 1}},
    ],
)
def test_a_wrong_price_is_named(wrong: object) -> None:
    with pytest.raises(ConfigError, match=r"judge\.prices"):
        load(None, {"judge.prices": {"x": wrong}})


USAGES = st.builds(
    lambda one, two, three, four, share: Usage(
        input_tokens=one,
        output_tokens=two,
        cache_read_tokens=three,
        cache_write_tokens=four,
        cache_write_1h_tokens=round(four * share),
    ),
    *[st.integers(0, 2_000_000)] * 4,
    st.floats(0, 1),
)


@given(USAGES)
def test_costs_are_whole_and_agree_with_the_plain_formula(usage: Usage) -> None:
    settings = PriceSettings(
        input=Decimal("3.17"), output=Decimal(15), cache_read=Decimal("0.317"), batch=Decimal("0.5")
    )
    for batch, factor in ((False, 1.0), (True, 0.5)):
        cost = price_of("x", {"x": settings}).cost(usage, batch=batch)
        sent = usage.input_tokens + usage.cache_write_tokens
        plain = (sent * 3_170 + usage.output_tokens * 15_000 + usage.cache_read_tokens * 317) * factor
        assert isinstance(cost, int)
        assert abs(cost - plain) <= 0.5 + 1e-6


@pytest.mark.parametrize(
    ("nusd", "text"),
    [(0, "$0.00"), (1_234_567_890_000, "$1,234.57"), (52_300_000_000, "$52.30"), (1_250_000, "$0.00125")],
)
def test_amounts_for_people(nusd: int, text: str) -> None:
    assert dollars(nusd) == text
