"""Some of many cases, always the same ones; all of them where TESTS_WHOLE=1 (`make test-whole`)."""

import os
import random
from collections.abc import Iterable
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
