"""The tasks that methods are compared on, by name: needles, and RULER's that need no file."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from typing import Any

from longctx.core.common.errors import UsageError
from longctx.core.measure.case import Case, Task
from longctx.core.measure.eval.ruler.making import Materials, sample_words
from longctx.core.measure.eval.ruler.tasks import tasks as ruler_tasks
from longctx.core.measure.haystack import Builder
from longctx.core.measure.niah.laying import NeedleChoice, make_cases
from longctx.core.measure.niah.scoring import score
from longctx.core.measure.niah.variants import names, variant
from longctx.core.measure.prose import read_prose

MAX_NEW_TOKENS = 64  # for an answer about needles: a UUID has 36 characters


@cache
def known() -> dict[str, Task]:
    """All tasks by name; `niah` is pass keys and numbers, `niah-NAME` another variant."""
    hidden = [needles(name) for name in (None, *names())]
    made = ruler_tasks(Materials(read_prose(None), sample_words()), {})
    return {task.name: task for task in hidden} | made


def find(name: str) -> Task:
    """The task of a name.

    Raises:
        UsageError: there is no such task; names those there are.
    """
    if name not in known():
        raise UsageError(f"unknown task {name!r}", "", f"Known: {', '.join(sorted(known()))}.")
    return known()[name]


def needles(name: str | None = None) -> Task:
    """A variant of needles as a task.

    Args:
        name: the variant's; None: pass keys and numbers.

    Raises:
        UsageError: there is no such variant.
    """
    variant(name)
    told = f"niah-{name}" if name else "niah"
    return Task(told, partial(_make, name), score, MAX_NEW_TOKENS, together=True)


def _make(name: str | None, tokenizer: Any, length: int, count: int, seed: int) -> Iterator[Case]:
    """One haystack with `count` needles, evenly spaced, and a question for each.

    Raises:
        UsageError: too short a length for them, or too many needles.
        LongctxError: the tokenizer gives no exact length.
    """
    chosen, makers = variant(name)
    hidden = NeedleChoice(replace(chosen, at_once=1), makers, depths=count, seed=seed)
    for laid in make_cases(Builder(tokenizer, read_prose()), hidden, length):
        yield laid.case
