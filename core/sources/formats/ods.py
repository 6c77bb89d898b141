"""OpenDocument spreadsheets: the cells of each sheet as they are shown, comments, charts.

Behind the rows of a sheet come the comments on its cells, and titles and categories of its charts;
headers and footers come last. Sheets that are hidden are read too; links to other files are not
followed.
"""

from collections.abc import Generator, Iterable, Iterator
from itertools import repeat
from typing import BinaryIO, NamedTuple

from longctx.core.sources import formats, places
from longctx.core.sources.flow import Flow
from longctx.core.sources.limits import Share
from longctx.core.sources.office import Event, package
from longctx.core.sources.opendocument import (
    CELLS,
    CONTENT,
    MARGINS,
    STYLES,
    Asides,
    count,
    flow_on,
    paragraphs_in,
    with_asides,
)
from longctx.core.sources.pieces import Piece, tidy
from longctx.core.sources.places import COLUMNS
from longctx.core.sources.sheets import row_pieces, sheet_piece

ROW = "table:table-row"


class _Row(NamedTuple):
    """A row: how often it stands there, its cells as (text, how often), comments by column."""

    times: int
    cells: list[tuple[str, int]]
    comments: list[tuple[int, str]]


class Format(formats.Format):
    """One piece per cell."""

    marks = "sheet"

    def convert(self, file: BinaryIO, name: str, share: Share) -> Generator[Piece]:
        """See `formats.Format`."""
        sheet, number, asides, comments = 0, 0, Asides(), list[Piece]()
        with package(file, name, share) as (names, read):
            for found in _rows(with_asides(read(CONTENT)), asides):
                if isinstance(found, str):
                    yield from comments
                    yield from _pieces(asides.texts(read, names), sheet)
                    sheet, number, comments = sheet + 1, 0, []
                    yield sheet_piece(sheet, found)
                    continue
                if sheet and any(text for text, _ in found.cells):
                    share.budget.require_room(found.times * _size(found))
                    for row in range(number + 1, number + 1 + found.times):
                        yield from row_pieces(sheet, row, _cells(found))
                for column, text in found.comments:
                    comments.append(Piece(tidy(text), places.of_cell(sheet, number + 1, column)))
                number += found.times
            yield from comments
            yield from _pieces(asides.texts(read, names), sheet)
            margins = paragraphs_in(read(STYLES), MARGINS, asides) if STYLES in names else []
        said = dict.fromkeys(text for text in margins if any(map(str.isalpha, text)))
        yield from _pieces(said, sheet)


def _pieces(texts: Iterable[str], sheet: int) -> Iterator[Piece]:
    """Texts that belong to a sheet, and to no cell."""
    return (Piece(tidy(text), places.of_cell(max(1, sheet))) for text in texts)


def _size(row: _Row) -> int:
    """Bytes of a row's text, at least."""
    return sum(len(text) * min(times, COLUMNS) for text, times in row.cells)


def _cells(row: _Row) -> Iterator[tuple[int, str]]:
    """The cells with text, each with its column; one that stands there often comes as often."""
    column = 1
    for text, times in row.cells:
        if text:
            yield from zip(range(column, min(column + times, COLUMNS)), repeat(text), strict=False)
        column += times


def _rows(found: Iterator[Event], asides: Asides) -> Iterator[str | _Row]:
    """The name of each sheet, and then its rows; a table in a cell is text of that cell.

    Args:
        found: the events of a content.
        asides: gets charts; comments are those of a cell.
    """
    row, cell, times, depth = _Row(1, [], []), Flow(), 1, 0
    for event in found:
        kind, name, told = event
        if depth and asides.take(event):
            continue
        if name == "table:table" and kind != "text":
            depth += 1 if kind == "start" else -1
            if kind == "start" and depth == 1:
                yield told.get("table:name", "")
        elif depth != 1 or kind == "text" or name not in (ROW, *CELLS):
            flow_on(cell, event)
        elif name == ROW:
            if kind == "end":
                yield row
            row = _Row(count(told, "table:number-rows-repeated"), [], [])
        elif kind == "start":
            cell, times = Flow(), count(told, "table:number-columns-repeated")
        else:
            column = 1 + sum(often for _, often in row.cells)
            row.comments.extend((column, text) for text in asides.comments)
            asides.comments.clear()
            row.cells.append((" ".join("".join(cell.found).split()), times))
