"""What fills the slots of a frame: a value of every kind, a new one each time.

The files beside this one make the kinds: names and words, numbers and dates, codes. A slot's name
may end in a digit: {person2} is another person. Knows nothing of sentences.
"""

import random
import string
from collections.abc import Callable

from longctx.profiles.recipe.data.values.codes import Codes, Computers
from longctx.profiles.recipe.data.values.draws import Pools
from longctx.profiles.recipe.data.values.numbers import Dates, Numbers


class Values(Codes, Computers, Numbers, Dates):
    """Makes values from a random source.

    Attributes:
        makers: the slots that it fills, each with the `make_` method that fills it.
    """

    def __init__(self, pools: Pools, rng: random.Random):
        super().__init__(pools, rng)
        self.makers: dict[str, Callable[[], str]] = {
            name.removeprefix("make_"): getattr(self, name)
            for name in dir(self)
            if name.startswith("make_")
        }

    def make(self, slot: str) -> str:
        """A value for a slot such as `person` or `person2`.

        Raises:
            KeyError: there is no such slot.
        """
        return self.makers[slot.rstrip(string.digits)]()
