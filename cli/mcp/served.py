"""What the server offers of a library: each tool's work, without the protocol.

Everything here may take a while, and runs in a thread of its own (`work.py`).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from longctx.cli.mcp import places
from longctx.cli.mcp.allowed import Allowed
from longctx.cli.mcp.results import (
    SOURCES,
    Answer,
    Document,
    Documents,
    Found,
    Ingested,
    Passage,
)
from longctx.core.common.errors import NotFound

if TYPE_CHECKING:
    import longctx
    from longctx.core.ask.place import Passage as Gathered


UNCHANGED = "unchanged"  # status of a reading that had nothing to do
UNREAD = 100  # files that are named


@dataclass(frozen=True)
class Served:
    """A library, and the folders from which documents may be read into it.

    Attributes:
        library: stays open, with its model.
        allowed: what may be read.
    """

    library: "longctx.Library"
    allowed: Allowed

    def documents(self) -> Documents:
        """What is in the library."""
        return Documents(documents=[_document(document) for document in self.library.documents()])

    def document(self, name: str) -> Document:
        """One of them; NotFound where there is none."""
        return _document(self.library[name])

    def lines(self, name: str, source: str, first: int, last: int) -> list[tuple[int, str]]:
        """Lines [first, last] of a source, from 1, with their numbers.

        Raises:
            NotFound: there is no such document or source, or it has no such line.
        """
        document = self.library.document(name)
        if source not in document.sources:
            told = ", ".join(f"'{known}'" for known in document.sources[:SOURCES])
            raise NotFound(
                f"'{name}' has no text '{source}'", f"it has {told}", "Name one of them."
            )
        lines = document.lines(document.sources.index(source), first, last)
        if not lines:
            why = "it is shorter"
            raise NotFound(f"'{source}' has no line {first}", why, "Name an earlier line.")
        return lines

    def find(self, query: str, documents: Sequence[str] | None, **more: Any) -> Found:
        """The passages that fit a query."""
        found = self.library.find(query, documents, **more)
        passages = _passages(found.passages)
        return Found(found=found.found, documents=found.documents, passages=passages)

    def ask(self, question: str, documents: Sequence[str] | None, **more: Any) -> Answer:
        """The answer to a question."""
        answer = self.library.ask(question, documents, anyway=False, **more)
        sentence = answer.sentence
        cite = None if sentence is None else f"{sentence.source}:{sentence.place}"
        return Answer(
            answer=answer.answer,
            found=answer.found,
            sentence=None if sentence is None else sentence.text,
            cite=cite,
            is_quotation=answer.quote is not None,
            stop=answer.stop,
            documents=answer.documents,
            passages=_passages(answer.passages),
        )

    def ingest(self, paths: Sequence[str], on_progress: Callable, **more: Any) -> Ingested:
        """Reads files and folders into a document.

        Raises:
            UsageError: one of them is not allowed.
        """
        document = self.library.ingest(*self.allowed.paths(paths), on_progress=on_progress, **more)
        done = document.ingested
        return Ingested(
            document=_document(document),
            unchanged=done is not None and done.status == UNCHANGED,
            unread=[] if done is None else [*done.skipped, *done.lost, *done.left_out][:UNREAD],
        )

    def rest(self) -> None:
        """Lets go of what is open but the model, so that other processes may replace or delete."""
        self.library.close()


def _document(document: "longctx.Document") -> Document:
    return Document(
        name=document.name,
        uri=places.of_document(document.name),
        tokens=document.tokens,
        status=document.status,
        sources=[*document.sources[:SOURCES]],
        source_count=len(document.sources),
        model=document.model,
        method=document.method,
        created=document.created,
    )


def _passages(passages: "Iterable[Gathered]") -> list[Passage]:
    return [
        Passage(
            document=passage.document,
            source=passage.source,
            cite=passage.cite,
            uri=places.of_lines(
                passage.document,
                passage.source,
                passage.line,
                passage.line + passage.text.rstrip("\n").count("\n"),
            ),
            text=passage.text,
            line_text=passage.line_text,
            score=passage.score,
        )
        for passage in passages
    ]
