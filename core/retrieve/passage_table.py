"""The passages of documents as arrays: where each begins, and which surround it.

A passage is about 128 tokens of one source (`core/passages/cutting.py`). It is what is scored by
words and by embeddings, ranked, gathered, read, cited and shown.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class Passages:
    """The passages of documents, one document after another.

    P passages, D documents. Tokens and passages are numbered through all documents.

    Attributes:
        documents: (P,) int32, index of each passage's document.
        sources: (P,) int32, index of its source in that document.
        tokens: (P,) int64, its first token.
        lengths: (P,) int32, its number of tokens.
        starts: (P,) int64, its first byte in its source.
        first_tokens: (D + 1,) int64, first token of each document, and the end.
        first_passages: (D + 1,) int64, likewise.
    """

    documents: np.ndarray
    sources: np.ndarray
    tokens: np.ndarray
    lengths: np.ndarray
    starts: np.ndarray
    first_tokens: np.ndarray
    first_passages: np.ndarray

    @classmethod
    def made(
        cls,
        documents: np.ndarray,
        sources: np.ndarray,
        lengths: np.ndarray,
        starts: np.ndarray,
        tokens: np.ndarray,
    ) -> "Passages":
        """The passages of documents, from what is stored of each.

        Args:
            documents, sources, lengths, starts: (P,) as the attributes, in order.
            tokens: (D,) of each document.
        """
        ends = np.cumsum(lengths, dtype=np.int64)
        counts = np.bincount(documents, minlength=len(tokens)) if len(tokens) else []
        return cls(
            documents.astype(np.int32),
            sources.astype(np.int32),
            ends - lengths,
            lengths.astype(np.int32),
            starts.astype(np.int64),
            np.concatenate([[0], np.cumsum(tokens, dtype=np.int64)]),
            np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]),
        )

    def __len__(self) -> int:
        return len(self.sources)

    def of_document(self, number: int) -> "Passages":
        """The passages of one document, with its tokens and passages numbered from 0."""
        first, end = self.first_passages[number : number + 2].tolist()
        own = slice(first, end)
        return Passages.made(
            np.zeros(end - first, np.int32),
            self.sources[own],
            self.lengths[own],
            self.starts[own],
            np.diff(self.first_tokens[number : number + 2]),
        )

    @cached_property
    def last(self) -> np.ndarray:
        """(P,) int64, the last passage of each passage's source."""
        ends = np.flatnonzero(np.append(self._begins[1:], len(self) > 0))
        return ends[self._numbers]

    @cached_property
    def first(self) -> np.ndarray:
        """(P,) int64, the first passage of each passage's source."""
        return np.flatnonzero(self._begins)[self._numbers]

    @cached_property
    def _begins(self) -> np.ndarray:
        """(P,) bool, whether a passage is the first of its source."""
        before = np.stack([self.documents, self.sources])
        return np.append(np.ones(min(1, len(self)), bool), (np.diff(before) != 0).any(axis=0))

    @cached_property
    def _numbers(self) -> np.ndarray:
        """(P,) int64, the number of each passage's source among all sources that have any."""
        return np.cumsum(self._begins) - 1

    def alone(self) -> np.ndarray:
        """Each passage as a range: (P, 2) int64, first and last passage, both itself."""
        own = np.arange(len(self))
        return np.stack([own, own], axis=1)

    def around(self, count: int) -> np.ndarray:
        """Each passage with up to `count` neighbours on each side, in its source: (P, 2) int64."""
        own = np.arange(len(self))
        low, high = np.maximum(own - count, self.first), np.minimum(own + count, self.last)
        return np.stack([low, high], axis=1)

    def runs(self, count: int) -> np.ndarray:
        """The runs of `count` passages of one source, shifted by one: (R, 2) int64.

        A source of fewer passages has one run of all of them.
        """
        own = np.arange(len(self))
        last = np.minimum(own + count - 1, self.last)
        kept = (last - own == count - 1) | self._begins
        return np.stack([own[kept], last[kept]], axis=1)

    def containing(self, document: int, source: int, byte: int) -> int:
        """The passage of a source that has a byte; for bytes before its first token, the first."""
        low, high = self.first_passages[document : document + 2].tolist()
        first, last = low + np.searchsorted(self.sources[low:high], [source, source + 1])
        place = np.searchsorted(self.starts[first:last], byte, side="right")
        return int(first + max(0, place - 1))
