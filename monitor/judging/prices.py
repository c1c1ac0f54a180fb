"""What a call costs: the table that ships with this version (`prices.toml`), and prices from the settings.

Money is whole nano-dollars (1e-9 $), so that sums are exact whatever their order. A price is whole pico-dollars a
token: a dollar a million tokens is 1,000,000 of them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from decimal import Decimal
from importlib.resources import files
from typing import Final

import msgspec

from monitor.errors import ConfigError
from monitor.judgement import Usage
from monitor.settings import PriceSettings, TierSettings

NUSD: Final = 1_000_000_000
_PICO: Final = 1_000_000
_PER_CENT: Final = 100


class Rates(msgspec.Struct, kw_only=True, frozen=True):
    """Pico-dollars a token, by type of token."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write_5m: int = 0
    cache_write_1h: int = 0

    def per_million(self) -> dict[str, float]:
        """Give the prices as people know them: dollars a million tokens."""
        return {name: getattr(self, name) / _PICO for name in self.__struct_fields__}

    def cost(self, usage: Usage) -> int:
        """Give the cost of a call's tokens, in pico-dollars."""
        short = usage.cache_write_tokens - usage.cache_write_1h_tokens
        return (
            usage.input_tokens * self.input
            + usage.output_tokens * self.output
            + usage.cache_read_tokens * self.cache_read
            + short * self.cache_write_5m
            + usage.cache_write_1h_tokens * self.cache_write_1h
        )


class Price(msgspec.Struct, kw_only=True, frozen=True):
    """The price of one judge. `version` is the date of the table, `settings` or `free`.

    `beyond` holds instead of `rates` for calls with more than `above` tokens of prompt, cached ones included.
    """

    version: str
    rates: Rates = Rates()
    above: int | None = None
    beyond: Rates = Rates()
    batch_percent: int = _PER_CENT

    @property
    def free(self) -> bool:
        """Whether it costs nothing."""
        return self.version == "free"

    def cost(self, usage: Usage, *, batch: bool = False) -> int:
        """Give the cost of a call in nano-dollars, rounded half up."""
        prompt = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
        rates = self.beyond if self.above is not None and prompt > self.above else self.rates
        percent = self.batch_percent if batch else _PER_CENT
        return (2 * rates.cost(usage) * percent + _PER_CENT * 1_000) // (2 * _PER_CENT * 1_000)


FREE: Final = Price(version="free")


class PriceTable(msgspec.Struct, kw_only=True, frozen=True):
    """The shipped prices by judge name, their date, and where they are from."""

    version: str
    source: str
    models: dict[str, Price]


def price_table() -> PriceTable:
    """Read the table that ships with this version."""
    raw = tomllib.loads((files("monitor.judging") / "prices.toml").read_text("utf-8"))
    models = {
        name: FREE if entry.get("free") else _price(PriceSettings.model_validate(entry), raw["version"])
        for name, entry in raw["models"].items()
    }
    return PriceTable(version=raw["version"], source=raw["source"], models=models)


def price_of(judge: str, configured: Mapping[str, PriceSettings | str]) -> Price:
    """Give the price of a judge, from `judge.prices` before the table. Raises `ConfigError` if nobody knows it."""
    own = configured.get(judge)
    if own is not None:
        return _price(own, "settings") if isinstance(own, PriceSettings) else FREE
    table = price_table()
    if judge in table.models:
        return table.models[judge]
    known = ", ".join(name for name in table.models if name != "lexical")
    raise ConfigError(
        f"judge.model = {judge!r}: no price is known, and what costs an unknown amount is not started. Set "
        f"judge.prices to {{{judge!r}: {{input: 0.1, output: 0.5}}}} (dollars a million tokens), or to "
        f"{{{judge!r}: free}} for a model of your own; known prices: {known}"
    )


def dollars(nusd: int) -> str:
    """Write an amount for people: cents, or three digits of what is less."""
    amount = nusd / NUSD
    return f"${amount:,.2f}" if nusd == 0 or amount >= 1 else f"${amount:.3g}"


def _price(entry: PriceSettings, version: str) -> Price:
    above = entry.above
    return Price(
        version=version,
        rates=_rates(entry),
        above=None if above is None else above.tokens,
        beyond=Rates() if above is None else _rates(above),
        batch_percent=int(entry.batch * _PER_CENT),
    )


def _rates(entry: TierSettings | PriceSettings) -> Rates:
    return Rates(
        input=_pico(entry.input),
        output=_pico(entry.output),
        # A provider without a cache of its own has no other price for it.
        cache_read=_pico(entry.input if entry.cache_read is None else entry.cache_read),
        cache_write_5m=_pico(entry.input if entry.cache_write_5m is None else entry.cache_write_5m),
        cache_write_1h=_pico(entry.input if entry.cache_write_1h is None else entry.cache_write_1h),
    )


def _pico(dollars: Decimal) -> int:
    return int(dollars * _PICO)
