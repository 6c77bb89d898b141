"""The sentence frames of training: how a fact is stated and how it is asked for.

`FACTS`, `REWORDED` (questions in other words than the statement), `FREELY` (no word in common),
`KEYED` (about a thing known by its number or code), `CHAINS` and `LINKS` keep the frames of one
kind of fact together, read from the text files beside this one. `FRAMES` lists every statement and
question written out, the grammar's included, for comparison with other frames.
"""

import itertools
from pathlib import Path

from longctx.profiles.recipe.data.facts.grammar import patterns
from longctx.profiles.recipe.data.facts.templates import Fact, Frame, frames_of, read_facts
from longctx.profiles.recipe.data.words import sentences

LEADS, TURNS, EVERY = sentences("leads"), sentences("turns"), sentences("every")


def _of_files(*names: str) -> tuple[Fact, ...]:
    paths = [Path(__file__).with_name(f"{name}.txt") for name in names]
    return tuple(fact for path in paths for fact in read_facts(path))


FACTS = _of_files("frames")
REWORDED = _of_files("reworded-people", "reworded-world")
FREELY = _of_files("reworded-freely", "reworded-loosely")
KEYED = _of_files("keyed")
CHAINS = _of_files("chains", "chains-of-people")
LINKS = _of_files("links")
KINDS = (*FACTS, *REWORDED, *FREELY, *KEYED, *CHAINS, *LINKS, *patterns())
FRAMES = [frame for fact in KINDS for frame in frames_of(fact)]
FRAMES += [
    Frame(lead, turn) for lead, turn in itertools.zip_longest(LEADS, TURNS, fillvalue=TURNS[0])
]
FRAMES += [Frame(LEADS[0], question) for question in EVERY]
