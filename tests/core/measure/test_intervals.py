"""Wilson's interval against its defining equation."""

from math import sqrt

import pytest

from longctx.core.measure.intervals import Z, wilson


@pytest.mark.parametrize(("hits", "total"), [(1, 2), (9, 10), (45, 50), (330, 333)])
def test_its_ends_are_z_standard_errors_from_the_rate(hits, total):
    for end in wilson(hits, total):
        assert abs(hits / total - end) == pytest.approx(Z * sqrt(end * (1 - end) / total))


def test_nothing_and_everything():
    assert wilson(0, 10) == (pytest.approx(0), pytest.approx(0.2775, abs=1e-4))
    assert wilson(10, 10) == (pytest.approx(0.7225, abs=1e-4), pytest.approx(1))
