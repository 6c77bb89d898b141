"""Grids of cells as text, in the layouts that come out of PDF and HTML, with the span of each cell.

Knows nothing of what the cells mean, nor of questions.
"""

import random
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from longctx.profiles.recipe.data.asked import Span

AFFIXES = re.compile(r"([$€£]|\*\*|)\s*(.*?)\s*(%|\*\*|\*|†|)", re.DOTALL)
SIGNS = ("$", "€", "£")
NARROW = 34  # columns of a label before it is broken, where labels are
FOLIOS = ["{}", "F-{}", "- {} -", "Page {}", "{}\n\nTable of Contents", "{} | Annual Report"]


@dataclass(frozen=True)
class Row:
    """A label and its cells, all empty if it is a heading."""

    label: str
    cells: Sequence[str]
    depth: int = 0


@dataclass(frozen=True)
class Grid:
    """Heading rows, whose first cell stands above the labels, and rows."""

    head: Sequence[Sequence[str]]
    rows: Sequence[Row]


@dataclass(frozen=True)
class Style:
    """How grids of a document are laid out.

    Attributes:
        layout: "aligned", "spaced", "piped", "lined" or "under".
        gap: what separates cells, where nothing else does.
        dollar: what follows a currency sign: "" (it is part of the answer), a space, a newline, or
            "pad" (it stands at the left of its column).
        percent: what comes before a percent sign: "" or a space.
        breaks: labels are broken over lines.
        blank: empty lines between rows.
        frame: bars at the ends of piped rows, and a rule below the head.
        close: a space before closing brackets.
        dots: dots after labels.
        skips: empty cells leave no trace.
        fill: the blank of aligned columns.
    """

    layout: str
    gap: str = " "
    dollar: str = ""
    percent: str = ""
    breaks: bool = False
    blank: bool = False
    frame: bool = False
    close: bool = False
    dots: bool = False
    skips: bool = True
    fill: str = " "

    @classmethod
    def drawn(cls, rng: random.Random) -> Self:
        """A style."""
        layout = rng.choice(
            ["aligned"] * 4 + ["spaced"] * 3 + ["piped"] * 2 + ["lined"] * 3 + ["under"]
        )
        dollars = {
            "aligned": ["", "pad", "pad", " "],
            "lined": ["", "\n", " "],
            "piped": ["", " ", " | "],
        }
        return cls(
            layout,
            rng.choice([" ", " ", "  ", "   ", "\t"]),
            rng.choice(dollars.get(layout, ["", " ", " "])),
            rng.choice(["", "", "", " "]),
            rng.random() < 0.35,
            rng.random() < 0.25,
            rng.random() < 0.5,
            rng.random() < 0.08,
            rng.random() < 0.15,
            rng.random() < 0.8,
            rng.choice([" ", " ", " ", "\xa0"]),
        )


@dataclass
class Laid:
    """A grid as text.

    Attributes:
        text: the lines, without a newline at their end.
        head: where the heading rows stand; None if there are none.
        rows: where each row stands.
        labels: where the label of each row stands; None if it is broken over lines.
        cells: where the value of each row's cells stands; None where they are empty.
    """

    text: str = ""
    head: Span | None = None
    rows: list[Span] = field(default_factory=list)
    labels: list[Span | None] = field(default_factory=list)
    cells: list[list[Span | None]] = field(default_factory=list)

    def add(self, text: str) -> Span:
        """Appends text and returns where it stands."""
        start = len(self.text)
        self.text += text
        return start, len(self.text)


def rendered(cell: str, style: Style, width: int = 0) -> tuple[str, Span]:
    """A cell as it is printed, and where in it the value stands."""
    match = AFFIXES.fullmatch(cell.strip())
    sign, body, percent = match.groups() if match else ("", cell.strip(), "")
    if style.close and body.endswith(")") and body.startswith("("):
        body = f"{body[:-1]} )"
    tail = style.percent + percent if percent == "%" else percent
    if sign in SIGNS and style.dollar == "pad":
        room = max(1, width - len(sign) - len(body) - len(tail))
        front = sign + style.fill * room
    else:
        front = sign + (style.dollar if sign in SIGNS else "")
    start = 0 if sign != "**" and not style.dollar else len(front)
    text = front + body + tail
    stop = len(text) - (len(tail) if percent != "%" else 0)
    lead = max(0, width - len(text))
    return style.fill * lead + text, (start + lead, stop + lead)


