"""Values of logs, tables and papers, beside those of the recipe's frames."""

import string

from longctx.profiles.recipe.data.values.every import Values

HEX = "0123456789abcdef"
SHORT_ENDS = ["Ltd", "GmbH", "& Co", "Trading", "Supplies", "Services"]


class MadeValues(Values):
    """Makes every value of the recipe, and some that only made-up documents need."""

    def make_rid(self) -> str:
        """The id of a request, job or message."""
        size = self.rng.choice([6, 8, 8, 12])
        front = self.pick(["", "", "", "req-", "r", "q-"])
        return front + self.letters(size, HEX)

    def make_qid(self) -> str:
        """A mail server's queue id."""
        return self.letters(self.rng.choice([10, 11]), "0123456789ABCDEF")

    def make_ms(self) -> str:
        """A duration in milliseconds."""
        return str(self.rng.randint(2, 30000))

    def make_secs(self) -> str:
        """A duration in seconds."""
        return f"{self.rng.randint(0, 900)}.{self.digits(1, 3)}"

    def make_bytes(self) -> str:
        """A size in bytes."""
        return str(self.rng.randint(120, 10 ** self.rng.randint(3, 8)))

    def make_login(self) -> str:
        """A user's name on a machine."""
        first, last = self.make_first().lower(), self.make_last().lower()
        return self.pick(
            [first, last, first[0] + last, f"{first}.{last}", first + self.digits(1, 2)]
        )

    def make_full(self) -> str:
        """A person's given name and surname."""
        return f"{self.make_first()} {self.make_last()}"

    def make_firm(self) -> str:
        """A firm without an article."""
        return f"{self.make_last()} {self.pick(SHORT_ENDS)}"

    def make_sku(self) -> str:
        """The number of an article, with its letters."""
        return f"{self.letters(2)}-{self.digits(4, 4)}"

    def make_ticket(self) -> str:
        """The number of a ticket, order or invoice."""
        return self.pick(["", "#", "INC-", "TK", "SR-"]) + self.digits(4, 6)

    def make_price(self) -> str:
        """A price with cents."""
        return f"{self.rng.randint(0, 900)}.{self.rng.randint(0, 99):02}"

    def make_euros(self) -> str:
        """A sum of money with its sign."""
        amount = self.rng.randint(20, 10 ** self.rng.randint(2, 5))
        return self.pick("€£$") + f"{amount:,}"

    def make_clock(self) -> str:
        """A time of day in 24 hours."""
        return f"{self.rng.randint(6, 22):02}:{self.rng.randint(0, 59):02}"

    def make_dated(self) -> str:
        """A day and a month."""
        return f"{self.rng.randint(1, 28)} {self.make_month()}"

    def make_iso(self) -> str:
        """A date in figures."""
        r = self.rng.randint
        return f"{r(1995, 2034)}-{r(1, 12):02}-{r(1, 28):02}"

    def make_unit(self) -> str:
        """The name of a service or module."""
        end = self.pick(["d", "-worker", "-api", "-sync", "", "-agent", "_service", "ctl"])
        return self.make_noun() + end

    def make_disk(self) -> str:
        """A disk or its mount."""
        letter = self.pick(string.ascii_lowercase)
        return self.pick([f"/dev/sd{letter}{self.digits(1, 1)}", f"/mnt/{self.make_noun()}"])

    def make_half(self) -> str:
        """A percentage in figures."""
        return f"{self.rng.randint(1, 99)}%"

    def make_reason(self) -> str:
        """Why a mail was not taken."""
        return self.pick(
            [
                "mailbox full",
                "no such user here",
                "message too large",
                "relay not permitted",
                f"blocked by {self.make_domain()}",
                f"rule {self.make_code()}",
                "greylisted",
                "host name not found",
                f"attachment {self.make_file()} not allowed",
            ]
        )

    def make_mins(self) -> str:
        """A number of minutes."""
        return str(self.rng.randint(2, 240))

    def make_temp(self) -> str:
        """Degrees."""
        return str(self.rng.randint(18, 120))
