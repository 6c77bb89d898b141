"""A grammar of log files: each file draws a format, and every line fills it again.

Stands in for the logs, tables and exports that a needle may be in. Knows nothing of tokens.
"""

import json
import random
from collections.abc import Callable
from datetime import datetime, timedelta

from longctx.profiles.recipe.data.values.draws import Pools
from longctx.profiles.recipe.data.values.every import Values
from longctx.profiles.recipe.data.words import words

STAMPS = [
    "%Y-%m-%d %H:%M:%S",
    "%Y-%m-%dT%H:%M:%SZ",
    "%b %d %H:%M:%S",
    "[%d/%b/%Y:%H:%M:%S +0000]",
    "%H:%M:%S",
    "%s",
]
FIELDS, LABELS, VERBS = words("log_fields"), words("log_labels"), words("log_verbs")


class LogFile:
    """One log file: its format is drawn once; `lines` then makes as many lines as needed."""

    def __init__(self, pools: Pools, rng: random.Random):
        self.values, self.rng = Values(pools, rng), rng
        self.time = datetime(rng.randint(2005, 2033), rng.randint(1, 12), rng.randint(1, 28))
        self.stamp = rng.choice(STAMPS)
        self.pace = rng.choice([0.1, 2, 30, 600])
        self.hosts = [self.values.make("host") for _ in range(rng.randint(1, 6))]
        self.services = [self.values.make_noun() for _ in range(rng.randint(2, 9))]
        self.styles = rng.choices(
            [self.plain, self.pairs, self.access, self.table, self.object], k=rng.choice([1, 1, 2])
        )
        self.labels = rng.sample(LABELS, 4)
        self.fields = rng.choices(FIELDS, k=4)
        self.phrases = [f"{self.values.make_noun()} {rng.choice(VERBS)}" for _ in range(8)]

    def now(self) -> str:
        """The next time stamp."""
        self.time += timedelta(seconds=self.rng.expovariate(1 / self.pace))
        if self.stamp == "%s":
            return str(int(self.time.timestamp()))
        return self.time.strftime(self.stamp)

    def made(self) -> list[str]:
        """A value for each field."""
        return [self.values.make(field) for field in self.fields]

    def plain(self) -> str:
        """stamp LEVEL host service[pid]: what happened value"""
        head = f"{self.now()} {self.values.make_level()} {self.rng.choice(self.hosts)}"
        service = f"{self.rng.choice(self.services)}[{self.values.make_int()}]"
        return f"{head} {service}: {self.rng.choice(self.phrases)} {self.made()[0]}"

    def pairs(self) -> str:
        """stamp label=value ..."""
        pairs = " ".join(
            f"{label}={value}" for label, value in zip(self.labels, self.made(), strict=True)
        )
        return f"{self.now()} {self.values.make_level()} {pairs}"

    def access(self) -> str:
        """A web server's line."""
        verb, status = (
            self.rng.choice(["GET", "GET", "POST", "PUT"]),
            self.rng.choice([200, 200, 200, 304, 404, 500]),
        )
        request = f'"{verb} {self.values.make_path()} HTTP/1.1"'
        size = self.values.make_int()
        return f"{self.values.make_ip()} - - {self.now()} {request} {status} {size}"

    def table(self) -> str:
        """A row of a comma-separated table."""
        return ",".join([self.now(), *self.made()])

    def object(self) -> str:
        """A JSON object."""
        pairs = dict(zip(self.labels, self.made(), strict=True))
        return json.dumps({"time": self.now(), "service": self.rng.choice(self.services), **pairs})

    def lines(self, count: int) -> str:
        """`count` lines."""
        make: Callable[[], str]
        out = []
        for _ in range(count):
            make = self.rng.choice(self.styles)
            out.append(make())
        return "\n".join(out) + "\n"
