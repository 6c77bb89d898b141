"""A hit: a passage as `find` lists it, with the line that matches."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from longctx.core.passages.matching import Span
from longctx.core.store.document import Document

SCHEMA_VERSION = 2  # of the JSON of `ask` and `find`


@dataclass(frozen=True)
class Match:
    """The matching line, or the matching sentence of a long one or of wrapped prose.

    Attributes:
        line: its number from 1, in the source's text.
        place: where it is in the original: a line, or a page or chapter ("p. 12").
        start, end: its bytes in the source.
        text: these bytes, decoded; a sentence of wrapped prose has the ends of its lines.
        line_text: `text` with spaces for the ends of wrapped lines, of the same length.
        words: byte ranges in the source of what the query matches, ascending.
        marked: the same, in characters of `text`.
        shown: the part of `text` that is shown, in characters: all, except of a very long sentence.
    """

    line: int
    place: str
    start: int
    end: int
    text: str
    line_text: str
    words: tuple[Span, ...]
    marked: tuple[Span, ...]
    shown: Span


@dataclass(frozen=True)
class Hit:
    """A passage that was found.

    Attributes:
        document, source: indices.
        tokens: how many it has.
        line, place: where it begins, as in `Match`.
        start, end: its bytes in the source.
        score: of its best window.
        exact: it contains the query, or a quoted part of the query, verbatim.
        text: its bytes, decoded.
        match: its matching line.
    """

    document: int
    source: int
    tokens: int
    line: int
    place: str
    start: int
    end: int
    score: float
    exact: bool
    text: str
    match: Match

    def as_dict(self, documents: Sequence[Document]) -> dict[str, Any]:
        """The fields of the JSON schema; `documents` are those searched, in order."""
        manifest, match = documents[self.document].manifest, self.match
        return {
            "document": manifest.name,
            "source": manifest.sources[self.source].name,
            **{"line": self.line, "place": self.place, "start": self.start, "end": self.end},
            **{"score": round(self.score, 6), "exact": self.exact, "text": self.text},
            "match": {
                **{"line": match.line, "place": match.place},
                **{"start": match.start, "end": match.end, "text": match.text},
                "words": [list(span) for span in match.words],
            },
        }
