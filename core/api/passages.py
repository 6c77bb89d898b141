"""What a search gives: passages with their lines, as people and programs read them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from longctx.core.ask.place import Passage

if TYPE_CHECKING:
    from longctx.core.retrieve.hit import Hit, Match
    from longctx.core.store.document import Document


@dataclass(frozen=True)
class Line:
    """A line beside the one that matches.

    Attributes:
        line: its number from 1, in the source's text.
        place: where it is in the original: a line, or a page or chapter ("p. 12").
        text: the line, cut where it is very long.
    """

    line: int
    place: str
    text: str


@dataclass(frozen=True)
class FoundPassage(Passage):
    """A passage of a search, with the line that matches.

    Attributes:
        exact: it contains the query, or a quoted part of it, verbatim.
        tokens: how many it has.
        match: its matching line, with the words that match.
        path: the file that its source was read from; None: it was none.
        is_plain: lines are those of the file, which was not unpacked or converted.
        before, behind: the lines around the matching one, if they were asked for.
    """

    exact: bool
    tokens: int
    match: "Match"
    path: str | None
    is_plain: bool
    before: tuple[Line, ...] = ()
    behind: tuple[Line, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The fields of the JSON schema of `find`."""
        match = self.match
        return {
            **{"document": self.document, "source": self.source},
            **{"line": self.line, "place": self.place, "start": self.start, "end": self.end},
            **{"score": round(self.score, 6), "exact": self.exact, "text": self.text},
            "match": {
                **{"line": match.line, "place": match.place},
                **{"start": match.start, "end": match.end, "text": match.text},
                "words": [list(span) for span in match.words],
            },
        }


@dataclass(frozen=True)
class Findings:
    """What was found for a query: a sequence of passages, best first.

    Attributes:
        passages: them.
        values: the JSON object of `longctx find --json`.
    """

    passages: list[FoundPassage]
    values: dict[str, Any]

    def __iter__(self) -> Iterator[FoundPassage]:
        return iter(self.passages)

    def __len__(self) -> int:
        return len(self.passages)

    @property
    def query(self) -> str:
        """The words that were looked for."""
        return self.values["question"]

    @property
    def found(self) -> str:
        """Whether the documents seem to have it: "yes", "unsure" or "no"."""
        return self.values["found"]

    @property
    def evidence(self) -> float | None:
        """The share of the query's words that occur together; None: none of them counts."""
        return self.values["evidence"]

    @property
    def documents(self) -> list[str]:
        """Names of the documents that were searched."""
        return self.values["documents"]

    @property
    def timings(self) -> dict[str, float]:
        """Seconds: load_s (once), gather_s, total_s."""
        return self.values["timings"]

    def as_dict(self) -> dict[str, Any]:
        """The JSON object of `longctx find --json`."""
        return self.values


def findings(
    documents: "Sequence[Document]", hits: "Sequence[Hit]", values: dict[str, Any], around: int
) -> Findings:
    """The hits of a search as passages; what is shown of them is read here.

    Args:
        documents: open, those searched.
        hits: best first.
        values: the JSON object.
        around: lines before and behind the matching one.

    Raises:
        StateMismatch: a document is damaged.
    """
    return Findings([_passage(documents[hit.document], hit, around) for hit in hits], values)


def _passage(document: "Document", hit: "Hit", around: int) -> FoundPassage:
    source = document.manifest.sources[hit.source]
    before, behind = _context(document, hit, around) if around else ((), ())
    return FoundPassage(
        document=document.manifest.name,
        source=source.name,
        line=hit.line,
        place=hit.place,
        start=hit.start,
        end=hit.end,
        score=hit.score,
        text=hit.text,
        best_place=hit.match.place,
        best_text=hit.match.line_text,
        exact=hit.exact,
        tokens=hit.tokens,
        match=hit.match,
        path=source.path,
        is_plain=source.origin is None,
        before=before,
        behind=behind,
    )


def _context(
    document: "Document", hit: "Hit", around: int
) -> tuple[tuple[Line, ...], tuple[Line, ...]]:
    from longctx.core.passages.matching import LONG
    from longctx.core.passages.near_lines import context

    source, match = hit.source, hit.match
    before, behind = (
        tuple(
            Line(document.line(source, start), document.place(source, start), text[:LONG])
            for start, text in side
        )
        for side in context(document, source, match.start, match.end, around)
    )
    return before, behind
