"""How far two raters agree: kappa, F1, rank correlation, and intervals by resampling whole sources. Pure.

Functions take parallel sequences and give None where the figure isn't defined (no rows, one class only).
"""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeVar

import msgspec

T = TypeVar("T")
Label = Hashable
Figure = Callable[[Sequence[T]], float | None]


class Estimate(msgspec.Struct, kw_only=True, frozen=True):
    """A figure and its 95 % interval; None where it isn't defined."""

    value: float | None
    low: float | None
    high: float | None


def accuracy(truth: Sequence[Label], said: Sequence[Label]) -> float | None:
    """Give the share of rows on which both say the same."""
    rows = list(zip(truth, said, strict=True))
    return sum(a == b for a, b in rows) / len(rows) if rows else None


def kappa(truth: Sequence[Label], said: Sequence[Label]) -> float | None:
    """Give Cohen's kappa (1960): agreement beyond what the two marginals give by chance."""
    return counted_kappa(Counter(zip(truth, said, strict=True)))


def counted_kappa(pairs: Mapping[tuple[Label, Label], int]) -> float | None:
    """Give Cohen's kappa of rows that are counted by what each rater said."""
    total = sum(pairs.values())
    if not total:
        return None
    ours, theirs = Counter[Label](), Counter[Label]()
    for (a, b), count in pairs.items():
        ours[a] += count
        theirs[b] += count
    agreed = sum(count for (a, b), count in pairs.items() if a == b)
    chance = sum(ours[label] * theirs[label] for label in ours)
    return None if chance == total**2 else (agreed * total - chance) / (total**2 - chance)


def weighted_kappa(truth: Sequence[int], said: Sequence[int]) -> float | None:
    """Give Cohen's kappa with quadratic weights (1968), for grades."""
    total = len(truth)
    seen = sum((a - b) ** 2 for a, b in zip(truth, said, strict=True))
    ours, theirs = Counter(truth), Counter(said)
    chance = sum(n * m * (a - b) ** 2 for a, n in ours.items() for b, m in theirs.items())
    return None if chance == 0 else 1 - seen * total / chance


def macro_f1(truth: Sequence[Label], said: Sequence[Label]) -> float | None:
    """Give the mean over the classes in `truth` of F1."""
    pairs = list(zip(truth, said, strict=True))
    scores = []
    for label in dict.fromkeys(truth):
        hits = sum(a == b == label for a, b in pairs)
        wrong = sum((a == label) != (b == label) for a, b in pairs)
        scores.append(2 * hits / (2 * hits + wrong))
    return sum(scores) / len(scores) if scores else None


def recall(truth: Sequence[bool], said: Sequence[bool]) -> float | None:
    """Give the share of the true rows that were said to be."""
    found = [b for a, b in zip(truth, said, strict=True) if a]
    return sum(found) / len(found) if found else None


def precision(truth: Sequence[bool], said: Sequence[bool]) -> float | None:
    """Give the share of the rows said to be true that are."""
    return recall(said, truth)


def balanced_accuracy(truth: Sequence[Label], said: Sequence[Label]) -> float | None:
    """Give the mean over the classes in `truth` of recall."""
    recalls = [
        sum(b == label for a, b in zip(truth, said, strict=True) if a == label) / count
        for label, count in Counter(truth).items()
    ]
    return sum(recalls) / len(recalls) if recalls else None


def auc(positive: Sequence[bool], score: Sequence[float]) -> float | None:
    """Give the chance that a positive row scores above a negative one, ties counted half (Mann and Whitney)."""
    ups = [value for value, is_positive in zip(score, positive, strict=True) if is_positive]
    downs = sorted(value for value, is_positive in zip(score, positive, strict=True) if not is_positive)
    if not ups or not downs:
        return None
    wins = sum(bisect_left(downs, value) + bisect_right(downs, value) for value in ups) / 2
    return wins / (len(ups) * len(downs))


def spearman(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Give the rank correlation, ties at their mean rank; None when one side doesn't vary."""
    a, b = _ranks(one), _ranks(other)
    if len(a) < 2:  # noqa: PLR2004 - two points make a line
        return None
    mean = (len(a) + 1) / 2
    across = sum((x - mean) * (y - mean) for x, y in zip(a, b, strict=True))
    spread = sum((x - mean) ** 2 for x in a) * sum((y - mean) ** 2 for y in b)
    return across / spread**0.5 if spread else None


def bootstrap(
    units: Sequence[T],
    source: Callable[[T], Hashable],
    figure: Figure[T],
    *,
    resamples: int = 1_000,
    seed: int = 1,
) -> Estimate:
    """Estimate a figure with a percentile interval from resampling whole sources (Efron 1979, by cluster).

    Units of one source (a dialogue that several rows were made of) aren't independent, so they are drawn together.
    """
    clusters: dict[Hashable, list[T]] = defaultdict(list)
    for unit in units:
        clusters[source(unit)].append(unit)
    groups = list(clusters.values())
    chance = random.Random(seed)  # noqa: S311 - a repeatable draw
    drawn = (
        figure([unit for group in chance.choices(groups, k=len(groups)) for unit in group])
        for _ in range(resamples if len(groups) > 1 else 0)
    )
    values = sorted(value for value in drawn if value is not None)
    if not values:
        return Estimate(value=figure(units), low=None, high=None)
    return Estimate(value=figure(units), low=_quantile(values, 0.025), high=_quantile(values, 0.975))


def confusion(truth: Sequence[str], said: Sequence[str]) -> Mapping[str, Mapping[str, int]]:
    """Count rows by what is true, then by what was said."""
    table: dict[str, Counter[str]] = defaultdict(Counter)
    for a, b in zip(truth, said, strict=True):
        table[a][b] += 1
    return table


def _ranks(values: Sequence[float]) -> list[float]:
    ordered = sorted(values)
    return [(bisect_left(ordered, value) + bisect_right(ordered, value) + 1) / 2 for value in values]


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Give a quantile by linear interpolation (Hyndman and Fan's type 7)."""
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)
