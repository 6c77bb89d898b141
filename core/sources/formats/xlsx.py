"""Excel workbooks: the cells of each sheet as they are shown, comments, charts; no macros.

Of formulas the stored values are read. Behind the rows of a sheet come the comments on its cells,
titles and categories of its charts, headers and footers. Sheets that are hidden are read too; links
to other workbooks are not followed.
"""

import re
from collections.abc import Generator
from datetime import datetime, time
from typing import TYPE_CHECKING, Any, BinaryIO
from zipfile import ZipFile

from longctx.core.sources import asides, formats, places
from longctx.core.sources.limits import Share
from longctx.core.sources.office import Read, events, links, package, require_plain
from longctx.core.sources.pieces import Piece, tidy
from longctx.core.sources.sheets import row_pieces, sheet_piece

if TYPE_CHECKING:
    from openpyxl.cell import Cell
    from openpyxl.cell.read_only import ReadOnlyCell

BOOK = "xl/workbook.xml"
BLOCK = 1 << 20  # bytes of a sheet, at the end of which its headers and footers are
# Of a number format: literal text, the language of a currency, and what only takes room.
_LITERAL = re.compile(r'"([^"]*)"|\\(.)|\[\$([^\]-]*)[^\]]*\]|\[[^\]]*\]|[_*].')
_DIGITS = re.compile(r"([^#0?.]*)([#0?,]*[#0?])(?:\.([#0?]+))?([^#0?.,]*)")


class Format(formats.Format):
    """One piece per cell."""

    marks = "sheet"
    needs = "openpyxl"

    def convert(self, file: BinaryIO, name: str, share: Share) -> Generator[Piece]:
        """See `formats.Format`."""
        from openpyxl import load_workbook

        require_plain(file, name, share)
        book = load_workbook(file, read_only=True, data_only=True, keep_links=False)
        try:
            with package(file, name, share) as (names, read), ZipFile(file) as zipped:
                beside = _Beside(zipped, names, read)
                for number, sheet in enumerate(book.worksheets, 1):
                    yield sheet_piece(number, sheet.title)
                    sheet.reset_dimensions()  # they may be wrong
                    for row, cells in enumerate(sheet.iter_rows(), 1):
                        held = (cell for cell in cells if cell.value is not None)
                        yield from row_pieces(number, row, ((c.column, shown(c)) for c in held))
                    yield from beside.pieces(number, sheet.title)
                titles = {sheet.title for sheet in book.worksheets}
                others = (title for title in beside.sheets if title not in titles)
                for number, title in enumerate(others, len(titles) + 1):  # those of a chart alone
                    yield sheet_piece(number, title)
                    yield from beside.pieces(number, title)
        finally:
            book.close()


class _Beside:
    """What belongs to the sheets of a workbook beside their cells.

    Attributes:
        sheets: by title, the part of each.
    """

    def __init__(self, zipped: ZipFile, names: frozenset[str], read: Read):
        self._zipped, self._names, self._read = zipped, names, read
        listed = links(read, names, BOOK) if BOOK in names else {}
        found = events(read(BOOK)) if listed else ()
        sheets = [e.attributes for e in found if (e.kind, e.name) == ("start", "x:sheet")]
        parts = {s.get("name", ""): listed.get(s.get("r:id", ""), ("", ""))[1] for s in sheets}
        self.sheets = {title: part for title, part in parts.items() if part in names}

    def pieces(self, number: int, title: str) -> Generator[Piece]:
        """Comments on a sheet's cells, its charts, its headers and footers."""
        if (part := self.sheets.get(title)) is None:
            return
        comments = self._linked(part, "threadedComment") or self._linked(part, "comments")
        for each in comments:
            for row, column, text in asides.cell_comments(self._read(each)):
                place = places.of_cell(number, row, column)
                yield Piece(f"{asides.COMMENT}{tidy(text)}\n", place)
        drawings = self._linked(part, "drawing")
        charts = [each for drawing in drawings for each in self._linked(drawing, "chart")]
        texts = [asides.chart(self._read(each)) for each in charts]
        for text in (*texts, asides.margins(self._end(part))):
            if text:
                yield Piece(tidy(text), places.of_cell(number))

    def _linked(self, part: str, kind: str) -> list[str]:
        found = links(self._read, self._names, part).values()
        return sorted(own for its, own in found if its == kind and own in self._names)

    def _end(self, part: str) -> bytes:
        """The last bytes of a part, which may be too large to be held."""
        kept = b""
        with self._zipped.open(part) as opened:
            while block := opened.read(BLOCK):
                kept = (kept + block)[-BLOCK:]
        return kept


def shown(cell: "Cell | ReadOnlyCell") -> str:
    """The value of a cell as a workbook shows it, as far as its format is a usual one."""
    value: Any = cell.value
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, int | float):
        return _number(value, cell.number_format)
    if isinstance(value, datetime):
        return str(value.date() if value.time() == time() else value)
    return str(value)


def _number(value: float, form: str) -> str:
    """A number in its format; one of another kind than digits and signs is not followed."""
    clean = _LITERAL.sub(lambda found: "".join(filter(None, found.groups())), form.split(";")[0])
    match = _DIGITS.fullmatch(clean)
    if not match:
        return f"{value:.15g}"
    before, whole, part, after = match.groups(default="")
    least = part.count("0")
    size = abs(value) * (100 if "%" in before + after else 1)
    digits = f"{size:{',' if ',' in whole else ''}.{len(part)}f}"
    if len(part) > least:
        kept = digits.rstrip("0")
        digits = digits[: max(len(kept), len(digits) - len(part) + least)].rstrip(".")
    return f"{'-' * (value < 0)}{before}{digits}{after}".strip()
