"""Passages as texts: what the reader that points reads of them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from longctx.core.passages.context import REACH, context
from longctx.core.reader.choosing import place_scores
from longctx.core.reader.pointing import ToRead, reader, to_be_read
from longctx.core.retrieve.passage_table import Passages
from longctx.core.store.document import Document

BYTES = 4  # of a character, at most


@dataclass(frozen=True)
class Stretch:
    """A passage: bytes [start, end) of a source.

    Attributes:
        document: open.
        source: its number in the document.
        start, end: bytes.
        text: these, decoded.
    """

    document: Document
    source: int
    start: int
    end: int
    text: str

    def to_read(self) -> ToRead:
        """The passage with what stands above it."""
        info = self.document.manifest.sources[self.source]
        first = max(0, self.start - REACH * BYTES)
        before = self.document.text(self.source, first, self.start)
        return ToRead(self.text, context(before.decode(info.codec, errors="replace"), self.text))


def stretch(documents: Sequence[Document], passages: Passages, number: int) -> Stretch:
    """A passage's bytes and text.

    Args:
        documents: open; those of the passages, in order.
        passages: all.
        number: which of them.

    Raises:
        StateMismatch: the text is damaged.
    """
    document = documents[int(passages.documents[number])]
    source, start = int(passages.sources[number]), int(passages.starts[number])
    same = number + 1 < len(passages) and bool(
        passages.sources[number + 1] == source
        and passages.documents[number + 1] == passages.documents[number]
    )
    info = document.manifest.sources[source]
    end = int(passages.starts[number + 1]) if same else info.size
    text = document.text(source, start, end).decode(info.codec, errors="replace")
    return Stretch(document, source, start, end, text)


@dataclass(frozen=True)
class Answers:
    """How well passages answer a question, by the reader's best stretch of each.

    Attributes:
        documents, passages: as of `stretch`.
        question: the user's words.
        device: where the reader computes.
    """

    documents: Sequence[Document]
    passages: Passages
    question: str
    device: str

    @property
    def most(self) -> int:
        """Passages that the reader reads there."""
        return to_be_read(self.device)

    def scores(self, best: np.ndarray, search: np.ndarray) -> np.ndarray:
        """Of passages (P,), best first, with a search's scores (P,): (P,) float64.

        Minus infinity where the reader points at nothing.

        Raises:
            StateMismatch: a document is damaged.
            LongctxError: the reader's files are missing or damaged.
        """
        stretches = [stretch(self.documents, self.passages, int(number)) for number in best]
        read = reader(self.device).point(self.question, [one.to_read() for one in stretches])
        texts = [one.text for one in stretches]
        values = np.full(len(best), -np.inf)
        for place, score in zip(
            read, place_scores(self.question, texts, search, read), strict=True
        ):
            values[place.passage] = max(values[place.passage], score)
        return values
