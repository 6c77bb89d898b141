"""The documents of a set in passages, for the searches that longctx is compared with."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from public_sets.items import PublicSet, Record

SIZE = 520  # characters: about 128 tokens
_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+|\n")


@dataclass(frozen=True)
class Piece:
    """A passage: bytes of a source, or a part of a page.

    Attributes:
        document, source, place: names; a place is a page (`p. 12`) or empty.
        start, end: bytes of the source; of a PDF, characters of the page.
        text: it.
    """

    document: str
    source: str
    start: int
    end: int
    place: str
    text: str

    def spot(self) -> Record:
        """As a result keeps it."""
        kept = ("document", "source", "start", "end", "place")
        return {name: getattr(self, name) for name in kept}


def pieces(found: PublicSet, document: str) -> list[Piece]:
    """The passages of a document: turns of a conversation, else whole lines or sentences."""
    cut = {"lara": _of_text, "financebench": _of_pdf}.get(found.name, _of_lines)
    files = found.documents[document]
    return [piece for file, data in files.items() for piece in cut(document, file, data)]


def _of_text(document: str, file: str, data: bytes) -> Iterator[Piece]:
    text = data.decode("latin-1")  # a character a byte, so that offsets are those of bytes
    for start, end in spans(text):
        yield Piece(document, file, start, end, "", data[start:end].decode("utf-8", "replace"))


def _of_lines(document: str, file: str, data: bytes) -> Iterator[Piece]:
    at = 0
    for line in data.split(b"\n"):
        if line and not line.startswith(b"## "):
            yield Piece(document, file, at, at + len(line), "", line.decode())
        at += len(line) + 1


def _of_pdf(document: str, file: str, data: bytes) -> Iterator[Piece]:
    from pypdfium2 import PdfDocument

    pages = PdfDocument(data)
    try:
        for number, page in enumerate(pages, 1):
            words = page.get_textpage()
            text = words.get_text_bounded().replace("\r\n", "\n")
            words.close()
            page.close()
            for start, end in spans(text):
                place = f"p. {number}"
                yield Piece(document, file, start, end, place, text[start:end])
    finally:
        pages.close()


def spans(text: str, size: int = SIZE) -> list[tuple[int, int]]:
    """Ranges of at most about `size` characters that end with lines or sentences, if they can."""
    found, start, last = [], 0, 0
    for end in [*(match.end() for match in _END.finditer(text)), len(text)]:
        if end - start > size and last > start:
            found.append((start, last))
            start = last
        while end - start > size:  # one that is too long is cut at a space
            cut = text.rfind(" ", start, start + size) + 1
            cut = cut if cut > start else start + size
            found.append((start, cut))
            start = cut
        last = end
    if text[start:].strip():
        found.append((start, len(text)))
    return [(one, other) for one, other in found if text[one:other].strip()]
