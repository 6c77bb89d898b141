"""All printing except progress (`progress.py`) and grids of rates (`grids.py`).

Results go to standard output, everything else to standard error. Text from documents, models, files
and errors passes `clean`, so that it cannot control a terminal, and is never read as markup.
"""

import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import IO, TYPE_CHECKING, Any

from longctx.cli import hyperlinks
from longctx.cli.run import current
from longctx.cli.text import clean, one_line

if TYPE_CHECKING:
    from rich.console import Console

    from longctx.core.ask.gather import Passage
    from longctx.core.ask.sentence import Sentence

SCHEMA_VERSION = 1
MATCH = "bold red"  # as in grep

Span = tuple[int, int]  # [start, end) in characters


def line(text: str) -> None:
    """One line of a result, on standard output."""
    print(clean(text), flush=True)


def note(text: str) -> None:
    """A line for the person at the terminal, on standard error; not with --quiet."""
    current().notes.append(clean(text))
    if not current().quiet:
        print(indented(text), file=sys.stderr, flush=True)


def hint(text: str) -> None:
    """A dim line for a person who may want another command, where standard error is a terminal."""
    if is_watched() and not current().quiet:
        open_console(sys.stderr).print(styled((clean(text), "dim")), soft_wrap=True)


def is_watched() -> bool:
    """Whether somebody sees standard error."""
    return sys.stderr.isatty()


def problem(text: str) -> None:
    """A part of the work that failed: like a note, but also with --quiet."""
    current().notes.append(clean(text))
    error(text)


def error(text: str) -> None:
    """What went wrong, on standard error."""
    print(indented(text), file=sys.stderr, flush=True)


def indented(text: str) -> str:
    """Clean text with further lines indented: a name with a newline cannot fake a message."""
    return clean(text).replace("\n", "\n  ")


def can_ask() -> bool:
    """Whether somebody sits at a terminal to answer."""
    return sys.stdin.isatty()


def prompt(text: str) -> None:
    """Asks for input on standard error."""
    print(clean(text), end="", file=sys.stderr, flush=True)


def reply(text: str) -> None:
    """What somebody at the prompt asked to see beside answers, on standard error."""
    prompt(f"{text}\n")


def result(values: dict[str, Any], json: bool) -> bool:
    """Keeps the result of a command for the report, and prints it as JSON if requested.

    Args:
        values: the object.
        json: print it.

    Returns:
        Whether it was printed.
    """
    current().results.append({"schema_version": SCHEMA_VERSION, **values})
    if json:
        print_json(values)
    return json


def print_json(values: dict[str, Any], file: IO[str] | None = None) -> None:
    """One JSON object on one line; ASCII only, so that it is the same on every terminal."""
    text = json.dumps({"schema_version": SCHEMA_VERSION, **values}, allow_nan=False)
    print(text.replace("\x7f", "\\u007f"), file=file or sys.stdout, flush=True)


def stream(text: str) -> None:
    """A piece of an answer as it is decoded."""
    print(clean(text), end="", flush=True)


def passages(found: "Iterable[Passage]", scores: bool, names: bool = False) -> None:
    """Passages as `file:line` and the text around their best token.

    Args:
        found: best first.
        scores: add the score of each.
        names: put the document's name before each.
    """
    console = open_console(sys.stdout)
    for passage in found:
        place = f"{one_line(passage.source)}:{one_line(passage.best_place)}:"
        name = f"{one_line(passage.document)}: " if names else ""
        score = f" {passage.score:.3f} " if scores else ""
        console.print(
            styled(
                (name, "dim"), (place, "bold"), (score, "dim"), f" {one_line(passage.best_text)}"
            ),
            soft_wrap=True,
        )


