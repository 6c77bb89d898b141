"""OpenDocument texts: paragraphs with their notes, tables by rows; then headers and footers.

Numbering continues through the headers and footers. Deleted text and comments are left out.
"""

from collections.abc import Generator
from typing import BinaryIO

from longctx.core.sources import formats
from longctx.core.sources.flow import Flow
from longctx.core.sources.limits import Share
from longctx.core.sources.office import package
from longctx.core.sources.opendocument import CONTENT, STYLES, body, flow_on
from longctx.core.sources.pieces import Piece, tidy

MARGINS = ("style:header", "style:footer")  # and `style:header-left`, ...


class Format(formats.Format):
    """One piece per paragraph with text."""

    marks = "paragraph"

    def convert(self, file: BinaryIO, name: str, share: Share) -> Generator[Piece]:
        """See `formats.Format`."""
        with package(file, name, share) as (names, read):
            texts = _paragraphs(read(CONTENT), ("office:text",))
            margins = _paragraphs(read(STYLES), MARGINS) if STYLES in names else []
        for number, text in enumerate([*texts, *margins], 1):
            if text:
                yield Piece(tidy(text), number)


def _paragraphs(xml: bytes, within: tuple[str, ...]) -> list[str]:
    """The paragraphs in elements whose names begin so."""
    flow, depth = Flow(), 0
    for event in body(xml):
        if event.kind != "text" and event.name.startswith(within):
            depth += 1 if event.kind == "start" else -1
        elif depth > 0:
            flow_on(flow, event)
    return flow.found
