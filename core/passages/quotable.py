"""Passages to quote from, and where a quotation stands, to the byte."""

from dataclasses import dataclass

from longctx.core.passages.snippet import Snippet
from longctx.core.store.document import Document


@dataclass(frozen=True)
class Excerpt:
    """A passage to quote from.

    Attributes:
        document: the open document.
        source: the number of the source in it.
        snippet: the passage; it may begin earlier by a part of a character.
        low: the passage's first character in the snippet.
    """

    document: Document
    source: int
    snippet: Snippet
    low: int

    @classmethod
    def of(cls, document: Document, source: int, start: int, end: int) -> "Excerpt":
        """Bytes [start, end) of a source.

        Raises:
            StateMismatch: the text is damaged.
            ValueError: the source lacks these bytes.
        """
        snippet = Snippet.of(document, source, start, end)
        return cls(document, source, snippet, snippet.since(start))


@dataclass(frozen=True)
class Span:
    """Where a quotation stands.

    Attributes:
        excerpt: the passage.
        start, end: bytes of its source.
        text: these bytes, decoded.
    """

    excerpt: Excerpt
    start: int
    end: int
    text: str
