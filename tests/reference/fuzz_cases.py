"""What the fuzz tests share: how many cases, what was found before, and what a refusal must say.

`LONGCTX_FUZZ=100000` tries as many cases; up to 1000 they are the same ones every time.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fuzz_running import require_told
from hypothesis import HealthCheck, settings

CASES = int(os.environ.get("LONGCTX_FUZZ", "60"))
CORPUS = Path(__file__).parent.parent / "fuzz" / "corpus"
Place = tuple[Any, ...]  # keys and indices, from the outermost in

many = settings(
    max_examples=CASES,
    deadline=None,
    derandomize=CASES <= 1000,
    database=None,
    suppress_health_check=list(HealthCheck),
)


def of_corpus(pattern: str) -> Callable:
    """Gives a test, as `file`, each of the files that were found before."""
    files = sorted(CORPUS.glob(pattern))
    assert files, pattern
    return pytest.mark.parametrize("file", files, ids=lambda file: file.stem)


@contextmanager
def may_refuse(kind: type[Exception]) -> Iterator[None]:
    """Lets errors of a kind of our own pass, if they say something."""
    try:
        yield
    except kind as error:
        require_told(error)


def places(value: Any, at: Place = ()) -> Iterator[Place]:
    """Every place in nested lists and mappings."""
    yield at
    if isinstance(value, dict):
        value = list(value.items())
    elif isinstance(value, list):
        value = list(enumerate(value))
    for key, item in value if isinstance(value, list) else ():
        yield from places(item, (*at, key))


def changed(value: Any, at: Place, new: Any) -> Any:
    """The same with something else in one place."""
    if not at:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[at[0]] = changed(copy[at[0]], at[1:], new)
    return copy
