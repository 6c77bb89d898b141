"""Where something stands: names, a line and bytes."""

from dataclasses import dataclass
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
