"""Tables of annual reports and papers: what is in rows and columns, and its names in questions.

A figure that two tables of a report have is the same in both. Knows nothing of layouts.
"""

import math
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import yaml

from longctx.profiles.recipe.data.facts.phrasing import choose
from longctx.profiles.recipe.data.made.grids import Grid, Row

MONEY = "money"
ENDS = ["December 31", "December 31", "December 31", "June 30", "September 30", "March 31"]
QUARTERS = {  # the ends of a fiscal year's quarters
    "December 31": ["March 31", "June 30", "September 30", "December 31"],
    "June 30": ["September 30", "December 31", "March 31", "June 30"],
    "September 30": ["December 31", "March 31", "June 30", "September 30"],
    "March 31": ["June 30", "September 30", "December 31", "March 31"],
}
ORDINALS = ["first", "second", "third", "fourth"]
UNITS = {"thousands": 1, "millions": 1, "dollars": 0}


@dataclass(frozen=True)
class Line:
    """A row of a statement as it is listed."""

    sign: str
    label: str
    names: str = ""
    figure: str = MONEY
    weight: float = 1.0
    spend: bool = False


@dataclass(frozen=True)
class Statement:
    """A table of a report as it is listed."""

    columns: str
    title: str
    lines: list[Line]


@cache
def listed() -> dict[str, Statement]:
    """The tables of reports."""
    found: dict[str, Statement] = {}
    for text in Path(__file__).with_name("statements.txt").read_text("utf-8").split("\n\n"):
        lines = text.strip().splitlines()
        if lines and lines[0].startswith("["):
            name, _, columns = lines[0][1:].partition("] ")
            rows = [parsed(line) for line in lines[2:]]
            found[name] = Statement(columns, lines[1][2:], rows)
    return found


def parsed(line: str) -> Line:
    """A listed row."""
    sign, rest = line[0], line[2:]
    rest, _, names = rest.partition(" => ")
    names, _, tags = (names or "").partition(" | ")
    if not names:
        rest, _, tags = (
            rest.rpartition(" | ") if re.search(r" \| [\w. ]+$", rest) else (rest, "", "")
        )
    figure, weight, spend = MONEY, 1.0, False
    for tag in tags.split():
        if tag == "spend":
            spend = True
        elif tag.startswith("x"):
            weight = float(tag[1:])
        else:
            figure = tag
    return Line(sign, rest, names, figure, weight, spend)


@cache
def words() -> dict[str, list[str]]:
    """The words of reports and papers."""
    return yaml.safe_load(Path(__file__).with_name("statements.yaml").read_text("utf-8"))


@dataclass(frozen=True)
class Column:
    """A column: the key of what it is about, its heading rows, how questions name it."""

    key: tuple
    heads: tuple[str, ...]
    whens: tuple[str, ...]
    noun: str = "{row}"
    figure: str = ""
    year: int = 0


@dataclass(frozen=True)
class Named:
    """What a cell is called in questions.

    Attributes:
        concept: what it is, the same for the same figure in another table.
        names: of the row.
        column: its column.
        spend: it is spent.
        group: the rows that it is compared with, "segment"; empty if with none.
    """

    concept: str
    names: tuple[str, ...]
    column: Column
    figure: str = MONEY
    spend: bool = False
    group: str = ""


@dataclass
class Table:
    """A grid with the names of its cells, by row and column; None: not to be asked for."""

    name: str
    title: str
    grid: Grid
    cells: list[list[Named | None]]
    notes: list[str] = field(default_factory=list)
    measure: str = ""  # of all rows, in words


