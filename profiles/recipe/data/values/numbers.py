"""Values that are numbers or say when: counts, money, quantities, dates, times, time stamps."""

from longctx.profiles.recipe.data.values.draws import Draws, one_of
from longctx.profiles.recipe.data.words import words

NUMBERS, ORDINALS, UNITS = words("numbers"), words("ordinals"), words("units")
COINS = ["dollars", "euros", "pounds", "crowns", "francs", "marks", "yen", "rupees"]
PERIODS = ["minutes", "hours", "days", "weeks", "months", "years", "seconds"]
MONTHS, DAYS = words("months"), words("days")
HOURS = words("numbers")[:10]
ORDINAL_ENDS = {1: "st", 2: "nd", 3: "rd", 21: "st", 22: "nd", 23: "rd"}


class Numbers(Draws):
    """Makes numbers, in digits or words, with or without a unit."""

    make_ordinal = one_of(ORDINALS)

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
        """A percentage."""
        sign = self.pick(["%", " percent", " per cent", "%"])
        return f"{self.rng.randint(1, 99)}{self.pick(['', '', f'.{self.rng.randint(1, 9)}'])}{sign}"

    def make_money(self) -> str:
        """A sum of money."""
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

    def make_count(self) -> str:
        """A count in figures."""
        return str(self.rng.randint(2, 10 ** self.rng.randint(1, 4)))

    def make_few(self) -> str:
        """A small number in figures."""
        return str(self.rng.randint(2, 40))


class Dates(Draws):
    """Makes dates and times in many forms."""

    make_day, make_month = one_of(DAYS), one_of(MONTHS)

    def make_year(self) -> str:
        """A year."""
        return str(self.rng.randint(1100, 2089))

    def make_date(self) -> str:
        """A date in one of many forms."""
        day, month, year = self.rng.randint(1, 28), self.pick(MONTHS), self.rng.randint(1500, 2079)
        end = ORDINAL_ENDS.get(day, "th")
        number = MONTHS.index(month) + 1
        return self.pick(
            [
                f"{day} {month} {year}",
                f"{month} {day}, {year}",
                f"{month} {day}",
                f"{day} {month}",
                f"the {day}{end} of {month}",
                f"{month} {day}{end}",
                f"{year}-{number:02}-{day:02}",
                f"{day:02}/{number:02}/{year}",
                f"{day:02}.{number:02}.{year}",
                f"{month} {year}",
            ]
        )

    def make_time(self) -> str:
        """A time of day."""
        hour, minute = self.rng.randint(1, 12), self.rng.randint(0, 59)
        return self.pick(
            [
                f"{self.rng.randint(0, 23):02}:{minute:02}",
                f"{hour}:{minute:02} {self.pick(['am', 'pm', 'a.m.', 'p.m.'])}",
                f"{hour} o'clock",
                f"half past {self.pick(HOURS)}",
                f"{hour} {self.pick(['am', 'pm'])}",
            ]
        )

    def make_stamp(self) -> str:
        """A log's time stamp."""
        r = self.rng.randint
        clock = f"{r(0, 23):02}:{r(0, 59):02}:{r(0, 59):02}"
        date = f"{r(2010, 2034)}-{r(1, 12):02}-{r(1, 28):02}"
        return self.pick(
            [
                f"{date} {clock}",
                f"{date}T{clock}Z",
                f"{self.pick(MONTHS)[:3]} {r(1, 28):2} {clock}",
                f"{date}T{clock}.{r(0, 999):03}Z",
            ]
        )
