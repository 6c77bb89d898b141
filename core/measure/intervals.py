"""Confidence intervals of rates."""

from math import sqrt

Z = 1.959964  # standard deviations that hold 95% of a normal distribution


def wilson(hits: float, total: int) -> tuple[float, float]:
    """The 95% interval of a rate (E. B. Wilson, 1927, without continuity correction).

    Args:
        hits: hits in `total` trials; or a sum of scores from 0 to 1, for which the interval is too
            wide, because scores vary less than hits and misses with the same mean.
        total: at least one.

    Returns:
        The lower and upper end, between 0 and 1.
    """
    rate, z = hits / total, Z * Z / total
    middle = (rate + z / 2) / (1 + z)
    reach = Z * sqrt((rate * (1 - rate) + z / 4) / total) / (1 + z)
    return max(0.0, middle - reach), min(1.0, middle + reach)
