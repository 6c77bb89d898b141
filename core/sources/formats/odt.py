"""OpenDocument texts: paragraphs, notes, tables by rows; then comments, charts, headers, footers.

Numbering continues through these; of a chart come titles and categories. Deleted text is left out.
"""

from collections.abc import Generator
from typing import BinaryIO

from longctx.core.sources import formats
from longctx.core.sources.limits import Share
from longctx.core.sources.office import package
from longctx.core.sources.opendocument import CONTENT, MARGINS, STYLES, Asides, paragraphs_in
from longctx.core.sources.pieces import Piece, tidy


class Format(formats.Format):
    """One piece per paragraph with text."""

    marks = "paragraph"

    def convert(self, file: BinaryIO, name: str, share: Share) -> Generator[Piece]:
        """See `formats.Format`."""
        with package(file, name, share) as (names, read):
            asides = Asides()
            texts = paragraphs_in(read(CONTENT), ("office:text",), asides)
            beside = [*asides.lines(read, names)]
            margins = paragraphs_in(read(STYLES), MARGINS, Asides()) if STYLES in names else []
        for number, text in enumerate([*texts, *beside, *margins], 1):
            if text:
                yield Piece(tidy(text), number)
