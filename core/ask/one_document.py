"""Gathering from one document: its method embeds the question, and may choose the tokens."""

import sys
from functools import cached_property, partial

import torch
from torch import Tensor

from longctx.core.ask.answering import Question
from longctx.core.ask.gather import top_tokens
from longctx.core.ask.gathering import GATHER, Gatherer
from longctx.core.ask.state_checks import has_scores, require_all, require_numbers, require_search
from longctx.core.contracts.memory import Chunked, Scores, Stored
from longctx.core.contracts.method import Scoring, Way
from longctx.core.engine.question_graphs import QuestionReader
from longctx.core.engine.setup import Engine
from longctx.core.kv import embeddings
from longctx.core.retrieve.gather_by import METHOD
from longctx.core.retrieve.late_interaction import Maxima, maxima
from longctx.core.retrieve.lexical import PassageIndex
from longctx.core.retrieve.passage_table import Passages
from longctx.core.store.document import Document


class Gathering(Gatherer):
    """Recomputes the best tokens of one document with the question.

    Args:
        engine: the model.
        document: the open document.
        method: embeds the question, and decides how many tokens are gathered and, under its own
            rule, which.
        name: the method's.
        gathers_by: the gather source; see `core/retrieve/gather_by/`.
        index: the passages of the document, or of several with it, and their words.
        stored: its rows; None: as they are on disk.
    """

    def __init__(
        self,
        engine: Engine,
        document: Document,
        method: Way,
        name: str,
        gathers_by: str,
        index: PassageIndex,
        stored: Stored | None = None,
    ):
        self._document, self._method = document, method
        self._stored = document if stored is None else stored
        super().__init__(engine, (document,), name, gathers_by, index)
        self._gather, self._edges = method.gather, method.edges
        if gathers_by != METHOD and self._gather in (None, sys.maxsize):
            self._gather = min(GATHER, self._engine.window // 2)

    @property
    def gather(self) -> int | None:
        """Prefix and document tokens needed for a question; None: all."""
        return self._gather

    def passage_maxima(self, question: Question) -> Tensor:
        """The best cosine of each question token in each passage, (P, T) on the model's device.

        Raises:
            StateMismatch: the embeddings are damaged.
        """
        assert isinstance(self._method, Scoring), "it has embeddings"
        found = self._method.embed(partial(self._read, question))
        require_numbers(found[1], self.documents)
        rows = self._stored.rows(embeddings.GROUP)
        best, count = maxima(found, question.scored, rows, self._passages)
        require_all(count, self._document, embeddings.GROUP)
        return best

    def _maxima(self, question: Question) -> Maxima:
        return Maxima(self.passage_maxima(question))

    @cached_property
    def _passages(self) -> Passages:
        return self.index.passages_of(self._document)

    def _has_embeddings(self, document: Document) -> bool:
        return has_scores(self._method, document)

    @cached_property
    def _reader(self) -> QuestionReader:
        return QuestionReader(self._engine.decoder)

    def _read(self, question: Question, memory: Chunked) -> None:
        self._reader.read(question.ids, memory, self._method.depth)

    def _method_scores(self, question: Question) -> Scores:
        if not isinstance(self._method, Scoring):
            return Scores(torch.zeros(0), torch.zeros(0))
        read = partial(self._read, question)
        scores = self._method.score(read, question.scored, self._stored)
        require_all(len(scores.raw), self._document, embeddings.GROUP)
        require_numbers(scores.raw, self.documents)
        return scores

    def _top_tokens(self, scores: Scores, count: int, edges: tuple[int, int]) -> Tensor:
        return top_tokens(scores, count, self._total, edges)

    def require_search(self) -> None:
        """See `Gatherer.require_search`."""
        if self.gathers_by == METHOD:
            require_search(self._method, self.name, self._document)
