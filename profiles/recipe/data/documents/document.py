"""A training document: its tokens with weights, and the marks that the contrastive losses need.

The marks say where the question, the needle and the answer's tokens are. Tokens are numpy arrays;
the other files of this folder make documents of exact lengths.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from longctx.profiles.recipe.data.haystacks import Ids

TEXT, NEEDLE, QUESTION, ANSWER = 0.4, 0.15, 0.1, 10.0  # weights of tokens


@dataclass
class Document:
    """Tokens with weights, and marks relative to the document's start.

    Attributes:
        asks: question start and end, needle start and end.
        pairs: token that predicts an answer token, and that token's place in the needle.
        answers: answer start and end (end of text included), kind.
    """

    ids: list[Any] = field(default_factory=list)
    weights: list[Any] = field(default_factory=list)
    length: int = 0
    asks: list[tuple[int, ...]] = field(default_factory=list)
    pairs: list[tuple[int, int]] = field(default_factory=list)
    answers: list[tuple[int, int, str]] = field(default_factory=list)

    @classmethod
    def opened(cls, bos: int) -> "Document":
        """A document with only the token that begins every document."""
        document = cls()
        document.add([bos], 0)
        return document

    def add(self, ids: Any, weight: float) -> tuple[int, int]:
        """Appends tokens; returns where they are."""
        start = self.length
        self.ids.append(np.asarray(ids, np.int64))
        self.weights.append(np.full(len(ids), weight, np.float32))
        self.length += len(ids)
        return start, self.length

    def tokens(self) -> Ids:
        """All ids so far."""
        return np.concatenate(self.ids)

    def marks(self, at: int) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]], list[Any]]:
        """The marks of a document that begins at `at`.

        Returns:
            asks and pairs, each with `at` last; answers.
        """
        asks = [(*(at + mark for mark in marks), at) for marks in self.asks]
        pairs = [(at + token, at + place, at) for token, place in self.pairs]
        answers = [(at + start, at + end, kind) for start, end, kind in self.answers]
        return asks, pairs, answers
