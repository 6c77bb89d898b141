"""Several runs of a measurement: the one in the middle, the least and the most, and failures."""

from dataclasses import dataclass, field

import pytest

from longctx.core.measure.bench.spread import of_runs


@dataclass(frozen=True)
class Row:
    """Two figures."""

    seconds: float | None
    rate: float | None = None
    failed: str = ""
    spread: dict = field(default_factory=dict)


def measured(rows, runs):
    """What comes of these rows, and how many were made."""
    left = list(rows)
    return of_runs(lambda: left.pop(0), runs, "seconds", ("rate",)), len(rows) - len(left)


@pytest.mark.parametrize(
    ("seconds", "middle"), [([3, 1, 2], 2), ([4, 2, 3, 1], 2), ([5, 5], 5), ([1, 9, 3, 2, 4], 3)]
)
def test_the_run_in_the_middle_is_kept_whole(seconds, middle):
    rows = [Row(s, 10 / s) for s in seconds]
    row, made = measured(rows, len(rows))
    assert (row.seconds, row.rate, made) == (middle, 10 / middle, len(rows))
    assert row.spread["seconds"] == (min(seconds), max(seconds))
    assert row.spread["rate"] == (10 / max(seconds), 10 / min(seconds))


def test_one_run_has_no_spread():
    row, made = measured([Row(3, 1), Row(4, 1)], 1)
    assert (row, made) == (Row(3, 1), 1)


def test_what_fails_is_not_measured_again():
    failure = Row(None, None, "out of memory")
    assert measured([failure, Row(1, 1)], 3) == (failure, 1)
    row, made = measured([Row(3, 1), failure, Row(4, 1)], 3)
    assert (row, made) == (Row(3, 1), 2)
    row, made = measured([Row(3, 1), Row(4, 2), failure, Row(4, 1)], 4)
    assert (row.seconds, row.spread["rate"], made) == (3, (1, 2), 3)