class Books:
    """The figures of a company for some years, and how it writes them."""

    def __init__(self, rng: random.Random):
        self.rng = rng
        self.end = rng.choice(ENDS)
        self.year = rng.randint(2004, 2026)
        self.unit = rng.choice(["thousands", "thousands", "millions", "dollars"])
        self.interim = rng.random() < 0.4
        self.quarter = rng.randrange(3)
        self.rising = rng.random() < 0.3
        self.count = rng.choice([2, 2, 2, 3, 3, 3, 4, 5])
        low, high = {"thousands": (3.0, 5.6), "millions": (2.3, 4.4), "dollars": (5, 7.4)}[
            self.unit
        ]
        self.scale = 10 ** rng.uniform(low, high)
        self.decimals = 1 if self.unit == "millions" and rng.random() < 0.5 else 0
        self.minus = rng.choice(["({})"] * 7 + ["-{}", "\u2212{}"])
        self.nil = rng.choice(["—", "—", "—", "-", "\u2013"])
        self.dollars = rng.choice(["all", "some", "some", "none"])
        self.ledger: dict[tuple, float] = {}
        self.bases: dict[str, float] = {}
        self.resolved: dict[str, str] = {}

    # Columns

    def years(self) -> list[int]:
        """The years of columns."""
        found = [self.year - at for at in range(2 if self.interim else self.count)]
        return found[::-1] if self.rising else found

    def flow(self) -> list[Column]:
        """Columns of periods."""
        rng = self.rng
        if self.interim:
            return self.interim_flow()
        shape = rng.choice(["over", "over", "plain", "plain", "whole", "fiscal"])
        shape = "over" if shape == "whole" and self.count > 3 else shape
        columns = []
        for year in self.years():
            heads = {
                "over": (f"Year{'s' if self.count > 1 else ''} Ended {self.end},", str(year)),
                "plain": (str(year),),
                "whole": (f"Year ended {self.end}, {year}",),
                "fiscal": (f"Fiscal {year}",),
            }[shape]
            whens = (
                f"in {year}",
                f"in {year}",
                f"in fiscal {year}",
                f"in fiscal year {year}",
                f"for the year ended {self.end}, {year}",
                f"for {year}",
                f"during {year}",
                f"in FY{year}",
                f"for the {year} fiscal year",
            )
            columns.append(Column(("year", year), heads, whens, year=year))
        return columns

    def interim_flow(self) -> list[Column]:
        """Columns of three months, and of the months so far."""
        end = QUARTERS[self.end][self.quarter]
        spans = [("Three", self.quarter)]
        if self.quarter and self.rng.random() < 0.5:
            spans.append((["", "Six", "Nine"][self.quarter], -1))
        columns = []
        for months, quarter in spans:
            for year in self.years():
                whens = [f"for the {months.lower()} months ended {end}, {year}"] * 2
                whens.append(f"in the {months.lower()} months ended {end}, {year}")
                whens.append(f"during the {months.lower()} months to {end}, {year}")
                if quarter >= 0:
                    whens += [
                        f"in the quarter ended {end}, {year}",
                        f"for the quarter ended {end}, {year}",
                    ]
                    if self.end == "December 31":
                        whens += [
                            f"in the {ORDINALS[quarter]} quarter of {year}",
                            f"in Q{quarter + 1} {year}",
                        ]
                heads = (f"{months} Months Ended {end},", str(year))
                columns.append(Column((months, year), heads, tuple(whens), year=year))
        return columns

    def point(self) -> list[Column]:
        """Columns of balance sheet dates."""
        if self.interim:
            end = QUARTERS[self.end][self.quarter]
            prior = (
                self.year
                if self.end != "December 31" and end.split()[0] in ("September", "December")
                else self.year - 1
            )
            dates = [
                (end, self.year),
                (self.end, prior if (self.end, prior) != (end, self.year) else prior - 1),
            ]
        else:
            dates = [(self.end, year) for year in self.years()[:3]]
        plain = not self.interim and self.rng.random() < 0.5
        columns = []
        for end, year in dates:
            heads = (str(year),) if plain else (f"{end}, {year}",)
            whens = [f"as of {end}, {year}", f"at {end}, {year}", f"on {end}, {year}"]
            if not self.interim:
                whens += [
                    f"at the end of {year}",
                    f"at year-end {year}",
                    f"in {year}",
                    f"at the end of fiscal {year}",
                ]
            columns.append(Column((end, year), heads, tuple(whens), year=year))
        return columns

    def quarters(self) -> list[Column]:
        """Columns of the quarters of a year."""
        named = self.rng.random() < 0.5
        columns = []
        for at, end in enumerate(QUARTERS[self.end]):
            year = (
                self.year
                if at == 3 or self.end == "December 31"
                else self.year - (QUARTERS[self.end].index("December 31") >= at)
            )
            heads = (f"{ORDINALS[at].title()} Quarter",) if named else (f"{end}, {year}",)
            whens = [f"for the quarter ended {end}, {year}", f"in the quarter ended {end}, {year}"]
            if named:
                whens = [
                    f"in the {ORDINALS[at]} quarter of {self.year}",
                    f"in Q{at + 1} {self.year}",
                    f"for the {ORDINALS[at]} quarter of fiscal {self.year}",
                ]
                heads = (f"Fiscal {self.year}", *heads)
            columns.append(Column(("quarter", at), heads, tuple(whens)))
        return columns

    def due(self) -> list[Column]:
        """Columns of times when payments are due."""
        heads = [
            ("Total", "in total"),
            ("Less than 1 year", "due in less than one year"),
            ("1-3 years", "due in one to three years"),
            ("3-5 years", "due in three to five years"),
            ("More than 5 years", "due after more than five years"),
        ]
        return [Column(("due", head), (head,), (when,)) for head, when in heads]

    def levels(self) -> list[Column]:
        """Columns of the levels of fair values."""
        heads = [
            ("Level 1", "at Level 1"),
            ("Level 2", "at Level 2"),
            ("Level 3", "at Level 3"),
            ("Total", "in total"),
        ]
        return [
            Column(("level", head), (head,), (when,), "fair value of {row}") for head, when in heads
        ]

    # Figures

    def near(self, name: str, drawn: float) -> float:
        """The figure, or one near that of another column of the row."""
        base = self.bases.setdefault(name, drawn)
        if base is drawn or self.rng.random() < 0.3:
            return drawn
        return round(base * self.rng.lognormvariate(0, 0.2), self.decimals) or drawn

    def amount(self, weight: float = 1.0) -> float:
        """A sum of money."""
        value = self.scale * weight * 0.1 * self.rng.lognormvariate(0, 0.8)
        return max(round(value, self.decimals), 1)

    def other(self, figure: str) -> float:
        """A figure that is no sum of the statement's unit."""
        rng = self.rng
        makers: dict[str, Callable[[], float]] = {
            "eps": lambda: round(rng.uniform(-4, 9), 2),
            "dps": lambda: round(rng.uniform(0.05, 2.5), 2),
            "price": lambda: round(rng.uniform(1, 150), 2),
            "pct": lambda: round(rng.uniform(0.3, 60), 1),
            "spct": lambda: round(rng.uniform(-15, 15), 1),
            "years": lambda: round(rng.uniform(1, 12), 1),
            "count": lambda: rng.randint(40, 90_000),
            "shares": lambda: (
                rng.randint(2_000, 900_000) * (1000 if self.unit == "dollars" else 1)
                + rng.randint(0, 999)
            ),
            "fewshares": lambda: rng.randint(100, 9_000),
            "any": lambda: self.amount() * rng.choice([1, 1, -1]),
            "neg": lambda: -self.amount(),
        }
        return makers[figure]() if figure in makers else self.amount()

    def written(self, value: float, figure: str, first: bool = False) -> str:
        """A figure as its cell has it."""
        if not value:
            return self.nil
        if figure in ("eps", "dps", "price"):
            text, sign = f"{abs(value):.2f}", "$" if self.dollars != "none" else ""
        elif figure in ("pct", "spct", "years"):
            text, sign = f"{abs(value):.1f}", ""
        elif figure in ("count", "shares", "fewshares"):
            text, sign = f"{abs(value):,.0f}", ""
        else:
            text = f"{abs(value):,.{self.decimals}f}"
            sign = "$" if self.dollars == "all" or (self.dollars == "some" and first) else ""
        text = self.minus.format(text) if value < 0 else text
        return sign + text + ("%" if figure in ("pct", "spct") else "")

    def once(self, key: tuple, value: float) -> float:
        """The figure that is booked for a key, at first this one."""
        return self.ledger.setdefault(key, value)

    def chosen(self, template: str) -> str:
        """A template with its alternatives settled, the same each time."""
        if template not in self.resolved:
            self.resolved[template] = " ".join(choose(template, self.rng).split())
        return self.resolved[template]

    # Tables

    def statement(self, name: str) -> Table:
        """A table as it is listed, without some of its rows."""
        rng, listing = self.rng, listed()[name]
        columns = getattr(self, listing.columns if listing.columns != "quarter" else "quarters")()
        lines = self.kept(listing.lines)
        rows: list[Row] = []
        cells: list[list[Named | None]] = []
        columns_values = [self.column(lines, column) for column in columns]
        if listing.columns in ("due", "levels"):
            place = next(at for at, column in enumerate(columns) if column.key[1] == "Total")
            for at in range(len(lines)):
                columns_values[place][at] = 0.0
                columns_values[place][at] = round(sum(values[at] for values in columns_values), 1)
        for at, line in enumerate(lines):
            label, names = self.names(line)
            if line.sign == "#":
                rows.append(Row(label, [""] * len(columns)))
                cells.append([None] * len(columns))
                continue
            first = at == 0 or line.sign in "s=" or lines[at - 1].sign == "#"
            values = [values[at] for values in columns_values]
            if label.lower().startswith("net loss") and any(value >= 0 for value in values):
                label = "Net income (loss)" + label[8:]
            if "loss before" in label.lower() and max(values) > 0:
                label = "Income (loss) before income taxes"
            written = [self.written(value, line.figure, first) for value in values]
            mark = rng.choice([" (1)", " (a)", "*", " (2)"]) if rng.random() < 0.05 else ""
            rows.append(Row(label + mark, written, 0 if line.sign in "s=" else 1))
            named = tuple(names)
            cells.append(
                [
                    Named(names[0], named, column, line.figure, line.spend) if names else None
                    for column in columns
                ]
            )
        return Table(
            name, self.chosen(choose(listing.title, rng)), Grid(self.heads(columns), rows), cells
        )

    def kept(self, lines: Sequence[Line]) -> list[Line]:
        """Most rows, without headings that have none below."""
        part = self.rng.uniform(0.5, 1)
        found = [
            line
            for line in lines
            if line.sign in "#s=" or line.weight >= 5 or self.rng.random() < part
        ]
        kept = [
            line
            for at, line in enumerate(found)
            if line.sign != "#" or (at + 1 < len(found) and found[at + 1].sign not in "#s=")
        ]
        if not any(line.sign not in "#s=" for line in kept):
            return list(lines)
        return kept if self.rng.random() < 0.8 else [line for line in kept if line.sign != "#"]

    def names(self, line: Line) -> tuple[str, list[str]]:
        """The label of a row, and its names in questions."""
        label = self.chosen(line.label)
        low = label[0].lower() + label[1:] if not label[:2].isupper() else label
        names = (
            (line.names or "{low}").replace("{low}", low).replace("{tail}", low.split(" of ")[-1])
        )
        if names == "-":
            return label, []
        return label, names.split("|")

    def column(self, lines: Sequence[Line], column: Column) -> list[float]:
        """The figures of a column, row by row."""
        values: list[float] = []
        total = part = 0.0
        for line in lines:
            if line.sign == "#":
                part = 0.0
                values.append(0.0)
                continue
            _, names = self.names(line)
            key = (names[0] if names else line.label, column.key)
            if line.sign in "s=":
                value = self.once(key, round(part if line.sign == "s" else total, 1))
                part = 0.0 if line.sign == "s" else part
            else:
                drawn = (
                    self.amount(line.weight) if line.figure == MONEY else self.other(line.figure)
                )
                if line.figure == "eps" and ("net income (loss)", column.key) in self.ledger:
                    drawn = math.copysign(drawn, self.ledger["net income (loss)", column.key])
                if line.sign == "*" or (line.sign == "n" and line.figure == "any"):
                    drawn *= self.rng.choice([1, -1])
                drawn = (
                    self.near(key[0], drawn) if line.figure in (MONEY, "shares", "count") else drawn
                )
                drawn = 0.0 if self.rng.random() < 0.03 and line.figure == MONEY else drawn
                drawn = -drawn if line.sign == "-" else drawn
                value = self.once(key, drawn)
                if line.sign != "n":
                    part += value
                    total += -value if line.sign == "~" else value
            values.append(value)
        return values

    def heads(self, columns: Sequence[Column], corner: str = "") -> list[list[str]]:
        """The heading rows of columns; a heading over several stands over the first."""
        depth = max(len(column.heads) for column in columns)
        found = []
        for level in range(depth):
            cells = [column.heads[level] for column in columns]
            if level < depth - 1:
                cells = [
                    cell if not at or cells[at - 1] != cell else "" for at, cell in enumerate(cells)
                ]
            found.append(["", *cells])
        if self.rng.random() < 0.25:
            unit = "In dollars" if self.unit == "dollars" else f"(in {self.unit})"
            found[-1][0] = corner or unit
        return found

    def breakdown(self) -> Table:
        """Revenue or another measure by segment, country or product."""
        rng = self.rng
        group = rng.choice(["segment", "segment", "country", "product"])
        pool = {"segment": "segments", "country": "countries", "product": "products"}[group]
        measures = {
            "segment": [
                "revenue",
                "operating income",
                "depreciation and amortization",
                "capital expenditures",
                "total assets",
                "goodwill",
            ],
            "country": ["revenue", "long-lived assets", "net sales"],
            "product": ["revenue", "net sales"],
        }[group]
        measure = rng.choice(measures)
        point = measure in ("total assets", "goodwill", "long-lived assets")
        columns = self.point() if point else self.flow()
        things = rng.sample(words()[pool], rng.randint(3, 6))
        rows, cells = [], []
        for at, thing in enumerate(things):
            names = {
                "segment": (
                    f"{measure} of the {thing} segment",
                    f"{thing} segment {measure}",
                    f"{measure} in the {thing} segment",
                ),
                "country": (
                    f"{measure} in {thing}" if not point else f"{measure} located in {thing}",
                    f"{thing} {measure}",
                ),
                "product": (f"{measure} from {thing.lower()}", f"{thing.lower()} {measure}"),
            }[group]
            values = [
                self.once((names[0], column.key), self.near(names[0], self.amount(2)))
                for column in columns
            ]
            rows.append(Row(thing, [self.written(value, MONEY, at == 0) for value in values]))
            cells.append([Named(names[0], names, column, group=group) for column in columns])
        totals = [
            sum(self.ledger[cells[at][number].concept, column.key] for at in range(len(things)))
            for number, column in enumerate(columns)
        ]
        rows.append(Row("Total", [self.written(total, MONEY, True) for total in totals]))
        cells.append([None] * len(columns))
        title = {
            "segment": "by segment",
            "country": "by geographic area",
            "product": "by product line",
        }[group]
        return Table(
            "breakdown",
            f"{measure.capitalize()} {title}",
            Grid(self.heads(columns), rows),
            cells,
            measure=measure,
        )

    def across(self) -> Table:
        """Measures of one year, a segment in each column."""
        rng = self.rng
        year = self.year
        things = rng.sample(words()["segments"], rng.randint(3, 5))
        columns = [
            Column(
                (thing, year),
                (thing,),
                (f"in {year}", f"in fiscal {year}", f"for {year}"),
                f"{{row}} of the {thing} segment",
                year=year,
            )
            for thing in things
        ]
        lines = [
            "Revenue",
            "Intersegment sales",
            "Operating income",
            "Depreciation and amortization",
            "Capital expenditures",
            "Total assets",
            "Segment profit margin",
        ]
        rows, cells = [], []
        for at, line in enumerate(
            line for line in lines if rng.random() < 0.75 or line == "Revenue"
        ):
            figure = "pct" if "margin" in line else MONEY
            values = []
            for column in columns:
                drawn = self.amount(2) if figure == MONEY else self.other(figure)
                values.append(
                    self.once((column.noun.format(row=line.lower()), ("year", year)), drawn)
                )
            rows.append(Row(line, [self.written(value, figure, at == 0) for value in values]))
            cells.append(
                [Named(line.lower(), (line.lower(),), column, figure) for column in columns]
            )
        heads = self.heads(columns, f"Year ended {self.end}, {year}")
        heads[-1][0] = f"Year ended {self.end}, {year}"
        return Table("across", "Segment information", Grid(heads, rows), cells)

    def maturities(self) -> Table:
        """Payments by year."""
        rng = self.rng
        what, names = rng.choice(
            [
                ("Future maturities of long-term debt", "long-term debt maturing"),
                (
                    "Future minimum lease payments under operating leases",
                    "operating lease payments due",
                ),
                (
                    "Future minimum lease payments under finance leases",
                    "finance lease payments due",
                ),
                (
                    "Estimated future amortization of intangible assets",
                    "estimated amortization of intangible assets",
                ),
                ("Expected future benefit payments", "expected benefit payments"),
            ]
        )
        last = self.year + rng.randint(3, 5)
        column = Column(("amount",), (rng.choice(["Amount", "Total", "Payments", ""]),), ("",))
        rows, cells, total = [], [], 0.0
        for year in range(self.year + 1, last + 1):
            value = self.amount()
            total += value
            rows.append(Row(str(year), [self.written(value, MONEY, year == self.year + 1)]))
            cells.append(
                [
                    Named(
                        f"{names} {year}",
                        (f"{names} in {year}", f"{names} in fiscal {year}"),
                        column,
                    )
                ]
            )
        value = self.amount(2)
        after = f"{names} after {last}"
        rows.append(Row("Thereafter", [self.written(value, MONEY)]))
        cells.append([Named(after, (after,), column)])
        rows.append(Row("Total", [self.written(total + value, MONEY, True)]))
        whole = names.removesuffix(" due").removesuffix(" maturing")
        short = whole.removeprefix("estimated ").removeprefix("expected ")
        cells.append(
            [
                Named(
                    f"total {whole}",
                    (f"total {short} in the schedule of future payments",),
                    column,
                )
            ]
        )
        heads = (
            [["Years ending " + self.end, *column.heads]]
            if column.heads[0] or rng.random() < 0.5
            else []
        )
        return Table("maturities", what, Grid(heads, rows), cells)

    def options(self) -> Table:
        """Share options or units that were granted, exercised and forfeited."""
        rng = self.rng
        what = rng.choice(["options", "restricted stock units", "warrants"])
        price = (
            "weighted average exercise price"
            if what != "restricted stock units"
            else "weighted average grant date fair value"
        )
        columns = [
            Column(("number", what), (f"Number of {what}",), ("",), "number of {row}", "count"),
            Column(("price", what), (price.capitalize(),), ("",), f"{price} of {{row}}", "price"),
        ]
        if rng.random() < 0.5:
            columns.append(
                Column(
                    ("life", what),
                    ("Remaining contractual term (years)",),
                    ("",),
                    "remaining contractual term of {row}",
                    "years",
                )
            )
        begin = (
            f"January 1, {self.year}"
            if self.end == "December 31"
            else f"{self.end}, {self.year - 1}"
        )
        lines = [
            (f"Outstanding at {begin}", f"{what} outstanding at {begin}"),
            ("Granted", f"{what} granted"),
            (
                "Exercised" if what != "restricted stock units" else "Vested",
                f"{what} {'exercised' if what != 'restricted stock units' else 'vested'}",
            ),
            ("Forfeited" if rng.random() < 0.5 else "Cancelled", ""),
            (
                f"Outstanding at {self.end}, {self.year}",
                f"{what} outstanding at {self.end}, {self.year}",
            ),
            (
                f"Exercisable at {self.end}, {self.year}",
                f"{what} exercisable at {self.end}, {self.year}",
            ),
        ]
        rows, cells = [], []
        for label, name in (
            lines[: rng.choice([5, 6])] if what != "restricted stock units" else lines[:5]
        ):
            name = name or f"{what} {label.lower()}"
            drawn = {
                "count": lambda: rng.randint(1_000, 3_000_000),
                "price": lambda: self.other("price"),
                "years": lambda: self.other("years"),
            }
            values = [drawn[column.figure]() for column in columns]
            if label in ("Exercised", "Vested", "Forfeited", "Cancelled"):
                values[0] = -values[0]
            rows.append(
                Row(
                    label,
                    [
                        self.written(value, column.figure)
                        for value, column in zip(values, columns, strict=True)
                    ],
                )
            )
            cells.append([Named(name, (name,), column, column.figure) for column in columns])
        return Table(
            "options", f"Activity of {what} in {self.year}", Grid(self.heads(columns), rows), cells
        )


