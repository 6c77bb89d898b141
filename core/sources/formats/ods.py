"""OpenDocument spreadsheets: the cells of each sheet, row by row, as they are shown.

Sheets that are hidden are read too; comments, charts and links to other files are not.
"""

from collections.abc import Generator, Iterator
from itertools import repeat
from typing import BinaryIO, NamedTuple

from longctx.core.sources import formats
from longctx.core.sources.flow import Flow
from longctx.core.sources.limits import Share
from longctx.core.sources.office import Event, package
from longctx.core.sources.opendocument import CELLS, CONTENT, body, count, flow_on
from longctx.core.sources.pieces import Piece
from longctx.core.sources.places import COLUMNS
from longctx.core.sources.sheets import row_pieces, sheet_piece

ROW = "table:table-row"


class _Row(NamedTuple):
    """A row: how often it stands there, and its cells as (text, how often)."""

    times: int
    cells: list[tuple[str, int]]


class Format(formats.Format):
    """One piece per cell."""

    marks = "sheet"

    def convert(self, file: BinaryIO, name: str, share: Share) -> Generator[Piece]:
        """See `formats.Format`."""
        with package(file, name, share) as (_, read):
            xml = read(CONTENT)
        sheet, number = 0, 0
        for found in _rows(body(xml)):
            if isinstance(found, str):
                sheet, number = sheet + 1, 0
                yield sheet_piece(sheet, found)
                continue
            if sheet and any(text for text, _ in found.cells):
                share.budget.require_room(found.times * _size(found))
                for row in range(number + 1, number + 1 + found.times):
                    yield from row_pieces(sheet, row, _cells(found))
            number += found.times


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


def _rows(found: Iterator[Event]) -> Iterator[str | _Row]:
    """The name of each sheet, and then its rows; a table in a cell is text of that cell."""
    row, cell, times, depth = _Row(1, []), Flow(), 1, 0
    for event in found:
        kind, name, told = event
        if name == "table:table" and kind != "text":
            depth += 1 if kind == "start" else -1
            if kind == "start" and depth == 1:
                yield told.get("table:name", "")
        elif depth != 1 or kind == "text" or name not in (ROW, *CELLS):
            flow_on(cell, event)
        elif name == ROW:
            if kind == "end":
                yield row
            row = _Row(count(told, "table:number-rows-repeated"), [])
        elif kind == "start":
            cell, times = Flow(), count(told, "table:number-columns-repeated")
        else:
            row.cells.append((" ".join("".join(cell.found).split()), times))
