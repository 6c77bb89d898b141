"""Jupyter notebooks: source and text output of each cell."""

import json
import re
from collections.abc import Generator
from typing import Any, BinaryIO

from longctx.core.sources import formats
from longctx.core.sources.limits import Share
from longctx.core.sources.pieces import Piece, plain_lines, tidy

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class Format(formats.Format):
    """One piece per cell; images and other non-text output are left out."""

    marks = "cell"

    def convert(self, file: BinaryIO, name: str, share: Share) -> Generator[Piece]:
        """See `formats.Format`."""
        book = json.loads(file.read())
        if not isinstance(book, dict):
            raise ValueError("it is no notebook")
        cells = book.get("cells")
        if cells is None:  # before version 4
            cells = [cell for sheet in _listed(book["worksheets"]) for cell in _cells_of(sheet)]
        if not isinstance(cells, list) or not all(isinstance(cell, dict) for cell in cells):
            raise ValueError("it has no cells")
        for number, cell in enumerate(cells, 1):
            parts = [
                cell.get("source", cell.get("input")),
                *map(_output, _listed(cell.get("outputs"))),
            ]
            texts = [plain_lines(tidy(_joined(part))) for part in parts]
            if any(texts):
                yield Piece("".join(texts) + "\n", number)


def _cells_of(sheet: Any) -> list[Any]:
    """The cells of a sheet."""
    return _listed(sheet["cells"]) if isinstance(sheet, dict) else []


def _listed(value: Any) -> list[Any]:
    """The value if it is a list; else an empty list."""
    return value if isinstance(value, list) else []


def _joined(text: Any) -> str:
    """A text that may be stored as a list of lines."""
    if isinstance(text, list):
        return "".join(line for line in text if isinstance(line, str))
    return text if isinstance(text, str) else ""


def _output(output: Any) -> str:
    """The text of an output."""
    if not isinstance(output, dict):
        return ""
    if "ename" in output:
        return f"{output['ename']}: {output.get('evalue', '')}"
    data = output.get("data")
    text = data.get("text/plain") if isinstance(data, dict) else output.get("text")
    return _COLOURS.sub("", _joined(text))
