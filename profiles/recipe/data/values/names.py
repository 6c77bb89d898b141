"""Values that name somebody or something: people, places, institutions, titles, streets.

Names come from word lists, from the books and from syllables, so that none is seen often.
"""

import string

from longctx.profiles.recipe.data.values.draws import Draws
from longctx.profiles.recipe.data.words import phrases, words

GIVEN, TOWNS, PLACE_ENDS = words("given"), words("towns"), words("place_ends")
TITLES, FIRMS = words("titles"), phrases("firms")
FRONTS = ["Port", "New", "Upper", "Saint", "North", "East", "Fort", "Lake"]
LAND_ENDS = ["ia", "land", "stan", "ana", "or", "mark", "istan"]
WAYS = ["Street", "Road", "Lane", "Avenue", "Square", "Alley", "Hill"]


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
        """A person, named in one of several ways."""
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
