"""Mutants of what counts: sampling (S), judging (J), the store and the exporter (R)."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutant import Mutant

MUTANTS: Final = (
    Mutant(
        rule="S2",
        title="the weight is cut, not rounded, to whole sixteenths",
        path="monitor/sampling/coin.py",
        old="round(16 / rate)",
        new="int(16 / rate)",
        tests=(
            "tests/unit/sampling/test_coin.py::test_a_quantized_rate_has_a_whole_number_of_sixteenths_as_weight",
        ),
    ),
)
