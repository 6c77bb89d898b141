"""Values in words: names of people, places, institutions and works, things, phrases, trades.

Names come from word lists, the books and syllables, so that none is seen often. Most other words
come from the books.
"""

import string

from longctx.profiles.recipe.data.values.draws import Draws, of_pool, one_of
from longctx.profiles.recipe.data.words import phrases, words

GIVEN, TOWNS, PLACE_ENDS = words("given"), words("towns"), words("place_ends")
TITLES, FIRMS = words("titles"), phrases("firms")
FRONTS = ["Port", "New", "Upper", "Saint", "North", "East", "Fort", "Lake"]
LAND_ENDS = ["ia", "land", "stan", "ana", "or", "mark", "istan"]
WAYS = ["Street", "Road", "Lane", "Avenue", "Square", "Alley", "Hill"]
COLOURS, MATERIALS = words("colours"), words("materials")
FOODS, ANIMALS = words("foods"), words("animals")
JOBS, RELATIONS = words("jobs"), words("relations")
PLACES = phrases("places")
SHADES = ["dark", "pale", "light", "deep", "bright", "dull"]


class Names(Draws):
    """Makes names of people, places and institutions."""

    def make_first(self) -> str:
        """A given name."""
        chance = self.rng.random()
        if chance < 0.4:
            return self.pick(GIVEN)
        return self.word("names") if chance < 0.75 else self.syllables(1, 2).capitalize()

    def make_last(self) -> str:
        """A surname."""
        return (
            self.word("surnames") if self.rng.random() < 0.65 else self.syllables(1, 3).capitalize()
        )

    def make_person(self) -> str:
        """A person's name in one of several forms."""
        chance = self.rng.random()
        if chance < 0.5:
            return f"{self.make_first()} {self.make_last()}"
        if chance < 0.7:
            return self.make_first()
        if chance < 0.85:
            return f"{self.pick(TITLES)} {self.make_last()}"
        return f"{self.make_first()} {self.pick(string.ascii_uppercase)}. {self.make_last()}"

    def make_city(self) -> str:
        """A town."""
        chance = self.rng.random()
        if chance < 0.35:
            return self.pick(TOWNS)
        if chance < 0.55:
            return self.word("places")
        made = self.syllables(1, 2).capitalize()
        if chance < 0.85:
            return made + self.pick(PLACE_ENDS)
        return f"{self.pick(FRONTS)} {made}"

    def make_land(self) -> str:
        """A country or region."""
        return self.syllables(1, 2).capitalize() + self.pick(LAND_ENDS)

    def make_org(self) -> str:
        """A company or institution."""
        chance = self.rng.random()
        name = self.make_last() if chance < 0.5 else self.word("nouns").capitalize()
        if chance > 0.85:
            return f"the {self.word('adjectives').capitalize()} {name} Society"
        return f"{name} {self.pick(FIRMS)}"

    def make_name(self) -> str:
        """A proper name of one made-up word: a ship, a star, a village, a product."""
        return self.syllables(1, 3).capitalize()

    def make_title(self) -> str:
        """A work's title."""
        return self.pick(
            [
                f"The {self.word('adjectives').capitalize()} {self.word('nouns').capitalize()}",
                f"{self.word('nouns').capitalize()} of the {self.word('nouns').capitalize()}",
                f"A {self.word('nouns').capitalize()} for {self.make_first()}",
                f"The {self.word('nouns').capitalize()} and the {self.word('nouns').capitalize()}",
            ]
        )

    def make_street(self) -> str:
        """A street."""
        return f"{self.make_last()} {self.pick(WAYS)}"


class Words(Draws):
    """Makes words and phrases."""

    make_noun, make_adj = of_pool("nouns"), of_pool("adjectives")
    make_verb = of_pool("verbs")  # one that takes an object
    make_plural = of_pool("plurals")
    make_clause = of_pool("clauses")  # a piece of a sentence
    make_material, make_relation = one_of(MATERIALS), one_of(RELATIONS)

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

    def make_action(self) -> str:
        """Something to do: carry the lamp to the river."""
        end = f" {self.pick(['to', 'near', 'under', 'with'])} the {self.make_noun()}"
        deed = f"{self.make_verb()} the {self.make_thing()}"
        return deed + end if self.rng.random() < 0.6 else deed

    def make_color(self) -> str:
        """A colour."""
        front = f"{self.pick(SHADES)} " if self.rng.random() < 0.3 else ""
        return front + self.pick(COLOURS)

    def make_food(self) -> str:
        """Something to eat, sometimes an odd one."""
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

    def make_spot(self) -> str:
        """A place where a thing is."""
        return f"{self.pick(PLACES)} the {self.make_thing()}"

    def make_illness(self) -> str:
        """What somebody died of."""
        return self.pick(
            [
                f"{self.make_adj()} fever",
                f"fall from a {self.make_noun()}",
                f"kick of a {self.pick(['horse', 'mule', 'cow', 'ox', 'donkey'])}",
                f"drowned in the {self.make_noun()}",
                f"{self.make_adj()} cough",
                "old age",
                f"struck by a {self.make_noun()}",
                f"wound from a {self.make_noun()}",
                f"eating {self.make_adj()} {self.make_food()}",
            ]
        )