def sentence(found: "Sentence", name: bool, answer: str = "") -> None:
    """The sentence that answers, in quotation marks: its place, and what answers highlighted.

    Args:
        found: the sentence.
        name: put the document's name before it.
        answer: as it was printed; a sentence that is the same is not printed again.
    """
    place, document = (found.source, found.place), found.document if name else ""
    if " ".join(found.line_text.split()) == answer:
        lines([Line(place, None, name=document)], indent=False)
        return
    text, marked = cut(found.line_text, found.shown, found.marks)
    marked = tuple((low + 1, high + 1) for low, high in marked)
    lines([Line(place, f'"{text}"', marked, document)], indent=False)


def cut(text: str, shown: Span, marked: "Iterable[Span]") -> tuple[str, tuple[Span, ...]]:
    """The shown part of a text, with an ellipsis for what is left out, and the marks in it."""
    low, high = shown
    lead, tail = "\u2026" * (low > 0), "\u2026" * (high < len(text))
    shift = len(lead) - low
    inside = (
        (max(low, s) + shift, min(high, e) + shift) for s, e in marked if s < high and e > low
    )
    return f"{lead}{text[low:high]}{tail}", tuple(inside)


@dataclass(frozen=True)
class Line:
    """A line of a source, for printing.

    Attributes:
        place: `file:line`, or the file alone.
        text: the line; None: the place alone.
        marked: the highlighted parts, in characters, ascending.
        name: its document's, where several are searched; else empty.
        matches: it is a hit, not context.
        link: an address that a terminal can open; None: there is none.
    """

    place: tuple[str, ...]
    text: str | None
    marked: tuple[tuple[int, int], ...] = ()
    name: str = ""
    matches: bool = True
    link: str | None = None


def lines(found: Iterable[Line | None], indent: bool) -> None:
    """Prints lines of sources as grep does; None separates two groups.

    Args:
        found: in the order in which they are printed.
        indent: keep the white space at their start.
    """
    linked = hyperlinks.are_shown(os.environ, sys.stdout.isatty())
    styles = sys.stdout.isatty() or bool(os.environ.get("FORCE_COLOR"))
    console = open_console(sys.stdout) if styles and not os.environ.get("NO_COLOR") else None
    for each in found:
        parts = [("--", "dim")] if each is None else _parts(each, indent)
        link = each.link if each is not None and linked else None
        if console is not None:
            console.print(_linked(parts, link), soft_wrap=True)
        else:  # nothing to style: importing rich would take longer than the rest
            texts = [text for text, _ in parts]
            if link:
                texts[_PLACE] = f"\x1b]8;;{link}\x1b\\{texts[_PLACE]}\x1b]8;;\x1b\\"
            print("".join(texts))
    sys.stdout.flush()


_PLACE = 1  # index among the parts of a line


def _parts(line: Line, indent: bool) -> list[tuple[str, str]]:
    """A line's name, place and text, each with its style; all are clean."""
    mark, style = (":", "bold") if line.matches else ("-", "")
    parts = [
        (f"{one_line(line.name)}: " if line.name else "", "dim"),
        (mark.join(one_line(part) for part in line.place), style),
    ]
    if line.text is None:
        return parts
    parts.append((mark, style))
    borders = [0, *(place for span in line.marked for place in span), len(line.text)]
    pieces = [_spaced(line.text[low:high], indent) for low, high in pairwise(borders)]
    pieces[-1] = pieces[-1].rstrip()
    if not indent:
        pieces[0] = pieces[0].lstrip()
    parts.append((" ", ""))
    return parts + [(piece, MATCH if n % 2 else "") for n, piece in enumerate(pieces)]


def _spaced(text: str, indent: bool) -> str:
    """Clean text on one line; white space becomes one space, or stays as it is."""
    return re.sub(r"[^\S \t]+" if indent else r"\s+", " ", clean(text))


