"""Values that are numbers: counts, shares, sums of money, quantities, lengths of time."""

from longctx.profiles.recipe.data.values.draws import Draws
from longctx.profiles.recipe.data.words import words

NUMBERS, ORDINALS, UNITS = words("numbers"), words("ordinals"), words("units")
COINS = ["dollars", "euros", "pounds", "crowns", "francs", "marks", "yen", "rupees"]
PERIODS = ["minutes", "hours", "days", "weeks", "months", "years", "seconds"]


class Numbers(Draws):
    """Makes numbers, in digits or words, with or without a unit."""

    def make_num(self) -> str:
        """A number of three to nine digits."""
        return self.digits(3, 9)

    def make_big(self) -> str:
        """A count with or without thousands separators."""
        number = self.rng.randint(120, 10 ** self.rng.randint(3, 7))
        return f"{number:,}" if self.rng.random() < 0.5 else str(number)

    def make_small(self) -> str:
        """A small count, in digits or words."""
        return str(self.rng.randint(2, 99)) if self.rng.random() < 0.6 else self.pick(NUMBERS)

    def make_int(self) -> str:
        """An integer for a setting."""
        return self.digits(1, 5)

    def make_decimal(self) -> str:
        """A decimal number."""
        return f"{self.rng.randint(0, 999)}.{self.digits(1, 3)}"

    def make_percent(self) -> str:
        """A share."""
        sign = self.pick(["%", " percent", " per cent", "%"])
        return f"{self.rng.randint(1, 99)}{self.pick(['', '', f'.{self.rng.randint(1, 9)}'])}{sign}"

    def make_money(self) -> str:
        """A sum."""
        number = self.make_big()
        chance = self.rng.random()
        if chance < 0.5:
            return self.pick("$€£") + number
        return f"{number} {self.pick(COINS)}"

    def make_measure(self) -> str:
        """A quantity with its unit."""
        small, big = self.make_small(), self.make_big()
        decimal = f"{self.rng.randint(1, 90)}.{self.rng.randint(1, 9)}"
        return f"{self.pick([small, big, decimal])} {self.pick(UNITS)}"

    def make_span(self) -> str:
        """A length of time."""
        return f"{self.make_small()} {self.pick(PERIODS)}"

    def make_ordinal(self) -> str:
        """first, second ..."""
        return self.pick(ORDINALS)
