"""Draws that all values are made of: a word of a pool, digits, syllables, letters.

The pools are word lists found in the books (pools.json). Knows nothing of what a draw stands for.
"""

import random
import string
from collections.abc import Callable, Sequence

from longctx.profiles.recipe.data.words import words

Pools = dict[str, list[str]]

ONSETS, VOWELS, CODAS = words("onsets"), words("vowels"), words("codas")


class Draws:
    """Draws from a random source and the word pools."""

    def __init__(self, pools: Pools, rng: random.Random):
        self.pools, self.rng = pools, rng

    def pick(self, choices: Sequence[str]) -> str:
        """One of the choices."""
        return choices[int(self.rng.random() * len(choices))]

    def word(self, pool: str) -> str:
        """A word of a pool; all words are equally likely."""
        return self.pick(self.pools[pool])

    def digits(self, low: int, high: int) -> str:
        """A number of `low` to `high` digits, the first not zero."""
        size = self.rng.randint(low, high)
        return str(self.rng.randint(10 ** (size - 1), 10**size - 1))

    def syllables(self, low: int, high: int) -> str:
        """A made-up word."""
        parts = [self.pick(ONSETS) + self.pick(VOWELS) for _ in range(self.rng.randint(low, high))]
        return "".join(parts) + (self.pick(CODAS) if self.rng.random() < 0.6 else "")

    def letters(self, size: int, alphabet: str = string.ascii_uppercase) -> str:
        """Random characters."""
        return "".join(self.pick(alphabet) for _ in range(size))


def of_pool(name: str) -> Callable[[Draws], str]:
    """A method that draws a word of a pool."""
    return lambda draws: draws.word(name)


def one_of(choices: Sequence[str]) -> Callable[[Draws], str]:
    """A method that draws one of some words."""
    return lambda draws: draws.pick(choices)
