"""Some of many cases, always the same ones; all of them where TESTS_WHOLE=1 (`make test-whole`)."""

import os
import random
from collections import Counter
from collections.abc import Iterable
from itertools import combinations, product
from typing import TypeVar

WHOLE = bool(os.environ.get("TESTS_WHOLE"))
Case = TypeVar("Case")


def sampled(cases: Iterable[Case], count: int) -> list[Case]:
    """So many of the cases, in their order: the first, the last, and others drawn by a fixed seed.

    Args:
        cases: all of them.
        count: how many at most, 2 or more.
    """
    every = [*cases]
    if WHOLE or len(every) <= count:
        return every
    drawn = random.Random(7).sample(range(1, len(every) - 1), count - 2)
    return [every[index] for index in (0, *sorted(drawn), len(every) - 1)]


def covering(*axes: Iterable, meet: int = 2) -> list[tuple]:
    """Combinations of the axes' values, in their order, so many that the values have met.

    Args:
        axes: values of each parameter.
        meet: every so many values of different axes are in one combination; 1: every value is in
            one, and those that come together change from one to the next.
    """
    axes = tuple([*axis] for axis in axes)
    every = [*product(*(range(len(axis)) for axis in axes))]
    chosen = {*every} if WHOLE else _met(every, meet)
    values = [tuple(axis[at] for axis, at in zip(axes, one, strict=True)) for one in every]
    return [case for one, case in zip(every, values, strict=True) if one in chosen]


def _met(every: list[tuple[int, ...]], meet: int) -> set[tuple[int, ...]]:
    """Combinations in which all values have met: the one with most that is new, one by one.

    Of those that bring as much, one whose values were seldom taken.
    """
    parts = {one: {*combinations(enumerate(one), meet)} for one in every}
    left, taken, chosen = set().union(*parts.values()), Counter(), set()
    while left:
        best = max(
            every,
            key=lambda one: (len(parts[one] & left), -sum(taken[at] for at in enumerate(one))),
        )
        chosen.add(best)
        left -= parts[best]
        taken.update(enumerate(best))
    return chosen
