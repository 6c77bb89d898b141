"""HTML: what people see, and texts in place of pictures; no scripts."""

from collections.abc import Generator
from typing import BinaryIO

from longctx.core.sources import formats
from longctx.core.sources.detect import detect
from longctx.core.sources.limits import Share
from longctx.core.sources.markup import said_encoding, text_of
from longctx.core.sources.pieces import Piece, decoded


class Format(formats.Format):
    """The text of a page; scripts and styles are left out."""

    marks = "line"

    def convert(self, file: BinaryIO, name: str, share: Share) -> Generator[Piece]:
        """See `formats.Format`."""
        text, bad = page_text(file.read(), name)
        yield Piece("", 1, undecodable=bad)
        yield from text_of(text)


def page_text(data: bytes, name: str) -> tuple[str, int]:
    """The source of a page as text, and the number of undecodable places."""
    encoding = said_encoding(data)
    skipped = 0
    if not encoding:
        encoding, skipped = detect(data, name, found=True)  # as in a book, where no user named it
    return decoded(data[skipped:], encoding)
