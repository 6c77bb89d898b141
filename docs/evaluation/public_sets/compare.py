"""Two systems on the same questions: the difference of their rates, with interval and p-value."""

from collections.abc import Sequence
from math import comb, sqrt

from longctx.core.measure.intervals import wilson

Pair = tuple[bool, bool]  # of a question: the first system is right, the second one is


def difference(pairs: Sequence[Pair]) -> tuple[float, float, float]:
    """The first system's rate less the second's, with its 95% interval.

    The interval is that of R. G. Newcombe (1998, "Improved confidence intervals for the difference
    between binomial proportions based on paired data", method 10): Wilson's intervals, joined by
    the correlation of the pairs.
    """
    total = len(pairs)
    both, first, second, neither = counts(pairs)
    one, other = (both + first) / total, (both + second) / total
    (low1, high1), (low2, high2) = wilson(both + first, total), wilson(both + second, total)
    phi = _correlation(both, first, second, neither)
    down = _joined(one - low1, high2 - other, phi)
    up = _joined(high1 - one, other - low2, phi)
    return one - other, one - other - down, one - other + up


def p_value(pairs: Sequence[Pair]) -> float:
    """The exact two-sided p-value of McNemar's test."""
    _, first, second, _ = counts(pairs)
    total = first + second
    tail = sum(comb(total, n) for n in range(min(first, second) + 1)) / 2**total
    return min(1.0, 2 * tail)


def counts(pairs: Sequence[Pair]) -> tuple[int, int, int, int]:
    """How often both are right, only the first, only the second, and neither."""
    kinds = [*pairs]
    return (
        kinds.count((True, True)),
        kinds.count((True, False)),
        kinds.count((False, True)),
        kinds.count((False, False)),
    )


def _correlation(both: int, first: int, second: int, neither: int) -> float:
    """Phi, towards 0 by half a pair where it is positive."""
    margins = (both + first) * (second + neither) * (both + second) * (first + neither)
    if not margins:
        return 0.0
    cross, half = both * neither - first * second, (both + first + second + neither) / 2
    if cross > 0:
        cross = max(0.0, cross - half)
    return cross / sqrt(margins)


def _joined(one: float, other: float, phi: float) -> float:
    return sqrt(max(0.0, one * one - 2 * phi * one * other + other * other))
