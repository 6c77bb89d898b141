"""Pages of annual and interim reports, and of papers with tables, made up, with questions.

The tables come from `statement_tables`, their layout from `grids`; the running text around them
says facts of its own. A question asks for a cell by its row and column, or for what a sentence
says.
"""

import re
from functools import cache
from pathlib import Path

from longctx.profiles.recipe.data.asked import AskedDocument, Question, Span
from longctx.profiles.recipe.data.facts.phrasing import choose
from longctx.profiles.recipe.data.facts.templates import SLOT, Fact, read_facts, slots
from longctx.profiles.recipe.data.made.grids import FOLIOS, Laid, Style, laid_out
from longctx.profiles.recipe.data.made.statement_tables import (
    MONEY,
    Books,
    Named,
    Table,
    listed,
    renamed,
    scientific,
    words,
)
from longctx.profiles.recipe.data.made.values import MadeValues

ABSENT = 1 / 12  # share of the questions without an answer
PAPERS = 0.2  # of the documents: scientific, not financial
NEAR = 700  # characters from the heading rows to a row's end, within which both are evidence
HEAD = re.compile(r",| \(| (?:of|from|in|for|before|per|at|by|to|on|due|net|sold|within)\b")
TRIES = 30  # for each question
MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]


@cache
def facts(name: str) -> tuple[Fact, ...]:
    """What the running text says, and how it is asked for."""
    return read_facts(Path(__file__).with_name(name))


