"""Layouts of tables: rows as lines of a file, with the line of each cell where there are several.

Knows nothing of what the cells mean.
"""

import json
from collections.abc import Callable, Sequence

from longctx.profiles.recipe.data.made.pages import Line, Record

Rows = Sequence[Record]
Layout = Callable[[Rows, dict[str, str]], list[Line]]


def separated(mark: str) -> Layout:
    """Cells with a mark between them; the layout quotes cells that contain it."""

    def lay_out(rows: Rows, headings: dict[str, str]) -> list[Line]:
        lines = [Line(mark.join(headings.values()))]
        for row in rows:
            cells = [row.fields[name] for name in headings]
            quoted = [f'"{cell}"' if mark in cell and mark.strip() else cell for cell in cells]
            row.line = Line(mark.join(quoted))
            lines.append(row.line)
        return lines

    return lay_out


def markdown(rows: Rows, headings: dict[str, str]) -> list[Line]:
    """A table of Markdown."""
    lines = [Line(f"| {' | '.join(headings.values())} |"), Line("|" + "---|" * len(headings))]
    for row in rows:
        row.line = Line(f"| {' | '.join(row.fields[name] for name in headings)} |")
        lines.append(row.line)
    return lines


def aligned(rows: Rows, headings: dict[str, str]) -> list[Line]:
    """Columns of equal width."""
    columns = [(name, [headings[name], *(row.fields[name] for row in rows)]) for name in headings]
    widths = {name: max(map(len, cells)) + 2 for name, cells in columns}
    lines = [Line("".join(headings[name].ljust(width) for name, width in widths.items()).rstrip())]
    lines.append(Line("-" * len(lines[0].text)))
    for row in rows:
        text = "".join(row.fields[name].ljust(width) for name, width in widths.items())
        row.line = Line(text.rstrip())
        lines.append(row.line)
    return lines


def objects(rows: Rows, headings: dict[str, str]) -> list[Line]:
    """A JSON object per line."""
    for row in rows:
        told = {heading: row.fields[name] for name, heading in headings.items()}
        row.line = Line(json.dumps(told, ensure_ascii=False))
    return [row.line for row in rows]


def cell_by_cell(head: str, cell: str, first: str = "") -> Layout:
    """A line for each cell, under a line for the row.

    Args:
        head: the line of a row, with {key} for its first cell, which is then not told again; empty
            if there is none.
        cell: the line of a cell, with {heading} and {value}.
        first: the line of the first cell, where it differs from others.
    """

    def lay_out(rows: Rows, headings: dict[str, str]) -> list[Line]:
        lines = []
        for row in rows:
            told = []
            for number, (name, heading) in enumerate(headings.items()):
                pattern = cell if number else head or first or cell
                value = row.fields[name]
                line = Line(pattern.format(key=value, heading=heading, value=value))
                row.apart[name] = [line]
                told.append(line)
            row.line = told[0]
            told[-1].end = "\n\n" if not first else "\n"
            lines += told
        return lines

    return lay_out


NARROW: list[Layout] = [  # without words of their own for each cell
    *[separated(","), separated(","), separated("\t"), separated(";"), separated(" | ")],
    *[markdown, markdown],
]
TABLES: list[Layout] = [
    *[*NARROW, aligned, aligned, objects],
    *[cell_by_cell("", "{heading}: {value}"), cell_by_cell("## {key}", "- {heading}: {value}")],
]
SETTINGS: list[Layout] = [
    *[cell_by_cell("[{key}]", "{heading} = {value}"), cell_by_cell("[{key}]", "{heading}={value}")],
    *[cell_by_cell("{key}:", "  {heading}: {value}"), objects],
    *[cell_by_cell("", '  {heading}: "{value}"', '- {heading}: "{value}"'), NARROW[0]],
]
