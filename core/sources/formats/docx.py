"""DOCX: paragraphs, those in tables too; then foot- and endnotes; without deleted text.

Numbering continues through the notes. A file that declares a document type, which Word never does,
is refused: such declarations can expand without limit.
"""

from collections.abc import Generator
from typing import BinaryIO
from xml.parsers import expat

from longctx.core.sources import formats
from longctx.core.sources.limits import Share
from longctx.core.sources.pieces import Piece, tidy
from longctx.core.sources.zipped import members_of

PARTS = ("word/document.xml", "word/footnotes.xml", "word/endnotes.xml")
SIGNS = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}


class Format(formats.Format):
    """One piece per paragraph with text."""

    marks = "paragraph"

    def convert(self, file: BinaryIO, name: str, share: Share) -> Generator[Piece]:
        """See `formats.Format`."""
        number = 0
        with members_of(file, name, share) as (names, read):
            if PARTS[0] not in names:
                raise ValueError(f"it has no {PARTS[0]}")
            for part in PARTS:
                for text in _paragraphs(read(part)) if part in names else ():
                    number += 1
                    if text.strip():
                        yield Piece(tidy(text) + "\n", number)


def _paragraphs(xml: bytes) -> list[str]:
    """The text of each paragraph in order of their ends."""
    found: list[str] = []
    open_ones: list[list[str]] = []  # a text box has paragraphs inside a paragraph
    inside_text = False

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal inside_text
        name = tag.rpartition(":")[2]
        if name == "p" and tag.startswith("w:"):
            open_ones.append([])
        elif name in SIGNS and open_ones:
            open_ones[-1].append(SIGNS[name])
        inside_text = tag == "w:t"

    def end(tag: str) -> None:
        nonlocal inside_text
        inside_text = False
        if tag == "w:p":
            found.append("".join(open_ones.pop()))

    def text(data: str) -> None:
        if inside_text and open_ones:
            open_ones[-1].append(data)

    def refuse(*declared: object) -> None:
        raise ValueError("it declares a document type")

    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler, parser.StartDoctypeDeclHandler = text, refuse
    parser.Parse(xml, True)
    return found
