"""Needles of several steps: facts of two steps, and names linked to one another.

The texts of such a needle are hidden apart; only all of them give the answer.
"""

import itertools

from longctx.profiles.recipe.data.facts import frames
from longctx.profiles.recipe.data.facts.phrasing import choose, stated, turned
from longctx.profiles.recipe.data.facts.slots import Filling
from longctx.profiles.recipe.data.needles.needle import Needle
from longctx.profiles.recipe.data.values.every import Values


class ChainNeedles:
    """Makes needles of several steps."""

    def __init__(self, values: Values):
        self.values, self.rng = values, values.rng

    def chain(self, count: int) -> list[Needle]:
        """`count` facts of two steps, from one frame."""
        fact = self.rng.choice(frames.CHAINS)
        statements = [choose(statement, self.rng) for statement in fact.statements]
        question, answer = self.rng.choice(fact.questions)
        question = choose(question, self.rng)
        found = []
        for _ in range(max(1, count)):
            filling = Filling(self.values)
            texts = tuple(stated(filling.fill(text), self.values) for text in statements)
            value = filling.fill(answer)
            holder = next((i for i, text in enumerate(texts) if value in text), 0)
            asked = turned(filling.fill(question), self.rng)
            found.append(Needle(texts, asked, value, "chain", holder))
        return found

    def links(self, count: int) -> list[Needle]:
        """`count` chains of names linked to one another, the first one to a value."""
        fact = self.rng.choice(frames.LINKS)
        first, link = (choose(statement, self.rng) for statement in fact.statements)
        question, answer = self.rng.choice(fact.questions)
        question, found = choose(question, self.rng), []
        kind = self.rng.choice(["num", "num", "int", "code", "word"])
        ordered = self.rng.random() < 0.7
        for _ in range(max(1, count)):
            names = [self.values.make_var() for _ in range(self.rng.choice([2, 2, 3, 3, 3, 4, 5]))]
            filling = Filling(self.values, dict(a=names[0], v=self.values.make(kind)))
            texts = [filling.fill(first)]
            for before, name in itertools.pairwise(names):
                filling.made.update(a=name, b=before)
                texts.append(filling.fill(link))
            asked, value = filling.fill(question), filling.fill(answer)
            if len(set(names)) == len(names):
                found.append(Needle(tuple(texts), asked, value, "links", 0, ordered))
        return found