def laid_out(grid: Grid, style: Style, rng: random.Random) -> Laid:
    """The grid in a style."""
    laid = Laid()
    widths = column_widths(grid, style)
    labels = label_width(grid, style)
    for number, head in enumerate(grid.head):
        begin = len(laid.text)
        put(laid, head[0], head[1:], style, widths, labels, headed=True)
        start = laid.head[0] if laid.head else begin
        laid.head = trimmed(laid.text, (start, len(laid.text)))
        laid.add("\n")
        if style.layout == "piped" and style.frame and number == len(grid.head) - 1:
            laid.add("|" + " --- |" * (len(head)) + "\n")
    turn = rng.randrange(len(grid.rows)) if rng.random() < 0.05 else -1
    for number, row in enumerate(grid.rows):
        if number == turn and number:
            laid.add("\n" + rng.choice(FOLIOS).format(rng.randint(3, 120)) + "\n\n")
        begin = len(laid.text)
        indent = row.depth * 2 if style.layout == "aligned" else 0
        label, cells = put(laid, " " * indent + row.label, row.cells, style, widths, labels)
        laid.rows.append(trimmed(laid.text, (begin, len(laid.text))))
        laid.labels.append(label)
        laid.cells.append(cells)
        laid.add("\n\n" if style.blank and style.layout != "piped" else "\n")
    laid.text = laid.text.rstrip("\n")
    return laid


def trimmed(text: str, span: Span) -> Span:
    """The span without blanks and newlines before it, and white space after it."""
    part = text[slice(*span)]
    return span[0] + len(part) - len(part.lstrip(" \n")), span[1] - len(part) + len(part.rstrip())


def column_widths(grid: Grid, style: Style) -> list[int]:
    """How wide the columns of cells are."""
    columns = max(len(row.cells) for row in grid.rows)
    least = [0] * columns
    for row in grid.rows:
        for at, cell in enumerate(row.cells):
            least[at] = max(least[at], len(rendered(cell, style)[0]) + 1)
    for head in grid.head[-1:]:
        for at, cell in enumerate(head[1:]):
            least[at] = max(least[at], len(cell))
    return [width + 2 * len(style.gap.replace("\t", "  ")) for width in least]


def label_width(grid: Grid, style: Style) -> int:
    """How wide the column of labels is."""
    widest = max(len(row.label) + 2 * row.depth for row in grid.rows)
    return min(widest, NARROW) if style.breaks else widest


def put(
    laid: Laid,
    label: str,
    cells: Sequence[str],
    style: Style,
    widths: Sequence[int],
    labels: int,
    headed: bool = False,
) -> tuple[Span | None, list[Span | None]]:
    """Adds a row's lines; returns where its label and the values of its cells stand."""
    if not any(cells) and not headed:
        return laid.add(f"| {label} |" if style.layout == "piped" and style.frame else label), []
    lines = [label]
    if style.breaks and not headed and style.layout in ("aligned", "spaced", "lined", "under"):
        lines = textwrap.wrap(label, NARROW, subsequent_indent="  ") or [label]
    if lines[:-1]:
        laid.add("\n".join(lines[:-1]) + "\n")
    last = lines[-1]
    if style.layout == "piped" and style.frame:
        laid.add("| ")
    place = laid.add(last)
    place = None if lines[:-1] else trimmed(laid.text, place)
    if style.layout == "aligned":
        room = max(0, labels - len(last))
        laid.add("." * room if style.dots and not headed and room > 3 else style.fill * room)
    elif style.dots and not headed and style.layout == "spaced":
        laid.add(" " + "." * 8)
    spans: list[Span | None] = []
    first = True
    for at, cell in enumerate(cells):
        if style.layout == "lined":
            joint = "\n" if not first or last.strip() else ""
        elif style.layout == "under":
            joint = ("\n" if last.strip() else "") if first else style.gap
        else:
            joint = " | " if style.layout == "piped" else style.gap
            if style.layout == "aligned":
                joint = style.fill * len(style.gap)
        if not cell and style.skips and style.layout in ("lined", "under", "spaced"):
            spans.append(None)
            continue
        width = widths[at] if style.layout == "aligned" and at < len(widths) else 0
        if headed:
            text, span = cell.rjust(width), (0, len(cell))
        else:
            text, span = rendered(cell, style, width)
        laid.add(joint)
        start, _ = laid.add(text)
        spans.append((start + span[0], start + span[1]) if cell else None)
        first = False
    if style.layout == "piped" and style.frame:
        laid.add(" |")
    if style.layout in ("aligned", "spaced"):
        laid.text = laid.text.rstrip(" \xa0")
    return place, spans
