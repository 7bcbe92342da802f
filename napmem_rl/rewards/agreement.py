"""How far raters agree: accuracy, precision, recall, F1, Cohen's kappa (Educational and Psychological Measurement 20, 1960) and Fleiss' kappa
(Psychological Bulletin 76, 1971), each with how many items it rests on.

A statistic that does not exist, such as the kappa of raters who all say "correct" to everything, is absent with the reason; never 0.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

Z_95 = 1.959963984540054  # of the normal distribution, for two-sided 95%


@dataclass(frozen=True, kw_only=True, slots=True)
class Statistic:
    """A value over `n` items, or None and why there is none."""

    value: float | None
    n: int
    absent: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Agreement:
    """A judge against labels. `n` of precision counts what the judge called correct, of recall what is correct, of the others all items."""

    accuracy: Statistic
    precision: Statistic
    recall: Statistic
    f1: Statistic
    kappa: Statistic
    num_false_accepts: int
    num_false_rejects: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Rate:
    """A share of `n` items with its 95% interval; all three are None where there are no items."""

    count: int
    n: int
    value: float | None
    low: float | None
    high: float | None


def compare_labels(judged: Sequence[bool], labels: Sequence[bool]) -> Agreement:
    """A judge's verdicts against labels taken as the truth, item by item. True is correct.

    Raises:
        ValueError: the two are of different lengths.
    """
    pairs = Counter(zip(judged, labels, strict=True))
    hits, accepts, rejects, n = pairs[True, True], pairs[True, False], pairs[False, True], len(judged)
    return Agreement(
        accuracy=_divide(hits + pairs[False, False], n, "no item"),
        precision=_divide(hits, hits + accepts, "the judge calls nothing correct"),
        recall=_divide(hits, hits + rejects, "nothing is labelled correct"),
        f1=_f1(hits, accepts, rejects, n),
        kappa=cohen_kappa(judged, labels),
        num_false_accepts=accepts,
        num_false_rejects=rejects,
    )


def cohen_kappa(first: Sequence[Hashable], second: Sequence[Hashable]) -> Statistic:
    """Agreement of two raters beyond chance: (p_o - p_e) / (1 - p_e), p_e from each rater's own shares of the labels.

    Raises:
        ValueError: the two are of different lengths.
    """
    n = len(first)
    observed = sum(a == b for a, b in zip(first, second, strict=True))
    if n == 0:
        return Statistic(value=None, n=0, absent="no item")
    shares = Counter(first), Counter(second)
    chance = sum(shares[0][label] * shares[1][label] for label in shares[0])  # of n * n
    if chance == n * n:
        return Statistic(value=None, n=n, absent="both raters give one and the same label throughout: chance alone agrees")
    return Statistic(value=(observed * n - chance) / (n * n - chance), n=n)


def fleiss_kappa(ratings: Sequence[Sequence[Hashable]]) -> Statistic:
    """Agreement of three or more raters beyond chance.

    Args:
        ratings: one row an item, one label a rater; every row by the same number of raters, who need not be the same people.

    Raises:
        ValueError: rows of different lengths.
    """
    n = len(ratings)
    if len({len(row) for row in ratings}) > 1:
        raise ValueError(f"fleiss_kappa: rows of {sorted({len(row) for row in ratings})} labels; every item needs the same number")
    if n == 0 or len(ratings[0]) < 2:
        return Statistic(value=None, n=n, absent="no item" if n == 0 else "one rater agrees with nobody")
    raters = len(ratings[0])
    observed = sum(count * (count - 1) for row in ratings for count in Counter(row).values()) / (n * raters * (raters - 1))
    totals = Counter(label for row in ratings for label in row)
    if len(totals) == 1:
        return Statistic(value=None, n=n, absent="all raters give one and the same label throughout: chance alone agrees")
    chance = sum((count / (n * raters)) ** 2 for count in totals.values())
    return Statistic(value=(observed - chance) / (1 - chance), n=n)


def wilson_rate(count: int, n: int) -> Rate:
    """`count` of `n` as a share with its 95% Wilson score interval (J. Am. Stat. Assoc. 22, 1927), which stays in [0, 1] and is right for shares near 0."""
    if n == 0:
        return Rate(count=0, n=0, value=None, low=None, high=None)
    share, spread = count / n, Z_95 * Z_95 / n
    middle = (share + spread / 2) / (1 + spread)
    half = math.sqrt(share * (1 - share) * spread + spread * spread / 4) / (1 + spread)
    return Rate(count=count, n=n, value=share, low=max(0.0, middle - half), high=min(1.0, middle + half))


def _divide(count: int, n: int, why_absent: str) -> Statistic:
    return Statistic(value=count / n, n=n) if n else Statistic(value=None, n=0, absent=why_absent)


def _f1(hits: int, accepts: int, rejects: int, n: int) -> Statistic:
    if hits + accepts + rejects == 0:
        return Statistic(value=None, n=n, absent="neither the judge nor the labels call anything correct")
    return Statistic(value=2 * hits / (2 * hits + accepts + rejects), n=n)
