"""The sentence frames of training: how a fact is stated and how it is asked for.

`FACTS`, `REWORDED` (questions in other words than the statement), `CHAINS` and `LINKS` keep the
frames of one kind of fact together, read from the text files beside this one. `FRAMES` lists every
statement and question written out, those of the grammar too, to be compared with other frames.
"""

import itertools
from pathlib import Path

from longctx.profiles.tiny.recipe.grammar import patterns
from longctx.profiles.tiny.recipe.templates import Frame, frames_of, read_facts

LEADS = (
    "For the record: {statement}",
    "Note: {statement}",
    "Remember this: {statement}",
    "One more thing: {statement}",
    "As it happens, {statement}",
    "It is worth knowing this: {statement}",
    "I was told this: {statement}",
    "A note in the margin says: {statement}",
    "({statement})",
    "* {statement}",
    "# {statement}",
    "// {statement}",
    "{statement} That is all there is to say about it.",
    "{statement} Nobody asked why.",
    "{statement} So it was.",
)
TURNS = (
    "According to the text, {question}",
    "Tell me: {question}",
    "Please answer: {question}",
    "{question} Answer from the document.",
    "In the document, {question}",
    "{question} Be brief.",
    "I forgot. {question}",
    "Quick question: {question}",
)
EVERY = (
    "What are all the {attr}s of {entity}?",
    "List every {attr} of {entity}.",
    "Which {attr}s does {entity} have?",
    "Name all {attr}s given for {entity}.",
    "{entity} has several values as {attr}: which?",
)

FACTS = read_facts(Path(__file__).with_name("frames.txt"))
REWORDED = tuple(
    fact
    for part in ("people", "world")
    for fact in read_facts(Path(__file__).with_name(f"reworded-{part}.txt"))
)
CHAINS = read_facts(Path(__file__).with_name("chains.txt"))
LINKS = read_facts(Path(__file__).with_name("links.txt"))
KINDS = (*FACTS, *REWORDED, *CHAINS, *LINKS, *patterns())
FRAMES = [frame for fact in KINDS for frame in frames_of(fact)]
FRAMES += [
    Frame(lead, turn) for lead, turn in itertools.zip_longest(LEADS, TURNS, fillvalue=TURNS[0])
]
FRAMES += [Frame(LEADS[0], question) for question in EVERY]
