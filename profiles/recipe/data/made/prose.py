"""Prose of no importance, for facts to hide in where the caller brings none.

A paragraph is told of a few people and things, sentence after sentence. Knows nothing of questions.
"""

from longctx.profiles.recipe.data.facts.slots import Filling
from longctx.profiles.recipe.data.made.texts import texts
from longctx.profiles.recipe.data.values.every import Values

SENTENCES = texts("prose.txt")


def paragraph(values: Values) -> list[str]:
    """Sentences about the same few people and things."""
    people = values.make_first(), values.make_last()
    chosen = values.rng.sample(SENTENCES, values.rng.randint(2, 7))
    found = []
    for sentence in chosen:
        filling = Filling(values, {"first": people[0], "last": people[1]})
        found.append(filling.fill(sentence))
    return found
