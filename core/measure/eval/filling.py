"""Documents of at most a given length: pieces at given places, filled up with units of text.

A unit is a sentence, a line or a word. The whole text is tokenized each time, because the token
counts of its parts need not add up.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

from longctx.core.common.errors import UsageError
from longctx.core.tokens.safe_splits import plain_backend

Count = Callable[[str], int]
FIRST = 16  # units to try first
GROWTH = 256  # the largest factor from one try to the next


def counter(tokenizer: Any) -> Count:
    """A function that counts the tokens of a text.

    Args:
        tokenizer: a fast transformers tokenizer.
    """
    backend = plain_backend(tokenizer.backend_tokenizer)
    return lambda text: len(backend.encode_batch_fast([text], add_special_tokens=False)[0])


class UnitStream:
    """Keeps the units of an iterator, so that the first ones can be taken again."""

    def __init__(self, units: Iterator[str]):
        self._units, self._known = units, []

    def first(self, count: int) -> list[str]:
        """The first `count` units, or all if there are fewer."""
        self._known += islice(self._units, max(0, count - len(self._known)))
        return self._known[:count]


def spread(pieces: Sequence[str], units: Sequence[str], places: Sequence[float]) -> list[str]:
    """Units with pieces among them.

    Args:
        pieces: pieces to insert, in this order.
        units: the filling.
        places: for each piece, the share of the units before it, from 0 to 1, ascending.
    """
    parts: list[str] = []
    done = 0
    for piece, place in zip(pieces, places, strict=True):
        until = min(len(units), int(place * (len(units) + 1)))
        parts += [*units[done:until], piece]
        done = until
    return [*parts, *units[done:]]


def fill(
    render: Callable[[int], str], count: Count, length: int, name: str, most: int | None = None
) -> str:
    """The longest text within a length.

    Args:
        render: makes a text with a number of units; more units give more tokens.
        count: counts the tokens of a text.
        length: tokens that the text may have.
        name: the task's, for the error.
        most: most units; None: unlimited.

    Returns:
        A text of at most `length` tokens; one more unit would make it longer than that.

    Raises:
        UsageError: the text is too long without any filling.
    """
    low, high = (0, count(render(0))), None
    if low[1] > length:
        raise UsageError(
            f"a document of {length:,} tokens is too short for {name}",
            f"without any filling it has {low[1]:,}",
            "Give larger --lengths or other --tasks.",
        )
    empty, units = low[1], FIRST
    while (most is None or low[0] < most) and (high is None or high[0] - low[0] > 1):
        units = units if most is None else min(units, most)
        now = units, count(render(units))
        low, high = (low, now) if now[1] > length else (now, high)
        known = high or low
        units = _next(low, high, length, (known[1] - empty) / known[0])
    return render(low[0])


def _next(low: tuple[int, int], high: tuple[int, int] | None, length: int, rate: float) -> int:
    """Units to try next, extrapolated from the bound nearer to the length."""
    short = length - low[1]
    if high is None:
        far = GROWTH * max(low[0], 1)
        return low[0] + max(1, min(far, int(short / rate) if rate > 0 else far))
    over = high[1] - length
    guess = low[0] + int(short / rate) if short <= over else high[0] - int(over / rate) - 1
    return min(max(guess, low[0] + 1), high[0] - 1)
