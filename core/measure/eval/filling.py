"""Documents that are filled up to a length: pieces at given places among units of filling.

A unit is what a text can be lengthened by: a sentence, a line, a word. The whole text is measured,
so that no sum of parts has to be exact. Knows nothing of models and of what the pieces mean.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

from longctx.core.common.errors import UsageError
from longctx.core.tokens.safe_splits import plain_backend

Count = Callable[[str], int]
FIRST = 16  # units that are tried first
GROWTH = 256  # times more, at most, in one step


def counter(tokenizer: Any) -> Count:
    """What counts the tokens of a text.

    Args:
        tokenizer: a fast transformers tokenizer.
    """
    backend = plain_backend(tokenizer.backend_tokenizer)
    return lambda text: len(backend.encode_batch_fast([text], add_special_tokens=False)[0])


class Stream:
    """An endless sequence, of which the first units are always the same."""

    def __init__(self, units: Iterator[str]):
        self._units, self._known = units, []

    def first(self, count: int) -> list[str]:
        """The first `count` units, or all where there are fewer."""
        self._known += islice(self._units, max(0, count - len(self._known)))
        return self._known[:count]


def spread(pieces: Sequence[str], units: Sequence[str], places: Sequence[float]) -> list[str]:
    """Units with pieces among them.

    Args:
        pieces: what is put in, in this order.
        units: the filling.
        places: for each piece the share of the units before it, from 0 to 1, ascending.
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
    """The longest text that is not over a length.

    Args:
        render: from a number of units the text; with more units it has more tokens.
        count: tokens of a text.
        length: tokens that the text may have.
        name: of what is made, for the error.
        most: units there are; None: any number.

    Returns:
        A text of at most `length` tokens; with one unit more it would be longer.

    Raises:
        UsageError: without any filling the text is longer already.
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
    """Units to try: reckoned from the nearer of what is too little and what is too much."""
    short = length - low[1]
    if high is None:
        far = GROWTH * max(low[0], 1)
        return low[0] + max(1, min(far, int(short / rate) if rate > 0 else far))
    over = high[1] - length
    guess = low[0] + int(short / rate) if short <= over else high[0] - int(over / rate) - 1
    return min(max(guess, low[0] + 1), high[0] - 1)
