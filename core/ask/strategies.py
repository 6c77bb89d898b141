"""The two ways to an answer: gather and recompute passages, or attend to all that was kept.

The method decides which (it is `Recallable`, or not), unless the user names a gather source
(`core/retrieve/gather_by/`). Both give a memory to decode from, and the tokens that the answer is
based on.
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Protocol

import torch
from torch import Tensor

from longctx.core import methods
from longctx.core.ask.composing import Composed, composer_of, everything
from longctx.core.ask.gather import top_tokens
from longctx.core.ask.recompute import recompute
from longctx.core.ask.reranking import reranked
from longctx.core.common.errors import LongctxError, StateMismatch, UsageError
from longctx.core.contracts.memory import Chunked, Recalled, Scores, Stored, Whole
from longctx.core.contracts.method import Method, Recallable, Scoring, Way
from longctx.core.contracts.policy import Policy
from longctx.core.decode import policies
from longctx.core.decode.policies import Decoding
from longctx.core.engine.setup import Engine
from longctx.core.engine.window import room
from longctx.core.kv import embeddings, kept
from longctx.core.kv.prompt import Prompt
from longctx.core.retrieve import gather_by
from longctx.core.retrieve.best_passages import (
    AS_STORED,
    Chosen,
    Measure,
    best_passages,
    gathered,
    token_scores,
)
from longctx.core.retrieve.gather_by import METHOD, WORDS, Sought, check
from longctx.core.retrieve.gather_by import embeddings as embeddings_of
from longctx.core.retrieve.late_interaction import Maxima, maxima
from longctx.core.retrieve.lexical import WINDOW, PassageIndex
from longctx.core.retrieve.ranked import Ranked
from longctx.core.retrieve.unit_table import Units
from longctx.core.store.document import Document
from longctx.core.store.manifest import Manifest
from longctx.core.store.shards import AGAIN

GATHER = 8192  # prefix and document tokens, for a method without a number of its own
STEPS = 16  # sizes tried of what a method's own rule chooses, for a model with another tokenizer


@dataclass(frozen=True)
class Question:
    """What was asked.

    Attributes:
        ids: (T,) token ids, the template's included.
        scored: (T,) bool, the tokens of the user's own words.
        answer: the most tokens the answer may have; 0: no answer is needed.
        gather: tokens to gather; None: the profile's number, or the method's.
        decoding: how its answer is decoded.
        words: what is searched for: the user's own words, behind those of earlier questions that
            they refer to.
        passages: the most passages to gather; None: the profile's number.
        own: of `words`, those of the question itself, by which lines are shown; empty: all.
    """

    ids: Tensor
    scored: Tensor
    answer: int = 0
    gather: int | None = None
    decoding: Decoding = policies.USUAL
    words: str = ""
    passages: int | None = None
    own: str = ""

    @property
    def reserved(self) -> int:
        """Positions of the model's window that the answer needs."""
        return self.decoding.options.reserve(self.answer) if self.answer else 0


@dataclass(frozen=True)
class Begun:
    """An answer ready to be decoded.

    Attributes:
        policy: what its tokens attend to.
        hidden: the last hidden state (1, E).
        prompt: (n,) token ids that the model has seen in full.
        dropped: requested tokens that did not fit.
        found: gives the tokens that the answer is based on; called once the answer is complete.
        question: tokens of the question in the template of the model that answers.
        read: the document's part of the prompt; None: the answer attends to what was kept.
        cache: the prompt's keys and values; None: it was not read into a cache of its own.
    """

    policy: Policy
    hidden: Tensor
    prompt: Tensor
    dropped: int
    found: Callable[[], Chosen]
    question: int
    read: Composed | None = None
    cache: Prompt | None = None