def _linked(parts: Sequence[tuple[str, str]], link: str | None) -> Any:
    """A rich text with a link on its place."""
    from rich.style import Style
    from rich.text import Text

    styled_parts = [(text, Style.parse(style)) for text, style in parts]
    if link:
        text, style = styled_parts[_PLACE]
        styled_parts[_PLACE] = text, style + Style(link=link)
    return Text.assemble(*styled_parts)


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str] = ()) -> None:
    """A table on standard output; where its words have no room side by side, a list of its rows.

    Args:
        headers: names of the columns.
        rows: their cells.
        right: columns of numbers.
    """
    cells = [[one_line(cell) for cell in row] for row in rows]
    console = open_console(sys.stdout)
    widths = [max(map(_width, column)) for column in zip(headers, *cells, strict=True)]
    if sum(widths) + 2 * (len(widths) - 1) <= console.width:
        # Nothing to wrap: rich takes a second for a thousand lines.
        head, *lines = (_aligned(row, headers, widths, right) for row in (headers, *cells))
        console.print(styled((head, "bold")), soft_wrap=True)
        print("".join(f"{line}\n" for line in lines), end="", flush=True)
        return
    from rich.table import Table

    words = [max(map(_longest_word, column)) for column in zip(headers, *cells, strict=True)]
    spare = console.width - sum(words) - 2 * len(words)
    if spare < 0:
        console.print(_one_below_another(headers, cells))
        return
    grid = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for header, width in zip(headers, _shared(words, widths, spare), strict=True):
        grid.add_column(header, justify="right" if header in right else "left", width=width)
    for row in cells:
        grid.add_row(*map(styled, row))
    console.print(grid)


def _one_below_another(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> Any:
    """The rows as a rich table of names and values, an empty line between two rows."""
    from rich.table import Table

    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for number, row in enumerate(rows):
        if number:
            grid.add_row()
        for header, cell in zip(headers, row, strict=True):
            if cell:
                grid.add_row(header, styled(cell))
    return grid


def _shared(least: Sequence[int], wanted: Sequence[int], spare: int) -> list[int]:
    """Widths of columns: the least, and what is spare, always to the one that lacks most."""
    widths = [*least]
    for _ in range(spare):
        lacks = [want - width for want, width in zip(wanted, widths, strict=True)]
        widths[lacks.index(max(lacks))] += 1
    return widths


def _longest_word(text: str) -> int:
    return max(map(_width, text.split()), default=0)


def _aligned(
    row: Sequence[str], headers: Sequence[str], widths: Sequence[int], right: Sequence[str]
) -> str:
    """A line of a table: cells padded to the columns' widths, two spaces between them."""
    parts = []
    for cell, header, width in zip(row, headers, widths, strict=True):
        space = " " * (width - _width(cell))
        parts.append(space + cell if header in right else cell + space)
    return "  ".join(parts)


def _width(text: str) -> int:
    """The width of a text in terminal columns."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def facts(rows: Iterable[tuple[str, str]]) -> None:
    """Names and values, one pair a line; a value may have several lines."""
    pairs = [(clean(name), clean(value)) for name, value in rows]
    width = max(len(name) for name, _ in pairs)
    console = open_console(sys.stdout)
    for name, value in pairs:
        padded = value.replace("\n", "\n" + " " * (width + 2))
        console.print(styled((f"{name:<{width}}", "bold"), f"  {padded}"), soft_wrap=True)


def confirm(question: str) -> bool:
    """Asks at the terminal; anything but y or yes is no."""
    prompt(f"{question} [y/N] ")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def open_console(file: IO[str]) -> "Console":
    """A console that reads no text as markup; without a terminal, no line is wrapped."""
    from rich.console import Console

    return Console(
        file=file,
        width=None if file.isatty() else 1 << 15,
        color_system=None if os.environ.get("NO_COLOR") else "auto",  # no bold either
        markup=False,
        emoji=False,
        highlight=False,
    )


def styled(*parts: str | tuple[str, str]) -> Any:
    """A rich text made of parts with or without a style; none of it is markup."""
    from rich.text import Text

    return Text.assemble(*parts)
