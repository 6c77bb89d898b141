"""Needles as a task for whoever compares methods: one haystack, with so many needles in it."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from longctx.core.measure.case import Case, Task
from longctx.core.measure.haystack import Builder
from longctx.core.measure.niah.laying import Needles, make_cases
from longctx.core.measure.niah.scoring import score
from longctx.core.measure.niah.variants import variant
from longctx.core.measure.prose import read_prose

MAX_NEW_TOKENS = 64  # a UUID is 36 characters


def task(name: str | None = None) -> Task:
    """A variant of needles as a task.

    Args:
        name: of the variant; None: pass keys and numbers.

    Raises:
        UsageError: there is no such variant.
    """
    variant(name)
    told = f"niah-{name}" if name else "niah"
    return Task(told, partial(_make, name), score, MAX_NEW_TOKENS, together=True)


def _make(name: str | None, tokenizer: Any, length: int, count: int, seed: int) -> Iterator[Case]:
    """One haystack with `count` needles, evenly spaced, and a question for each.

    Raises:
        UsageError: a length too short for them, or too many of them.
        LongctxError: the tokenizer gives no exact length.
    """
    chosen, makers = variant(name)
    needles = Needles(replace(chosen, at_once=1), makers, depths=count, seed=seed)
    for laid in make_cases(Builder(tokenizer, read_prose()), needles, length):
        yield laid.case
