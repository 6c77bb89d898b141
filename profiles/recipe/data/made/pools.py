"""Word pools for values: from the caller's own prose, or from a list where there is none.

Knows nothing of what the words are used for.
"""

import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import yaml

from longctx.profiles.recipe.data.values.draws import Pools

LISTED = Path(__file__).with_name("pools.yaml")
PIECES = {"tails": 4000, "clauses": 4000, "phrases": 4000}
LEAST = 200  # words of a kind that prose must give, to be used instead of the list


@cache
def listed() -> Pools:
    """The pools of the list; its patterns are written out at random, the same each time."""
    read = yaml.safe_load(LISTED.read_text("utf-8"))
    pools = {name: words.split() for name, words in read.items() if name not in PIECES}
    rng = random.Random(0)
    for name, count in PIECES.items():
        made = (_written(rng.choice(read[name]), pools, rng) for _ in range(count))
        pools[name] = list(dict.fromkeys(made))
    return pools


def pools_for(prose: Sequence[str]) -> Pools:
    """The pools that a text gives, and the list's where it gives too few."""
    from longctx.profiles.recipe.data.prepare import pools_of, words_of

    found = pools_of(words_of(text) for text in prose)
    return {
        name: words if len(words) >= LEAST else list(dict.fromkeys([*words, *listed()[name]]))
        for name, words in found.items()
    }


def _written(pattern: str, pools: Pools, rng: random.Random) -> str:
    """A pattern with words for its parts."""
    for part, pool in (("{n}", "nouns"), ("{a}", "adjectives"), ("{p}", "plurals")):
        while part in pattern:
            pattern = pattern.replace(part, rng.choice(pools[pool]), 1)
    return pattern
