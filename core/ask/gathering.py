"""Gathering: tokens of documents are chosen, composed into a prompt, and recomputed.

What the ways over one document, over several and by words alone share.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor

from longctx.core.ask.answering import Begun, Question
from longctx.core.ask.composing import composer_of, everything
from longctx.core.ask.recompute import recompute
from longctx.core.common.errors import LongctxError
from longctx.core.contracts.memory import Scores
from longctx.core.decode import policies
from longctx.core.engine.setup import Engine
from longctx.core.engine.window import room
from longctx.core.retrieve import gather_by
from longctx.core.retrieve.best_passages import (
    AS_STORED,
    Chosen,
    Measure,
    best_passages,
    gathered,
    token_scores,
)
from longctx.core.retrieve.dense_index import DenseIndex, no_vectors
from longctx.core.retrieve.gather_by import METHOD, WORDS, Sought
from longctx.core.retrieve.late_interaction import Maxima
from longctx.core.retrieve.lexical import PassageIndex
from longctx.core.retrieve.ranked import Ranked
from longctx.core.retrieve.stretches import Answers
from longctx.core.store.document import Document

GATHER = 8192  # prefix and document tokens, for a method without a number of its own
STEPS = 16  # sizes tried of what a method's own rule chooses, for a model with another tokenizer


class Gatherer(ABC):
    """Recomputes the tokens chosen from documents with the question.

    Args:
        engine: the model.
        documents: open; tokens are numbered through all of them.
        name: the method's.
        gathers_by: the gather source; see `core/retrieve/gather_by/`.
        index: the passages of the documents, and their words.

    Raises:
        LongctxError: a document has no embeddings, and the gather source needs them.
    """

    _gather: int | None  # prefix and document tokens, unless the question says how many
    _edges: tuple[int, int]  # first and last tokens that the method always recomputes

    def __init__(
        self,
        engine: Engine,
        documents: tuple[Document, ...],
        name: str,
        gathers_by: str,
        index: PassageIndex,
    ):
        self._engine, self.documents, self.name = engine, documents, name
        self._prefix = engine.prompt.prefix()
        self._composer = composer_of(engine, documents)
        self.gathers_by, self.index = gathers_by, index
        self._total = sum(document.manifest.tokens for document in documents)
        if gather_by.embeddings(gathers_by):
            self._require_embeddings()

    @cached_property
    def dense(self) -> DenseIndex:
        """The vectors of the documents' passages."""
        return DenseIndex(self.documents, self.index)

    @property
    def without(self) -> list[str]:
        """Documents that lack vectors which would have been used."""
        return [] if gather_by.vectors(self.gathers_by) == "unused" else self.dense.without

    def begin(self, question: Question, on_gathered: Callable[[], None]) -> Begun:
        """Gathers and recomputes.

        Raises:
            UsageError: the question leaves no room in the window, or the prompt none in what the
                decode policy holds.
            LongctxError: all tokens are needed and do not fit.
        """
        engine, wanted = self._composer.engine, self._wanted(question)
        prefix, asked = engine.prompt.prefix(), self._asked(question)
        options, total = question.decoding.options, self._composer.total(wanted)
        needed = (len(prefix), len(asked), question.reserved, total)
        fit = room(engine.window, *needed, wanted, options.less)
        found = self._to_read(question, fit.tokens, total)
        read = self._composer.composed(found)
        parts = (prefix, read.ids, asked)
        options.require(sum(map(len, parts)))
        on_gathered()
        prompt, hidden = recompute(engine.decoder, *parts, question.reserved, options.observed)
        policy = policies.load(question.decoding.name).Policy(options, prompt, engine.window)
        ids = torch.cat(parts)
        return Begun(policy, hidden, ids, fit.dropped, lambda: found, len(asked), read)

    def _wanted(self, question: Question) -> int | None:
        """Prefix and document tokens to put before the model that answers; None: all, or fail."""
        if question.gather is not None or self.gathers_by == METHOD:
            return self._gather if question.gather is None else question.gather
        answering = self._composer.engine
        return self._gather if answering is self._engine else _gather_of(answering)

    def _asked(self, question: Question) -> Tensor:
        """The question's tokens for the model that answers."""
        answering = self._composer.engine
        if answering is self._engine:
            return question.ids
        return answering.prompt.question(question.words)[0]

    def _to_read(self, question: Question, count: int, total: int) -> Chosen:
        """What is put before the model that answers.

        Args:
            question: what was asked.
            count: its tokens at most, without prefix and question.
            total: its tokens of all documents.

        Raises:
            LongctxError: the method has no scores to choose by, and not everything fits.
        """
        if self.gathers_by != METHOD:
            measure = self._composer.measure(question.passages, total)
            return self._taken(self.ranked(question), [count], measure)[0]
        if self._composer.engine is self._engine:
            return self._chosen(question, [count], self._edges)[0]
        if count >= total:
            nothing = torch.zeros(0)
            return everything(Chosen(Scores(nothing, nothing), nothing), self._total)
        self.require_search()
        counts = [max(1, count * step // STEPS) for step in range(STEPS, 0, -1)]
        found = self._chosen(question, counts, self._edges)
        fitting = (one for one in found if len(self._composer.composed(one).ids) <= count)
        return next(fitting, found[-1])

    def find(self, question: Question, budgets: Sequence[int | None]) -> list[Chosen]:
        """The best tokens at each budget; they may exceed the window.

        Raises:
            UsageError: the question leaves no room in the window.
            LongctxError: the document's method keeps nothing to search by.
        """
        self.require_search()
        room(self._engine.window, *self._lengths(question), self._gather)
        counts = [self._gather or self._total if n is None else n for n in budgets]
        return self._chosen(question, counts, (0, 0))

    def for_text(self, question: Question, count: int) -> Chosen:
        """What another server's model gets as text, of at most `count` tokens.

        Raises:
            UsageError: the question leaves no room in the window.
            LongctxError: the document's method keeps nothing to search by.
        """
        self.require_search()
        room(self._engine.window, *self._lengths(question), count)
        return self._to_read(replace(question, gather=count), count, self._total)

    def score(self, question: Question) -> Scores:
        """The scores that the gather source gives.

        Raises:
            LongctxError: the document's method keeps nothing to search by.
        """
        self.require_search()
        if self.gathers_by == METHOD:
            return _on_host(self._method_scores(question))
        return token_scores(self.ranked(question))

    def ranked(self, question: Question) -> Ranked:
        """How well each passage fits, by a gather source other than the method's own rule.

        Raises:
            StateMismatch: a document is damaged.
            LongctxError: the gather source needs vectors that a document does not have.
        """
        if gather_by.vectors(self.gathers_by) == "needed" and self.dense.missing:
            raise no_vectors(self.gathers_by, self.dense.missing)
        device, words = self._engine.device, question.words
        sought = Sought(
            words,
            self.index,
            lambda: self.dense.cosines(words),
            lambda: self._maxima(question),
            Answers(self.documents, self.index.passages, words, device),
        )
        return gather_by.load(self.gathers_by).rank(sought)

    def _lengths(self, question: Question) -> tuple[int, int, int, int]:
        return len(self._prefix), len(question.ids), question.reserved, self._total

    def _chosen(
        self,
        question: Question,
        counts: Sequence[int],
        edges: tuple[int, int],
    ) -> list[Chosen]:
        """What is gathered at each budget; only the method's own rule uses `edges`."""
        if self.gathers_by == METHOD:
            scores = self._method_scores(question)  # sorted where they are: a GPU takes 1 ms
            tokens = [self._top_tokens(scores, count, edges) for count in counts]
            scores = _on_host(scores)
            return [Chosen(scores, some) for some in tokens]
        return self._taken(self.ranked(question), counts)

    def _taken(
        self, ranked: Ranked, counts: Sequence[int], measure: Measure = AS_STORED
    ) -> list[Chosen]:
        """The best of ranked passages at each budget."""
        scores = token_scores(ranked)
        passages = best_passages(ranked, counts, measure)
        return [gathered(scores, ranked, some) for some in passages]

    def _require_embeddings(self) -> None:
        for document in self.documents:
            if not self._has_embeddings(document):
                raise LongctxError(
                    f"cannot gather by {self.gathers_by!r} from {document.manifest.name!r}",
                    f"method {document.manifest.method!r} keeps no embeddings to score by",
                    f"Ingest it with --method reform, or use --gather-by {WORDS}.",
                )

    @abstractmethod
    def _has_embeddings(self, document: Document) -> bool:
        """Whether a document has embeddings to compare a question with."""

    @abstractmethod
    def _maxima(self, question: Question) -> Maxima:
        """The best cosine of each question token in each passage."""

    @abstractmethod
    def _method_scores(self, question: Question) -> Scores:
        """The method's scores; empty where it has none."""

    @abstractmethod
    def _top_tokens(self, scores: Scores, count: int, edges: tuple[int, int]) -> Tensor:
        """The tokens gathered by the method's rule, ascending."""

    @abstractmethod
    def require_search(self) -> None:
        """Refuses a method that keeps nothing to search by, where its scores are needed.

        Raises:
            LongctxError: it is such a method.
        """


def _on_host(scores: Scores) -> Scores:
    """Scores where passages are made of them, one by one."""
    return Scores(scores.raw.cpu(), scores.pooled.cpu())


def _gather_of(engine: Engine) -> int:
    """Prefix and document tokens that a model's own profile gathers by its usual method."""
    chosen = engine.profile
    named = (chosen.methods.get(chosen.method) or {}).get("gather")
    return named if isinstance(named, int) else min(GATHER, engine.window // 2)