class Answering(Protocol):
    """A way to answer.

    Attributes:
        name: the method that answers.
        gathers_by: the gather source, as `--gather-by` names it.
        index: the words of the documents' windows.
        documents: those asked. Scores and chosen tokens are numbered through all of them.
    """

    name: str
    gathers_by: str
    index: PassageIndex
    documents: tuple[Document, ...]

    @property
    def without(self) -> Sequence[str]:
        """Names of documents that lack embeddings which would have been used."""
        ...

    def begin(self, question: Question, on_gathered: Callable[[], None]) -> Begun:
        """Reads the question; calls `on_gathered` once the tokens it needs are known."""
        ...

    def find(self, question: Question, budgets: Sequence[int | None]) -> list[Chosen]:
        """What is chosen at each budget (None: the usual); nothing is decoded."""
        ...

    def score(self, question: Question) -> Scores:
        """Scores of all tokens, on the CPU."""
        ...


def way_of(
    engine: Engine,
    document: Document,
    method: Method,
    gather_by: str | None = None,
    index: PassageIndex | None = None,
    stored: Stored | None = None,
    finding: bool = False,
) -> "Answering":
    """How a document is asked.

    Args:
        engine: the model, and the way that the user named, if any.
        document: the open document.
        method: restored from it.
        gather_by: the gather source that the user names; None: the profile's where passages are
            recomputed or found, else the method's own way to answer.
        index: the words of its windows; None: build one.
        stored: its rows; None: as they are on disk.
        finding: find passages only; no answer is needed.

    Raises:
        UsageError: `gather_by` does not fit the document.
        LongctxError: the document cannot be asked in the way that the user named.
    """
    ways = engine.ways(method)
    name = engine.asked_with or next(iter(ways))
    if name not in ways:
        raise LongctxError(
            f"cannot ask '{document.manifest.name}' with the method {name!r}",
            f"it was read with {engine.method_name!r} and can be asked with {' or '.join(ways)}",
            "Leave --method out, or ingest the document again with it.",
        )
    chosen = ways[name]
    recalls = isinstance(chosen, Recallable)
    index = PassageIndex(document) if index is None else index
    if gather_by is None:
        named = recalls and engine.asked_with is not None
        choosing = not named if finding else has_scores(chosen, document)
        gather_by = engine.profile.gather_by if choosing else METHOD
    check(gather_by)
    if recalls and gather_by == METHOD:
        return Recalling(engine, document, chosen, name, index)
    if recalls and engine.asked_with is not None:
        raise UsageError(
            f"cannot gather by {gather_by!r} with the method {name!r}",
            "it attends to everything that was kept, and nothing is gathered",
            f"Leave --method out, or use --gather-by {METHOD}.",
        )
    return Gathering(engine, document, chosen, name, gather_by, index, stored)


def refuse_recall(engine: Engine, manifests: Sequence[Manifest], gather_by: str | None) -> None:
    """Refuses documents that answer by recall where another model answers; loads no weights.

    Args:
        engine: the model that read them, with the one that answers.
        manifests: the documents'.
        gather_by: the gather source that the user names.

    Raises:
        UsageError: one of them would attend to what the first model kept.
    """
    if gather_by not in (None, METHOD):
        return
    for manifest in manifests:
        name = engine.asked_with or manifest.method
        if issubclass(methods.load(name).Method, Recallable):
            raise UsageError(
                f"cannot answer from '{manifest.name}' with another model",
                f"the method {name!r} attends to keys and values that {manifest.model['name']} "
                "kept, and no other model has them",
                f"Add --gather-by {WORDS}, so that text is gathered, or leave --answer-model out.",
            )


def by_words(
    engine: Engine, documents: tuple[Document, ...], gather_by: str | None, index: PassageIndex
) -> "ByWords | None":
    """How another model answers without the one that read the documents; None: that is needed.

    Args:
        engine: the model that read them, with the one that answers.
        documents: open.
        gather_by: the gather source that the user names.
        index: the words of their windows.
    """
    if gather_by is None:
        scored = engine.asked_with is None and all(map(has_embeddings, documents))
        gather_by = engine.profile.gather_by if scored else METHOD
    check(gather_by)
    if gather_by == METHOD or embeddings_of(gather_by) != "unused":
        return None
    names = dict.fromkeys(document.manifest.method for document in documents)
    return ByWords(engine, documents, ", ".join(names), gather_by, index)


