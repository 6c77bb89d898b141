"""Values that say when: years, dates, weekdays, months, times of day, time stamps of logs."""

from longctx.profiles.recipe.data.values.draws import Draws
from longctx.profiles.recipe.data.words import words

MONTHS, DAYS = words("months"), words("days")
HOURS = words("numbers")[:10]
ORDINAL_ENDS = {1: "st", 2: "nd", 3: "rd", 21: "st", 22: "nd", 23: "rd"}


class Dates(Draws):
    """Makes dates and times in many forms."""

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

    def make_day(self) -> str:
        """A weekday."""
        return self.pick(DAYS)

    def make_month(self) -> str:
        """A month."""
        return self.pick(MONTHS)

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
