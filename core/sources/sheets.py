"""The rows of spreadsheets as text: a line for each, cells apart by tabs, each with its place."""

from collections.abc import Iterable, Iterator

from longctx.core.sources import places
from longctx.core.sources.pieces import Piece, tidy

GAP = 8  # tabs for empty cells in a row, at most


def sheet_piece(sheet: int, name: str) -> Piece:
    """The heading of a sheet, which is counted from 1."""
    return Piece("\n" * (sheet > 1) + tidy(places.heading("sheet", name)), places.of_cell(sheet))


def row_pieces(sheet: int, row: int, cells: Iterable[tuple[int, str]]) -> Iterator[Piece]:
    """A piece for each cell that has text.

    Args:
        sheet, row: counted from 1.
        cells: (column from 1, text) in order.
    """
    before, held = 1, None
    for column, text in cells:
        words = " ".join(tidy(text).split())
        if not words:
            continue
        gap = "\t" * min(column - before, GAP)
        if held:
            yield held._replace(text=held.text + gap)
            gap = ""
        held, before = Piece(gap + words, places.of_cell(sheet, row, column)), column
    if held:
        yield held._replace(text=held.text + "\n")