def has_scores(way: Way, document: Document) -> bool:
    """Whether a method scores the document's tokens before a question is answered."""
    return isinstance(way, Scoring) and has_embeddings(document)


def has_embeddings(document: Document) -> bool:
    """Whether a document has embeddings to score with."""
    return embeddings.GROUP in {shard.group for shard in document.manifest.shards}


class Gatherer(ABC):
    """Recomputes the tokens chosen from documents with the question.

    Args:
        engine: the model.
        documents: open; tokens are numbered through all of them.
        name: the method's.
        gathers_by: the gather source; see `core/retrieve/gather_by/`.
        index: the words of the documents' windows.

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
        if gather_by.embeddings(gathers_by) == "needed":
            self._require_embeddings()

    @property
    def without(self) -> list[str]:
        """Documents that lack embeddings which would have been used."""
        if gather_by.embeddings(self.gathers_by) == "unused":
            return []
        return [d.manifest.name for d in self.documents if not self._has_embeddings(d)]

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
        return Begun(policy, hidden, ids, fit.dropped, lambda: found, len(asked), read, prompt)

    def _wanted(self, question: Question) -> int | None:
        """Prefix and document tokens to put before the model that answers; None: all, or fail."""
        if question.gather is not None or self.gathers_by == METHOD:
            return self._gather if question.gather is None else question.gather
        answering = self._composer.engine
        own = self._gather if answering is self._engine else _gather_of(answering)
        return self._composer.reading.tokens or own

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
            most = question.passages
            if most is None and question.gather is None:  # who asks for more text wants all of it
                most = self._composer.reading.passages
            measure = self._composer.measure(most, total)
            ranked = self.ranked(question, self._composer.reading.units)
            if most and count < total:
                ranked = self._reranked(ranked, question)
            return self._taken(ranked, [count], measure)[0]
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

    def _reranked(self, ranked: Ranked, question: Question) -> Ranked:
        """Windows in the order of the model that answers, where another one found them.

        Its profile says how many. What it found itself it has compared with the question already.
        """
        most = self._composer.reading.reranked
        if not most or self._composer.engine is self._engine:
            return ranked
        asked = self._asked(question)
        return reranked(ranked, self.documents, self._composer, asked, most)

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

    def score(self, question: Question) -> Scores:
        """The scores that the gather source gives.

        Raises:
            LongctxError: the document's method keeps nothing to search by.
        """
        self.require_search()
        if self.gathers_by == METHOD:
            return self._method_scores(question)
        return token_scores(self.ranked(question))

    def ranked(self, question: Question, width: int = WINDOW) -> Ranked:
        """How well each window fits, by a gather source other than the method's own rule.

        Args:
            question: what is sought.
            width: units of a window.

        Raises:
            StateMismatch: a document is damaged.
        """
        with_meaning = all(map(self._has_embeddings, self.documents))
        maxima = (lambda: self._maxima(question)) if with_meaning else None
        sought = Sought(question.words, maxima, self.index, width)
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
            scores = self._method_scores(question)
            tokens = [self._top_tokens(scores, count, edges) for count in counts]
            return [Chosen(scores, some) for some in tokens]
        return self._taken(self.ranked(question), counts)

    def _taken(
        self, ranked: Ranked, counts: Sequence[int], measure: Measure = AS_STORED
    ) -> list[Chosen]:
        """The best passages of ranked windows at each budget."""
        scores = token_scores(ranked)
        passages = best_passages(ranked, self.documents, counts, measure)
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
        """The best cosine of each question token in each unit."""

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


def _gather_of(engine: Engine) -> int:
    """Prefix and document tokens that a model's own profile gathers by its usual method."""
    chosen = engine.profile
    named = (chosen.methods.get(chosen.method) or {}).get("gather")
    return named if isinstance(named, int) else min(GATHER, engine.window // 2)


class ByWords(Gatherer):
    """Puts passages that share words with the question before another model than has read them.

    No method, and so no model, is needed to choose them.
    """

    _gather, _edges = None, (0, 0)

    def _has_embeddings(self, document: Document) -> bool:
        return False

    def _maxima(self, question: Question) -> Maxima:
        raise AssertionError("they are not used")

    def _method_scores(self, question: Question) -> Scores:
        raise AssertionError("a gather source chooses")

    def _top_tokens(self, scores: Scores, count: int, edges: tuple[int, int]) -> Tensor:
        raise AssertionError("a gather source chooses")

    def require_search(self) -> None:
        """See `Gatherer.require_search`: words are always there."""


class Gathering(Gatherer):
    """Recomputes the best tokens of one document with the question.

    Args:
        engine: the model.
        document: the open document.
        method: embeds the question, and decides how many tokens are gathered and, under its own
            rule, which.
        name: the method's.
        gathers_by: the gather source; see `core/retrieve/gather_by/`.
        index: the words of the document's windows.
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

    def unit_maxima(self, question: Question) -> Tensor:
        """The best cosine of each question token in each unit, (U, T) on the model's device.

        Raises:
            StateMismatch: the embeddings are damaged.
        """
        assert isinstance(self._method, Scoring), "it has embeddings"
        found = self._method.embed(partial(self._read, question))
        require_numbers(found[1], self.documents)
        rows = self._stored.rows(embeddings.GROUP)
        best, count = maxima(found, question.scored, rows, self._units)
        _require_all(count, self._document, embeddings.GROUP)
        return best

    def _maxima(self, question: Question) -> Maxima:
        return Maxima(self._units, self.unit_maxima(question))

    @cached_property
    def _units(self) -> Units:
        return Units.of(self._document.manifest)

    def _has_embeddings(self, document: Document) -> bool:
        return has_scores(self._method, document)

    def _read(self, question: Question, memory: Chunked) -> None:
        for chunk in question.ids.split(memory.chunk):
            self._engine.decoder.read(chunk, memory, self._method.depth)

    def _method_scores(self, question: Question) -> Scores:
        if not isinstance(self._method, Scoring):
            return Scores(torch.zeros(0), torch.zeros(0))
        read = partial(self._read, question)
        scores = self._method.score(read, question.scored, self._stored)
        _require_all(len(scores.raw), self._document, embeddings.GROUP)
        require_numbers(scores.raw, self.documents)
        return Scores(scores.raw.cpu(), scores.pooled.cpu())

    def _top_tokens(self, scores: Scores, count: int, edges: tuple[int, int]) -> Tensor:
        return top_tokens(scores, count, self._total, edges)

    def require_search(self) -> None:
        """See `Gatherer.require_search`."""
        if self.gathers_by == METHOD:
            _require_search(self._method, self.name, self._document)


def require_numbers(values: Tensor, documents: Sequence[Document]) -> None:
    """Refuses results with NaN or infinity, which can come from a document's stored data.

    Args:
        values: of any shape.
        documents: where they come from.

    Raises:
        StateMismatch: some are not finite.
    """
    if not bool(values.isfinite().all()):
        names = ", ".join(f"'{document.manifest.name}'" for document in documents)
        raise StateMismatch(
            f"the state of {names} cannot be reckoned with",
            "it leads to numbers that are none (NaN or infinity)",
            f"Ask with --dtype fp32 if it was another. {AGAIN}",
        )


class Recalling:
    """Answers by recall: the question and its answer attend to all that was kept.

    Args:
        engine: the model.
        document: the open document.
        method: holds what was kept.
        name: the method's.
        index: the words of the document's windows.
    """

    gathers_by, without = METHOD, ()

    def __init__(
        self, engine: Engine, document: Document, method: Recallable, name: str, index: PassageIndex
    ):
        self._engine, self._document, self._method, self.name = engine, document, method, name
        self.documents, self.index = (document,), index

    def begin(self, question: Question, on_gathered: Callable[[], None]) -> Begun:
        """Reads the question against the document.

        Raises:
            UsageError: the decode policy does not fit what the method keeps.
        """
        memory = self._method.recall()
        policy = self._policy(question.decoding.name, memory)
        hidden = self._read(memory, question)
        memory.begin_answer()
        on_gathered()
        prompt = torch.cat([self._engine.prompt.prefix(), question.ids])
        decoded = policy(question.decoding.options, memory, self._engine.window)
        found = partial(self._chosen, memory, question.gather)
        return Begun(decoded, hidden, prompt, 0, found, len(question.ids))

    def _policy(self, name: str, memory: Recalled) -> Callable[..., Policy]:
        known = {each: policies.load(each).Policy for each in {name, *policies.names()}}
        over = {each: policy.recalling for each, policy in known.items() if policy.recalling}
        has_all = isinstance(memory, Whole)
        fitting = sorted(name for name, policy in over.items() if has_all or not policy.chooses)
        if name in fitting:
            return over[name]
        raise UsageError(
            f"cannot decode with {name!r} what is asked with the method {self.name!r}",
            f"the policies for that are {', '.join(fitting)}",
            "Choose one of them with --decode, or another --method.",
        )

    def find(self, question: Question, budgets: Sequence[int | None]) -> list[Chosen]:
        """What the question itself attends to, at each budget.

        Raises:
            LongctxError: the document's method keeps nothing to search by.
        """
        _require_search(self._method, self.name, self._document)
        memory = self._method.recall()
        self._read(memory, question)
        return [self._chosen(memory, budget) for budget in budgets]

    def score(self, question: Question) -> Scores:
        """How much the question attends to each token.

        Raises:
            LongctxError: the document's method keeps nothing to search by.
        """
        _require_search(self._method, self.name, self._document)
        memory = self._method.recall()
        self._read(memory, question)
        return self._scores(memory)

    def _read(self, memory: Recalled, question: Question) -> Tensor:
        hidden = torch.zeros(0)
        for chunk in question.ids.split(memory.chunk):
            hidden = self._engine.decoder.read(chunk, memory)
        return hidden[-1:]

    def _chosen(self, memory: Recalled, budget: int | None) -> Chosen:
        scores = self._scores(memory)
        wanted = (self._method.gather or sys.maxsize) if budget is None else budget
        count = min(wanted, int((scores.pooled >= 0).sum()))
        return Chosen(scores, top_tokens(scores, count, self._document.manifest.tokens, (0, 0)))

    def _scores(self, memory: Recalled) -> Scores:
        scores = memory.scores(self._document.manifest.tokens)
        _require_all(len(scores.raw), self._document, kept.GROUP)
        return Scores(scores.raw.cpu(), scores.pooled.cpu())


def _require_search(method: Way, name: str, document: Document) -> None:
    if not method.searches:
        raise LongctxError(
            f"cannot search document {document.manifest.name!r}",
            f"method {name!r} keeps no embeddings",
            "Ingest it with --method reform, or use --gather-by bm25.",
        )


def _require_all(rows: int, document: Document, group: str) -> None:
    if rows != document.manifest.tokens:
        raise _damaged(document, f"{rows:,} rows of {group!r}")


def _damaged(document: Document, has: str) -> StateMismatch:
    manifest = document.manifest
    why = f"it has {has} for its {manifest.tokens:,} tokens"
    return StateMismatch(f"'{manifest.name}' is damaged", why, AGAIN)