class Filing:
    """The values of one company's report: `{slots}` of the running text."""

    def __init__(self, values: MadeValues, books: Books):
        self.values, self.rng, self.books = values, values.rng, books
        rng, pools = self.rng, words()
        root = rng.choice(pools["roots"]) + rng.choice(["", *pools["tails"]])
        self.firm = f"{root} {rng.choice(pools['ends'])}"
        self.short = rng.choice([self.firm, root, self.firm])
        self.root = root
        self.segments = rng.sample(pools["segments"], 6)
        self.products = rng.sample(pools["products"], 12)

    def fill(self, template: str, filled: dict[str, str]) -> str:
        """The template with its slots filled, new ones noted."""

        def value(slot: str) -> str:
            if slot not in filled:
                filled[slot] = self.make(slot)
                if slot == "product":
                    filled["lproduct"] = filled[slot].lower()
            return filled[slot]

        if "{product}" in template:
            value("product")
        return SLOT.sub(lambda match: value(match[1]), template)

    def make(self, slot: str) -> str:
        """A value of a slot."""
        rng, pools, year = self.rng, words(), self.books.year
        name = slot if hasattr(self, f"make_{slot}") else slot[:-1]
        if slot == "firm":
            return self.short
        years = {"year": 0, "prior": -1, "third": -2, "next": 1}
        if slot in years:
            return str(year + years[slot])
        simple = {
            "auditor": "auditors",
            "bank": "banks",
            "role": "roles",
            "state": "states",
            "exchange": "exchanges",
            "cause": "causes",
            "claim": "claims",
        }
        if slot in simple:
            return rng.choice(pools[simple[slot]])
        if slot in ("product", "lproduct"):
            found = self.products.pop() if len(self.products) > 1 else self.products[0]
            return found.lower() if slot == "lproduct" else found
        if slot == "segment":
            return self.segments.pop() if len(self.segments) > 1 else self.segments[0]
        ranges = {
            "small": (12, 480),
            "age": (31, 74),
            "life": (2, 9),
            "lifeb": (15, 45),
            "temp": (60, 1400),
        }
        if slot in ranges:
            return str(rng.randint(*ranges[slot]))
        return getattr(self, f"make_{name}")()

    def make_day(self) -> str:
        """A date of the year."""
        return f"{self.rng.choice(MONTHS)} {self.rng.randint(1, 28)}, {self.books.year}"

    def make_later(self) -> str:
        """A date in one of the next years."""
        year = self.books.year + self.rng.randint(1, 8)
        return f"{self.rng.choice(MONTHS)} {self.rng.randint(1, 28)}, {year}"

    def make_month(self) -> str:
        """A month."""
        return self.rng.choice(MONTHS)

    def make_old(self) -> str:
        """A year before."""
        return str(self.books.year - self.rng.randint(1, 25))

    def make_expire(self) -> str:
        """A year long after."""
        return str(self.books.year + self.rng.randint(9, 20))

    def make_amt(self) -> str:
        """A sum of money in words of running text."""
        rng = self.rng
        value = rng.choice([rng.uniform(1, 10), rng.uniform(1, 100), rng.uniform(100, 999)])
        return rng.choice(
            [
                f"${value:.1f} million",
                f"${value:.1f} million",
                f"${value:.2f} million",
                f"${value / 10:.1f} billion" if value > 30 else f"${value:.0f} million",
                f"${rng.randint(20_000, 990_000):,}",
                f"${rng.randint(1_000_000, 90_000_000):,}",
            ]
        )

    def make_creditsize(self) -> str:
        """The size of a credit facility."""
        size = self.rng.choice([25, 30, 50, 75, 100, 125, 150, 200, 250, 300, 500])
        return f"${size}{self.rng.choice(['', '', '.0'])} million"

    def make_rent(self) -> str:
        """A smaller sum of money."""
        return f"${self.rng.randint(15, 999) * 100:,}"

    def make_cents(self) -> str:
        """A sum per share."""
        return f"${self.rng.uniform(0.05, 9):.2f}"

    def make_pct(self) -> str:
        """A percentage."""
        rng = self.rng
        return rng.choice(
            [
                f"{rng.randint(2, 60)}%",
                f"{rng.uniform(0.5, 40):.1f}%",
                f"{rng.uniform(0.5, 9):.2f}%",
            ]
        )

    def make_num(self) -> str:
        """A count."""
        return f"{self.rng.randint(600, 10 ** self.rng.randint(4, 6)):,}"

    def make_years(self) -> str:
        """A number of years with a digit after the point."""
        return f"{self.rng.uniform(1, 4):.1f}"

    def make_ticker(self) -> str:
        """The symbol of a stock."""
        return (self.root[:2] + self.values.letters(self.rng.choice([1, 2]))).upper()

    def make_address(self) -> str:
        """An address of an office."""
        street = self.rng.choice(words()["streets"])
        front = f"{self.rng.randint(1, 9800)} {street}, "
        suite = f"Suite {self.rng.randint(100, 990)}, " if self.rng.random() < 0.4 else ""
        city = self.values.make_city()
        state = self.rng.choice(words()["states"])
        return f"{front}{suite}{city}, {state} {self.values.digits(5, 5)}"

    def make_target(self) -> str:
        """Another company."""
        pools = words()
        name = f"{self.rng.choice(pools['roots'])}{self.rng.choice(pools['tails'])}"
        return f"{name} {self.rng.choice(['Inc.', 'LLC', 'GmbH', 'Ltd.', 'Corp.'])}"

    def make_person(self) -> str:
        """A person's name."""
        return self.values.make_full()

    def make_city(self) -> str:
        """A city."""
        return self.values.make_city()

    def make_lastname(self) -> str:
        """A surname."""
        return self.values.make_last()

    def make_noun(self) -> str:
        """A thing."""
        return self.values.make_noun() if hasattr(self.values, "make_noun") else "control"

    def make_batch(self) -> str:
        """A power of two."""
        return str(2 ** self.rng.randint(4, 11))

    def make_rate(self) -> str:
        """A learning rate."""
        return self.rng.choice(["1e-4", "3e-5", "0.001", "5e-5", "2e-3", "0.0005", "0.01", "6e-4"])

    def make_gpu(self) -> str:
        """A kind of GPU."""
        return self.rng.choice(["V100", "A100", "T4", "RTX 3090", "P100", "Titan X", "H100"])

    def make_kappa(self) -> str:
        """A share in figures."""
        return f"0.{self.rng.randint(11, 93)}"

    def make_pval(self) -> str:
        """A p-value."""
        return f"0.0{self.rng.randint(1, 49):02}"

    def make_grant(self) -> str:
        """The number of a grant."""
        return f"{self.values.letters(2)}-{self.values.digits(4, 6)}"

    def make_licence(self) -> str:
        """A licence."""
        return self.rng.choice(["MIT", "Apache-2.0", "BSD-3-Clause", "GPL-3.0", "MPL-2.0"])


