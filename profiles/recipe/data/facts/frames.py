"""The sentence frames of training: how a fact is stated and how it is asked for.

`FACTS`, `REWORDED` (questions in other words than the statement), `FREELY` (no word in common),
`CHAINS` and `LINKS` keep the frames of one kind of fact together, read from the text files beside
this one. `FRAMES` lists every statement and question written out, the grammar's included, for
comparison with other frames.
"""

import itertools
from pathlib import Path

from longctx.profiles.recipe.data.facts.grammar import patterns
from longctx.profiles.recipe.data.facts.templates import Frame, frames_of, read_facts
from longctx.profiles.recipe.data.words import sentences

LEADS, TURNS, EVERY = sentences("leads"), sentences("turns"), sentences("every")

FACTS = read_facts(Path(__file__).with_name("frames.txt"))
REWORDED = tuple(
    fact
    for part in ("people", "world")
    for fact in read_facts(Path(__file__).with_name(f"reworded-{part}.txt"))
)
FREELY = read_facts(Path(__file__).with_name("reworded-freely.txt"))
CHAINS = read_facts(Path(__file__).with_name("chains.txt"))
LINKS = read_facts(Path(__file__).with_name("links.txt"))
KINDS = (*FACTS, *REWORDED, *FREELY, *CHAINS, *LINKS, *patterns())
FRAMES = [frame for fact in KINDS for frame in frames_of(fact)]
FRAMES += [
    Frame(lead, turn) for lead, turn in itertools.zip_longest(LEADS, TURNS, fillvalue=TURNS[0])
]
FRAMES += [Frame(LEADS[0], question) for question in EVERY]
