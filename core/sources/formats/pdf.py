"""PDF: text of the pages, in the order of the file."""

import re
from collections.abc import Generator
from typing import TYPE_CHECKING, BinaryIO

from longctx.core.common.errors import UnreadableInput
from longctx.core.sources import formats
from longctx.core.sources.limits import Share
from longctx.core.sources.pieces import Piece, plain_lines, tidy

if TYPE_CHECKING:
    from pypdfium2 import PdfDocument, PdfPage

ABSENT = 1000  # unreadable pages in a row after which reading stops
_HYPHEN = re.compile("[\x02\ufffe]\r?\n?")  # where a word continues on the next line


class Format(formats.Format):
    """The text of each page."""

    marks = "page"
    needs = "pypdfium2"

    def convert(self, file: BinaryIO, name: str, share: Share) -> Generator[Piece]:
        """See `formats.Format`."""
        from pypdfium2 import PdfDocument

        pages, found, absent = PdfDocument(file.read()), False, 0
        try:
            for index in range(len(pages)):
                piece = _page(pages, index, name)
                absent = 0 if piece else absent + 1
                if absent > ABSENT:
                    yield Piece(
                        "", index + 1, f"'{name}': the pages from {index + 1:,} on are lost"
                    )
                    break
                piece = piece or Piece("", index + 1, f"'{name}': page {index + 1} cannot be read")
                found |= bool(piece.text)
                yield piece
            if not found:
                raise UnreadableInput(
                    f"cannot read '{name}'",
                    f"its {len(pages):,} pages are pictures without text",
                    "Let a program for text recognition (OCR) put text into it first.",
                )
        finally:
            pages.close()


def _page(pages: "PdfDocument", index: int, name: str) -> Piece | None:
    """The text of a page; None if it cannot be read."""
    from pypdfium2 import PdfiumError

    try:
        page = pages[index]
    except PdfiumError:
        return None
    try:
        return _read(page, index, name)
    finally:
        page.close()


def _read(page: "PdfPage", index: int, name: str) -> Piece:
    from pypdfium2.raw import FPDF_PAGEOBJ_IMAGE

    words = page.get_textpage()
    try:
        text = plain_lines(_HYPHEN.sub("", tidy(words.get_text_bounded())))
    finally:
        words.close()
    if text:
        return Piece(text + "\n", index + 1)
    pictures = any(True for _ in page.get_objects(filter=[FPDF_PAGEOBJ_IMAGE], max_depth=3))
    lost = f"'{name}': page {index + 1} is a picture without text" if pictures else ""
    return Piece("", index + 1, lost)
