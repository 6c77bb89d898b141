"""Values in plain words: things, colours, food, trades, phrases, pieces of sentences.

Most words are the books' own. Knows nothing of names and numbers.
"""

from longctx.profiles.recipe.data.values.draws import Draws
from longctx.profiles.recipe.data.words import phrases, words

COLOURS, MATERIALS = words("colours"), words("materials")
FOODS, ANIMALS = words("foods"), words("animals")
JOBS, RELATIONS = words("jobs"), words("relations")
PLACES = phrases("places")
SHADES = ["dark", "pale", "light", "deep", "bright", "dull"]


class Words(Draws):
    """Makes words and phrases."""

    def make_noun(self) -> str:
        """A noun of the books."""
        return self.word("nouns")

    def make_adj(self) -> str:
        """An adjective of the books."""
        return self.word("adjectives")

    def make_verb(self) -> str:
        """A verb of the books that takes an object."""
        return self.word("verbs")

    def make_plural(self) -> str:
        """Several things."""
        return self.word("plurals")

    def make_word(self) -> str:
        """One word."""
        return self.word(self.pick(["nouns", "nouns", "adjectives", "verbs"]))

    def make_thing(self) -> str:
        """A thing without its article: brass lamp."""
        front = self.pick([self.make_adj, self.make_color, self.make_material, self.make_noun])()
        return self.make_noun() if self.rng.random() < 0.25 else f"{front} {self.make_noun()}"

    def make_phrase(self) -> str:
        """A value of several words."""
        chance = self.rng.random()
        if chance < 0.35:
            return self.word("phrases")
        if chance < 0.7:
            return " ".join(self.make_word() for _ in range(self.rng.randint(2, 5)))
        joint = self.pick(["and", "of", "with", "under"])
        return f"{self.make_adj()} {self.make_noun()} {joint} {self.make_noun()}"

    def make_clause(self) -> str:
        """A value that is a piece of a sentence."""
        return self.word("clauses")

    def make_action(self) -> str:
        """What one may do: carry the lamp to the river."""
        end = f" {self.pick(['to', 'near', 'under', 'with'])} the {self.make_noun()}"
        deed = f"{self.make_verb()} the {self.make_thing()}"
        return deed + end if self.rng.random() < 0.6 else deed

    def make_color(self) -> str:
        """A colour."""
        front = f"{self.pick(SHADES)} " if self.rng.random() < 0.3 else ""
        return front + self.pick(COLOURS)

    def make_food(self) -> str:
        """Something to eat, at times an odd one."""
        chance = self.rng.random()
        if chance < 0.6:
            return self.pick(FOODS)
        return f"{self.word('nouns' if chance < 0.8 else 'adjectives')} {self.pick(FOODS)}"

    def make_animal(self) -> str:
        """An animal."""
        if self.rng.random() >= 0.4:
            return self.pick(ANIMALS)
        front = self.make_color() if self.rng.random() < 0.5 else self.make_adj()
        return f"{front} {self.pick(ANIMALS)}"

    def make_job(self) -> str:
        """A trade."""
        return (
            self.pick(JOBS) if self.rng.random() < 0.7 else f"{self.make_noun()} {self.pick(JOBS)}"
        )

    def make_material(self) -> str:
        """What a thing is made of."""
        return self.pick(MATERIALS)

    def make_relation(self) -> str:
        """A person's relation to another."""
        return self.pick(RELATIONS)

    def make_spot(self) -> str:
        """Where a thing lies."""
        return f"{self.pick(PLACES)} the {self.make_thing()}"
