"""Differences of paired rates."""

import pytest
from public_sets.compare import difference, p_value


def pairs(both: int, first: int, second: int, neither: int) -> list[tuple[bool, bool]]:
    kinds = [(True, True), (True, False), (False, True), (False, False)]
    return [
        kind
        for kind, n in zip(kinds, (both, first, second, neither), strict=True)
        for _ in range(n)
    ]


def test_the_interval_is_newcombes():
    """R. G. Newcombe (1998), an example of table II, method 10."""
    assert difference(pairs(36, 12, 2, 0)) == pytest.approx((0.2, 0.0569, 0.3404), abs=6e-5)


def test_the_other_way_round_the_difference_has_the_other_sign():
    mean, low, high = difference(pairs(9, 5, 1, 4))
    assert difference(pairs(9, 1, 5, 4)) == pytest.approx((-mean, -high, -low))


@pytest.mark.parametrize("counts", [(5, 0, 0, 0), (0, 0, 0, 5), (3, 0, 0, 2), (0, 3, 0, 0)])
def test_extremes_have_an_interval_around_the_difference(counts):
    mean, low, high = difference(pairs(*counts))
    assert -1 <= low <= mean <= high <= 1


def test_the_p_value_is_mcnemars():
    assert p_value(pairs(4, 5, 1, 2)) == pytest.approx(2 * (1 + 6) / 64)
    assert p_value(pairs(4, 0, 0, 2)) == 1
