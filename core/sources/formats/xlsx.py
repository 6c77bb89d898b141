"""Excel workbooks: the cells of each sheet, row by row, as they are shown; no macros.

Of formulas the stored values are read. Sheets that are hidden are read too; comments, charts and
links to other workbooks are not.
"""

import re
from collections.abc import Generator
from datetime import datetime, time
from typing import TYPE_CHECKING, Any, BinaryIO

from longctx.core.sources import formats
from longctx.core.sources.limits import Share
from longctx.core.sources.office import require_plain
from longctx.core.sources.pieces import Piece
from longctx.core.sources.sheets import row_pieces, sheet_piece

if TYPE_CHECKING:
    from openpyxl.cell import Cell
    from openpyxl.cell.read_only import ReadOnlyCell

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
            for number, sheet in enumerate(book.worksheets, 1):
                yield sheet_piece(number, sheet.title)
                sheet.reset_dimensions()  # they may be wrong
                for row, cells in enumerate(sheet.iter_rows(), 1):
                    held = (cell for cell in cells if cell.value is not None)
                    yield from row_pieces(number, row, ((c.column, shown(c)) for c in held))
        finally:
            book.close()


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
