"""Word pools for values, from a list, where the caller has none from books.

Knows nothing of what the words are used for.
"""

import random
from functools import cache
from pathlib import Path

import yaml

from longctx.profiles.recipe.data.values.draws import Pools

LISTED = Path(__file__).with_name("pools.yaml")
PIECES = {"tails": 4000, "clauses": 4000, "phrases": 4000}


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


def _written(pattern: str, pools: Pools, rng: random.Random) -> str:
    """A pattern with words for its parts."""
    for part, pool in (("{n}", "nouns"), ("{a}", "adjectives"), ("{p}", "plurals")):
        while part in pattern:
            pattern = pattern.replace(part, rng.choice(pools[pool]), 1)
    return pattern