class Report:
    """A document while it is written."""

    def __init__(self, values: MadeValues):
        self.values, self.rng = values, values.rng
        self.paper = self.rng.random() < PAPERS
        self.books = Books(self.rng)
        self.filing = Filing(values, self.books)
        self.style = Style.drawn(self.rng)
        self.wrapped = self.rng.choice([0, 0, 72, 90, 110])
        self.text = ""
        self.cells: list[tuple[Named, Span, tuple[Span, ...], str]] = []
        self.groups: dict[tuple, list[tuple[float, str, Span, tuple[Span, ...], Named]]] = {}
        self.said: list[Question] = []
        self.used: set[str] = set()  # measures of a paper
        self.concepts: set[str] = set()
        self.names: set[str] = set()
        self.unused = list(facts("studies.txt" if self.paper else "filings.txt"))
        self.rng.shuffle(self.unused)

    def write(self) -> None:
        """Writes all parts."""
        rng = self.rng
        size = int(1600 * 4 ** rng.random())
        self.opening()
        names = self.tables()
        if "kpis" in names:  # has the number of employees
            self.unused = [fact for fact in self.unused if "employees" not in fact.statements[0]]
        while len(self.text) < size and (names or len(self.unused) > 4):
            if rng.random() < 0.55:
                self.paragraph()
            if names and rng.random() < 0.75:
                self.table(names.pop())
            if rng.random() < 0.15:
                self.put(
                    (rng.choice(FOLIOS) if not self.paper else "{}").format(rng.randint(2, 140))
                )
        if not self.cells and names:
            self.table(names.pop())
        while (len(self.said) < 3 or len(self.text) < 1000) and self.unused:
            self.paragraph()

    def put(self, text: str, end: str = "\n\n") -> int:
        """Adds a part; returns where it begins."""
        start = len(self.text)
        self.text += text + end
        return start

    def opening(self) -> None:
        """The first lines."""
        books, rng = self.books, self.rng
        if self.paper:
            self.put(
                rng.choice(
                    [
                        "4 Experiments",
                        "5. Results",
                        "Results and discussion",
                        "Materials and methods",
                        "Evaluation",
                    ]
                )
            )
            return
        kind = "QUARTERLY REPORT" if books.interim else "ANNUAL REPORT"
        sector = rng.choice(words()["sectors"])
        parts = [
            self.filing.firm.upper(),
            f"{self.filing.firm} is engaged in {sector}.",
            kind,
            rng.choice(
                [
                    "NOTES TO FINANCIAL STATEMENTS",
                    "FORM 10-Q" if books.interim else "FORM 10-K",
                    "PART II",
                ]
            ),
        ]
        for part in rng.sample(parts, rng.randint(1, 3)):
            self.put(part)

    def tables(self) -> list[str]:
        """The tables of this document, the first last."""
        if self.paper:
            return ["study", "study"]
        names = [*listed(), *["breakdown"] * 3, "across", "maturities", "options"]
        main = [*["income"] * 3, *["balance"] * 2, *["cash"] * 2]
        chosen = self.rng.sample([*names, *main], 7)
        if "breakdown" in chosen:
            chosen = [name for name in chosen if name != "across"]
        if self.books.interim:
            chosen = [name for name in chosen if name not in ("quarters", "across")]
        return list(dict.fromkeys(chosen))[:5]

    def table(self, name: str) -> None:
        """A table with a lead and a title."""
        rng = self.rng
        if name == "study":
            table = scientific(rng, self.used)
        elif name in listed():
            table = self.books.statement(name)
        else:
            table = getattr(self.books, name)()
        title = table.title if rng.random() < 0.6 else table.title.upper()
        if name == "study":
            title = f"Table {rng.randint(1, 8)}: {title}."
        elif rng.random() < 0.4:
            what = table.title[0].lower() + table.title[1:]
            lead = choose(rng.choice(words()["leads"]), rng)
            if (
                " following" not in what
                and "differs" not in what
                and "was recorded" not in what
                and "were as" not in what
            ):
                self.put(lead.format(what=what, What=what[0].upper() + what[1:]))
        self.put(title, "\n" if rng.random() < 0.6 else "\n\n")
        if name not in ("study", "options") and rng.random() < 0.75:
            unit = {
                "thousands": "in thousands",
                "millions": "in millions",
                "dollars": "in U.S. dollars",
            }[self.books.unit]
            extra = rng.choice(
                ["", ", except per share data", ", except share and per share amounts"]
            )
            shape = rng.choice(
                ["({})", "(U.S. dollars {})" if self.books.unit != "dollars" else "({})", "{}"]
            )
            self.put(shape.format(unit + extra), "\n")
        laid = laid_out(table.grid, self.style, rng)
        start = self.put(laid.text, "\n" if rng.random() < 0.3 else "\n\n")
        self.note(table, laid, start)
        marks = [
            row.label[-3:]
            for row in table.grid.rows
            if row.label.endswith((")", "*")) and row.label[-3:] in ("(1)", "(a)", "(2)")
        ]
        if marks:
            remark = rng.choice(
                [
                    "Unaudited.",
                    "Includes amounts of discontinued operations.",
                    "Restated.",
                    "See the notes.",
                    "Excludes related parties.",
                ]
            )
            self.put(f"{marks[0]} {remark}")
        elif rng.random() < 0.2 and name != "study":
            self.put(
                rng.choice(
                    [
                        "See accompanying notes to the financial statements.",
                        "The accompanying notes are an integral part of these statements.",
                    ]
                )
            )

    def note(self, table: Table, laid: Laid, start: int) -> None:
        """Notes the cells that may be asked for."""
        head = (laid.head[0] + start, laid.head[1] + start) if laid.head else None
        for row, names, span, label, cells in zip(
            table.grid.rows, table.cells, laid.rows, laid.labels, laid.cells, strict=True
        ):
            place = span[0] + start, span[1] + start
            near = head and place[1] - head[0] <= NEAR
            evidence = (head, place) if near and head else (place,)
            said = self.text[slice(*place)]
            for at, (named, cell) in enumerate(zip(names, cells, strict=False)):
                if not named:
                    continue
                self.concepts.add(named.concept)
                self.names.update(name.lower() for name in named.names)
                if not cell or row.cells[at] in ("—", "-", "\u2013"):
                    continue
                where = cell[0] + start, cell[1] + start
                answer = self.text[slice(*where)]
                others = "".join(self.text[slice(*one)] for one in evidence[:-1])
                if said.count(answer) == 1 and answer not in others:
                    self.cells.append((named, where, evidence, answer))
                if named.group and label:
                    key = named.group, table.measure or named.column.noun, named.column.key
                    number = float(
                        "".join(c for c in row.cells[at].split("±")[0] if c.isdigit() or c == ".")
                        or "0"
                    )
                    if row.cells[at].startswith(("(", "$(", "-", "\u2212")):
                        number = -number
                    name = self.text[label[0] + start : label[1] + start]
                    self.groups.setdefault(key, []).append((number, name, place, evidence, named))

    def paragraph(self) -> None:
        """A paragraph of facts and sentences that say none."""
        rng = self.rng
        start = len(self.text)
        for _ in range(rng.randint(1, 3)):
            if rng.random() < 0.4 and not self.paper:
                self.text += rng.choice(words()["policies"]) + " "
            if self.unused and rng.random() < 0.75:
                self.fact(self.unused.pop())
        self.text = self.text.rstrip(" ")
        if len(self.text) > start:
            self.text += "\n\n"

    def fact(self, fact: Fact) -> None:
        """A statement with its questions."""
        rng = self.rng
        filled: dict[str, str] = {}
        statement = self.filing.fill(choose(rng.choice(fact.statements), rng), filled)
        statement = statement[0].upper() + statement[1:]
        span = len(self.text), len(self.text) + len(statement)
        self.text += statement + " "
        for asked, answer in fact.questions:
            if not (slots(asked) | slots(answer)) <= {*filled, "firm"}:
                continue
            wanted = self.filing.fill(answer, filled)
            if statement.count(wanted) == 1:
                text = self.filing.fill(choose(asked, rng), filled)
                self.said.append(Question(text, wanted, (span,)))

    # Questions

    def asked(self) -> AskedDocument:
        """The document with its questions."""
        rng = self.rng
        self.wrap()
        found: dict[str, Question] = {}
        used: set[tuple] = set()
        for _ in range(rng.randint(6, 13)):
            draw = self.absent if rng.random() < ABSENT else self.drawn
            for _ in range(TRIES):
                one = draw()
                if not one or one.text.lower() in found:
                    continue
                key = (one.answer, one.evidence) if one.answer else (one.text,)
                if key in used or (one.answer and one.answer.lower() in one.text.lower()):
                    continue
                used.add(key)
                found[one.text.lower()] = one
                break
        return AskedDocument("statement", self.text.rstrip() + "\n", tuple(found.values()))

    def wrap(self) -> None:
        """Breaks long lines of running text, as PDF has them, without breaking an answer."""
        if self.wrapped:
            lines = []
            for line in self.text.split("\n"):
                prose = (
                    len(line) > self.wrapped
                    and line.count(". ") + line.endswith(".")
                    and "  " not in line
                    and "|" not in line
                )
                lines.append(broken(line, self.wrapped) if prose else line)
            self.text = "\n".join(lines)
        self.said = [one for one in self.said if self.said_once(one)]

    def said_once(self, question: Question) -> bool:
        """Whether the answer stands once in its evidence, on one line."""
        return self.text[slice(*question.evidence[0])].count(question.answer or "") == 1

    def drawn(self) -> Question | None:
        """A question, if the draw is one."""
        chance = self.rng.random()
        if self.cells and chance < 0.62:
            return self.cell()
        if self.groups and chance < 0.72:
            return self.compared()
        return self.rng.choice(self.said) if self.said else None

    def cell(self) -> Question:
        """A question for a cell."""
        named, _, evidence, answer = self.rng.choice(self.cells)
        return Question(self.worded(named), answer, evidence)

    def worded(self, named: Named) -> str:
        """A question for what a cell is called."""
        rng, pools = self.rng, words()
        column = named.column
        row = column.noun.format(row=rng.choice(named.names))
        when = rng.choice(column.whens)
        figure = column.figure or named.figure
        wordings = pools["measured"] if figure == "plain" else pools["asking"]
        if figure == MONEY and rng.random() < 0.25:
            wordings = pools["amount"]
        if named.spend and rng.random() < 0.35:
            wordings = pools["spend"]
            row = row.removesuffix(" expense").removesuffix(" costs").removesuffix(" cost")
        head = HEAD.split(row)[0]
        plural = head.endswith("s") and not head.endswith(("ss", "sis", "EPS", "us", "capex"))
        fitting = [one for one in wordings if when or not one.startswith("{When}")]
        text = choose(rng.choice(fitting), rng)
        if plural and text.startswith(
            ("What is {row}", "What is the {row}", "What is {firm}'s {row}")
        ):
            text = text.replace("What is ", "What are ", 1)
        text = text.format(
            row=row,
            when=when,
            When=when[:1].upper() + when[1:],
            was="were" if plural else "was",
            firm=self.filing.short,
        )
        text = " ".join(text.split()).replace(" ?", "?").replace(" .", ".")
        if not text.endswith(("?", ".")) and when == "" and row == text:
            text += "?"
        return text[0].upper() + text[1:]

    def compared(self) -> Question | None:
        """Which row has the most, the least, or a given figure."""
        rng = self.rng
        key = rng.choice([*self.groups])
        group, measure, _ = key
        rows = self.groups[key]
        column = rows[0][4].column
        when = rng.choice(column.whens)
        what = measure.removesuffix(" of {row}")
        if len(rows) < 3:
            return None
        most = rng.random() < 0.6
        best = (max if most else min)(number for number, *_ in rows)
        meant = [one for one in rows if one[0] == best]
        _, name, place, evidence, _ = meant[0]
        said = self.text[slice(*place)]
        if len(meant) > 1 or said.count(name) > 1:
            return None
        word = rng.choice(["highest", "largest", "greatest"] if most else ["lowest", "smallest"])
        text = rng.choice(
            [
                f"Which {group} had the {word} {what} {when}?",
                f"Which {group} has the {word} {what} {when}?",
                f"What {group} reported the {word} {what} {when}?",
                f"Name the {group} with the {word} {what} {when}.",
            ]
        )
        if group != "method" and rng.random() < 0.4:
            others = [
                one
                for one in self.cells
                if one[0].group == group
                and one[0].column.key == key[2]
                and one[0].column.noun == column.noun
            ]
            if not others:
                return None
            chosen, _, evidence, answer = rng.choice(others)
            row = next((one for one in rows if one[4] is chosen), None)
            if not row or sum(one[0] == row[0] for one in rows) > 1 or "\n" in answer:
                return None
            name = row[1]
            text = f"Which {group} had {what} of {answer} {when}?"
        elif len(rows) > 1:
            everything = self.span_of(rows)
            evidence = everything if everything else evidence
        text = " ".join(text.split()).replace(" ?", "?").replace(" .", ".")
        if sum(self.text[slice(*span)].count(name) for span in evidence) != 1:
            return None
        return Question(text, name, evidence)

    def span_of(self, rows: list) -> tuple[Span, ...] | None:
        """The rows that are compared, with a heading near them; None if they are far apart."""
        start, end = min(one[2][0] for one in rows), max(one[2][1] for one in rows)
        if end - start > 2 * NEAR:
            return None
        first = rows[0][3]
        return (
            (first[0], (start, end)) if len(first) > 1 and first[0][1] <= start else ((start, end),)
        )

    def absent(self) -> Question | None:
        """A question without an answer."""
        rng = self.rng
        chance = rng.random()
        if chance < 0.3 and self.unused:
            return self.untold()
        if not self.cells or self.paper:
            return self.missing_method() if self.cells else self.untold()
        named = rng.choice(self.cells)[0]
        column = named.column
        if chance < 0.6 and column.year:
            other = rng.choice([self.books.year + 1, *(self.books.year - at for at in range(2, 9))])
            if str(other) in self.text:
                return None
            return Question(
                self.worded(
                    Named(
                        named.concept,
                        named.names,
                        renamed(column, column.year, other),
                        named.figure,
                        named.spend,
                    )
                ),
                None,
                (),
            )
        period = column.key[0] in ("year", "Three", "Six", "Nine")
        alike = [one for one in listed().values() if one.columns == ("flow" if period else "point")]
        statement = rng.choice(alike)
        line = rng.choice(statement.lines)
        if line.sign == "#" or line.names.endswith("-"):
            return None
        _, names = self.books.names(line)
        low = self.text.lower()
        if (
            not names
            or names[0] in self.concepts
            or any(name.lower() in self.names or name.lower() in low for name in names)
        ):
            return None
        if column.noun != "{row}" or not column.year or near_names(names, self.names):
            return None
        return Question(
            self.worded(Named(names[0], tuple(names), column, line.figure, line.spend)), None, ()
        )

    def untold(self) -> Question | None:
        """A question to a statement that the document does not make."""
        if not self.unused:
            return None
        fact = self.rng.choice(self.unused)
        filled: dict[str, str] = {}
        asked, _ = self.rng.choice(fact.questions)
        self.filing.fill(self.rng.choice(fact.statements), filled)
        text = self.filing.fill(choose(asked, self.rng), filled)
        if filled.get("lproduct", "\0") in self.text.lower():
            return None
        return Question(text, None, ())

    def missing_method(self) -> Question | None:
        """A question for a row that a paper's table lacks."""
        rng = self.rng
        named = rng.choice(self.cells)[0]
        pool = "methods" if named.group == "method" else "samples"
        other = rng.choice(words()[pool])
        if other.lower() in self.text.lower():
            return None
        return Question(self.worded(Named(other, (other,), named.column, named.figure)), None, ())


def near_names(names: list[str], others: set[str]) -> bool:
    """Whether a name has all the words of another, or the other way round."""
    own = [set(name.lower().replace(",", "").split()) for name in names]
    return any(
        one <= words_ or words_ <= one
        for other in others
        for words_ in [set(other.replace(",", "").split())]
        for one in own
    )


def broken(line: str, width: int) -> str:
    """A line broken at blanks, with the same number of characters."""
    parts, start, last = list(line), 0, -1
    for at, sign in enumerate(line):
        if sign == " ":
            last = at
        if at - start >= width and last > start:
            parts[last] = "\n"
            start = last + 1
    return "".join(parts)


def document(values: MadeValues) -> AskedDocument:
    """One document with questions."""
    report = Report(values)
    report.write()
    return report.asked()
