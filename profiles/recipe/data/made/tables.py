"""Tables: stock lists, registers, timetables, settings, with keys that are easily confused.

Every column has values of its own; some keys are another row's with a letter or digit changed.
"""

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import yaml

from longctx.profiles.recipe.data.facts.phrasing import mutated
from longctx.profiles.recipe.data.facts.slots import Filling
from longctx.profiles.recipe.data.made.layouts import NARROW, SETTINGS, TABLES
from longctx.profiles.recipe.data.made.pages import Line, Page, Record
from longctx.profiles.recipe.data.made.values import MadeValues
from longctx.profiles.recipe.data.made.wordings import Wording, read_wordings

ORDERED = [("begins", "ends"), ("leaves", "arrives"), ("sent", "due")]  # by their letters
NEAR = 0.35  # of the rows: their key is nearly that of another


@dataclass(frozen=True)
class Schema:
    """A kind of table: its columns with a kind of value and headings, and titles above it."""

    titles: list[str]
    columns: dict[str, list[str]]
    layouts: str = field(default="tables")


@cache
def schemas() -> dict[str, Schema]:
    """The kinds of tables."""
    read = yaml.safe_load(Path(__file__).with_name("tables.yaml").read_text("utf-8"))
    return {name: Schema(**schema) for name, schema in read.items()}


@cache
def wordings() -> dict[str, list[Wording]]:
    """How their cells are asked for."""
    return read_wordings(Path(__file__).with_name("tables.txt"))


def page(values: MadeValues) -> Page:
    """One table, or two of different kinds, of some length together."""
    size = int(1700 * 7 ** values.rng.random())
    count = values.rng.choice([1, 1, 2])
    lines: list[Line] = []
    records: list[Record] = []
    hidden: list[Record] = []
    for name in values.rng.sample([*schemas()], count):
        table, rows, others = one_table(name, values, size // count)
        lines += table
        records += rows
        hidden += others
    return Page("table", lines, records, hidden)


def one_table(
    kind: str, values: MadeValues, size: int
) -> tuple[list[Line], list[Record], list[Record]]:
    """The lines of a table, its rows, and rows that are not in it."""
    rng, schema = values.rng, schemas()[kind]
    names = [*schema.columns]
    left_out = rng.choice(names[1:]) if rng.random() < 0.3 and len(names) > 4 else ""
    columns = {name: rng.choice(of[1:]) for name, of in schema.columns.items() if name != left_out}
    layout = rng.choice(SETTINGS if schema.layouts == "settings" else TABLES)
    between = 4 if layout in NARROW else 14  # characters of a cell beside its value, about
    rows: list[Record] = []
    while size > 0:
        rows.append(row(kind, columns, rows, values))
        size -= sum(len(value) + between for value in rows[-1].fields.values())
    hidden = [row(kind, columns, rows, values) for _ in range(6)]
    title = Filling(values).fill(rng.choice(schema.titles))
    mark = "# " if schema.layouts == "settings" else ""
    head = [Line(f"{mark}{title}", "\n\n")] if rng.random() < 0.7 else []
    lines = [*head, *layout(rows, columns)]
    lines[-1].end = "\n\n"
    return lines, rows, hidden


def row(kind: str, columns: dict[str, str], rows: list[Record], values: MadeValues) -> Record:
    """A new row, whose key is like another's at times, and no other's."""
    schema, rng = schemas()[kind], values.rng
    fields = {name: values.make(schema.columns[name][0]) for name in columns}
    key = next(iter(fields))
    if rows and rng.random() < NEAR:
        fields[key] = confused(rng.choice(rows[-20:]).fields[key], values)
    if any(one.fields[key] == fields[key] for one in rows):
        fields[key] = f"{fields[key]}{values.digits(1, 2)}"
    if rows and rng.random() < NEAR:
        name = rng.choice([*fields])
        fields[name] = rng.choice(rows).fields[name] if name != key else fields[name]
    for early, late in ORDERED:
        if early in fields and late in fields:
            fields[early], fields[late] = sorted((fields[early], fields[late]))
    return Record(kind, fields, Line(""))


def confused(key: str, values: MadeValues) -> str:
    """The key with two neighbours exchanged, or one letter, digit or word changed."""
    at = values.rng.randrange(max(1, len(key) - 1))
    pair = key[at : at + 2]
    if values.rng.random() < 0.5 and pair.isdigit() and pair[0] != pair[1]:
        return key[:at] + pair[::-1] + key[at + 2 :]
    return mutated(key, values)
