"""Where something stands: names, a line and bytes; and passages. Imports no model library."""

from dataclasses import asdict, dataclass
from typing import Any

from longctx.core.store.document import Document


@dataclass(frozen=True)
class Place:
    """Where a stretch stands.

    Attributes:
        document, source: names.
        line: 1-based line of the source's text on which it starts.
        place: where that is in the original: a line, or a page or chapter ("p. 12").
        start, end: byte offsets in the source; `source[start:end]` is the stretch.
    """

    document: str
    source: str
    line: int
    place: str
    start: int
    end: int


@dataclass(frozen=True)
class Passage(Place):
    """A run of a document's text that fits a question.

    Attributes:
        score: how well, by the gather source; of the best window or token of it.
        text: its bytes, decoded.
        best_place, best_text: the line or sentence by which it is shown to people, and the place of
            that; not part of the JSON schema. Without a word of the question, the best token's line
            from shortly before that token.
    """

    score: float
    text: str
    best_place: str
    best_text: str

    @property
    def line_text(self) -> str:
        """The line or sentence with most of the question's words."""
        return self.best_text

    @property
    def cite(self) -> str:
        """Where that line is, as `book.txt:12` or `report.pdf:p. 3`."""
        return f"{self.source}:{self.best_place}"

    def as_dict(self) -> dict[str, Any]:
        """The fields of the JSON schema."""
        values = asdict(self)
        del values["best_place"], values["best_text"]
        return values


def placed(document: Document, source: int, start: int, end: int) -> dict[str, Any]:
    """The fields of a `Place`, of bytes [start, end) of a document's source.

    Raises:
        StateMismatch: the document is damaged.
    """
    return {
        "document": document.manifest.name,
        "source": document.manifest.sources[source].name,
        "line": document.line(source, start),
        "place": document.place(source, start),
        "start": start,
        "end": end,
    }
