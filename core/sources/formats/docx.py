"""DOCX: paragraphs, tables by rows; then notes, comments, charts, headers, footers; no macros.

Numbering continues through these; of a chart come titles and categories. Deleted text is left out.
A file that declares a document type, which Word never does, is refused: such declarations can
expand without limit.
"""

import re
from collections.abc import Generator
from typing import BinaryIO

from longctx.core.sources import asides, formats
from longctx.core.sources.limits import Share
from longctx.core.sources.office import Read, package, paragraphs
from longctx.core.sources.pieces import Piece, tidy

TEXT, NOTES = "word/document.xml", ("word/footnotes.xml", "word/endnotes.xml")
COMMENTS = "word/comments.xml"
CHART = re.compile(r"word/charts/chart\d*\.xml")
MARGIN = re.compile(r"word/(?:header|footer)\d*\.xml")
SIGNS = {"w:tab": "\t", "w:br": "\n", "w:cr": "\n", "w:noBreakHyphen": "-"}
# The form of paragraphs, with tab stops; the same again for old programs; what was moved away.
SKIPPED = frozenset({"w:pPr", "mc:Fallback", "w:moveFrom"})


class Format(formats.Format):
    """One piece per paragraph with text; of equal headers or footers the first."""

    marks = "paragraph"

    def convert(self, file: BinaryIO, name: str, share: Share) -> Generator[Piece]:
        """See `formats.Format`."""
        number, seen = 0, set()
        with package(file, name, share) as (names, read):
            if TEXT not in names:
                raise ValueError(f"it has no {TEXT}")
            margins = sorted(part for part in names if MARGIN.fullmatch(part))
            charts = sorted(part for part in names if CHART.fullmatch(part))
            for part in (TEXT, *NOTES, COMMENTS, *charts, *margins):
                texts = _texts(read, part) if part in names else []
                repeats = part in margins and tuple(texts) in seen
                seen.add(tuple(texts) if part in margins else ())
                for text in texts:
                    number += 1
                    if text and not repeats:
                        yield Piece(tidy(text), number)


def _texts(read: Read, part: str) -> list[str]:
    """The paragraphs of a part; those of a chart are its lines."""
    if CHART.fullmatch(part):
        return asides.chart(read(part)).splitlines(keepends=True)
    found = paragraphs(read(part), "w", SKIPPED, SIGNS)
    return [text and asides.COMMENT + text for text in found] if part == COMMENTS else found
