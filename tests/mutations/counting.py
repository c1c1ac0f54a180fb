"""Mutants of what counts: sampling (S), judging (J), the store and the exporter (R)."""

from __future__ import annotations

from typing import Final

from tests.mutations import judging, keeping, sampling, storing

MUTANTS: Final = (*sampling.MUTANTS, *judging.MUTANTS, *storing.MUTANTS, *keeping.MUTANTS)