def drawn(middle: float, rng: random.Random, digits: int) -> float:
    """A value near the middle, no percentage above 100."""
    value = max(0.1, rng.gauss(middle, middle / 8))
    return round(min(value, 99.0 - rng.random()) if middle <= 80 else value, digits)


def scientific(rng: random.Random, used: set[str]) -> Table:
    """Methods or samples in rows, measures in columns, none of those used before."""
    study = rng.random() < 0.35
    pool = [one for one in words()["properties" if study else "measures"] if one not in used]
    measures = rng.sample(pool, rng.randint(2, 5))
    used.update(measures)
    names: list[str] = []
    while len(names) < rng.randint(4, 8):
        name = rng.choice(words()["samples" if study else "methods"]) + (
            "" if study else rng.choice(words()["variants"])
        )
        if name not in names:
            names.append(name)
    sets = [] if study or rng.random() < 0.5 else rng.sample(words()["datasets"], rng.randint(2, 3))
    if sets:
        measures = measures[: rng.choice([1, 2])]
    columns = []
    for of in sets or [""]:
        for measure in measures:
            noun = measure.partition(" (")[0]
            noun = (
                noun
                if noun[1:2].isupper()
                or noun[-1].isdigit()
                or noun[0] == "p"
                or "@" in noun
                or noun in ("mAP",)
                else noun[0].lower() + noun[1:]
            )
            noun = "number of parameters" if noun == "parameters" else noun
            whens = (f"on {of}", f"on the {of} dataset", f"for {of}") if of else ("",)
            heads = (
                (of, measure)
                if of and len(measures) > 1
                else (f"{of} {measure}" if of else measure,)
            )
            columns.append(Column((of, measure), heads, whens, f"{noun} of {{row}}"))
    shares = rng.random() < 0.4
    digits = rng.choice([1, 1, 2, 2, 3])
    centres = [rng.uniform(10, 90) if rng.random() < 0.8 else rng.uniform(1, 900) for _ in columns]
    values = [[drawn(middle, rng, digits) for middle in centres] for _ in names]
    mark = rng.choice(["", "", "*", "**", "†"])
    rows, cells = [], []
    for at, name in enumerate(names):
        texts = []
        for number, value in enumerate(values[at]):
            text = f"{value:.{digits}f}"
            text += f" ± {rng.uniform(0.05, 3):.{digits}f}" if shares else ""
            if mark and value == max(row[number] for row in values):
                text = f"**{text}**" if mark == "**" else text + mark
            texts.append("-" if rng.random() < 0.03 else text)
        rows.append(Row(name, texts))
        kind = "sample" if study else "method"
        cells.append([Named(name, (name,), column, "plain", group=kind) for column in columns])
    depth = max(len(column.heads) for column in columns)
    heads = [
        [
            (
                ""
                if level < depth - 1
                else rng.choice(["Model", "Method", ""] if not study else ["Sample", "Group", ""])
            ),
            *[column.heads[level] for column in columns],
        ]
        for level in range(depth)
    ]
    if depth > 1:
        heads[0] = [
            cell if not at or heads[0][at - 1] != cell else "" for at, cell in enumerate(heads[0])
        ]
    title = rng.choice(
        [
            "Results on the test set",
            "Main results",
            "Comparison with earlier work",
            "Ablation study",
        ]
        if not study
        else [
            "Properties of the samples",
            "Measured values by group",
            "Characteristics at baseline",
        ]
    )
    return Table("study", title, Grid(heads, rows), cells)


def renamed(column: Column, old: int, new: int) -> Column:
    """The column with another year in its names."""
    return replace(column, whens=tuple(when.replace(str(old), str(new)) for when in column.whens))
