"""The two ways to an answer: tokens are gathered and recomputed, or all are attended to.

Which one it is says the method (`Method.recalls`), unless the user names what to gather by
(`core/scoring/`). Both give a memory to decode from, and the tokens that the answer stands on.
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from longctx.core import decoding, embeddings, scoring
from longctx.core.decoding import Decoding
from longctx.core.errors import LongctxError, StateMismatch, UsageError
from longctx.core.gather import room, top_tokens
from longctx.core.kv import kept
from longctx.core.lexical import PassageIndex
from longctx.core.memory import Chunked, Method, Recalled, Scores
from longctx.core.policy import Policy
from longctx.core.recompute import recompute
from longctx.core.scoring import METHOD, Sought
from longctx.core.setup import Engine
from longctx.core.store.document import Document
from longctx.core.store.shards import AGAIN

GATHER = 8192  # prefix and document tokens, by other scores than those of a method without a number


@dataclass(frozen=True)
class Question:
    """What was asked.

    Attributes:
        ids: (T,) token ids, the template's included.
        scored: (T,) bool, the tokens of the user's own words.
        answer: tokens that the answer may have; 0: none is wanted.
        gather: tokens to gather; None: as many as the method wants.
        decoding: how its answer is decoded.
        words: the user's own words.
    """

    ids: Tensor
    scored: Tensor
    answer: int = 0
    gather: int | None = None
    decoding: Decoding = decoding.USUAL
    words: str = ""

    @property
    def reserved(self) -> int:
        """Places of the model's window that the answer needs."""
        return self.decoding.options.reserve(self.answer) if self.answer else 0


@dataclass(frozen=True)
class Begun:
    """An answer that can be decoded.

    Attributes:
        policy: what its tokens attend to.
        hidden: the last hidden state (1, E).
        prompt: (n,) token ids that the model has seen in full.
        dropped: tokens that were wanted and had no place.
        found: what the answer stands on: scores of all tokens, and those chosen, ascending. Asked
            when the answer is there.
    """

    policy: Policy
    hidden: Tensor
    prompt: Tensor
    dropped: int
    found: Callable[[], tuple[Scores, Tensor]]


class Answering(Protocol):
    """A way to answer.

    Attributes:
        name: of the method that answers.
        gathers_by: what its scores are, as `--gather-by` names it.
        threshold: best score under which a document seems not to answer; None: it is not known.
        documents: that are asked. Of several, scores and chosen tokens are counted on from one to
            the next.
    """

    name: str
    gathers_by: str
    threshold: float | None
    documents: tuple[Document, ...]

    def begin(self, question: Question, on_gathered: Callable[[], None]) -> Begun:
        """Reads the question; `on_gathered` is called when it is known what it needs."""
        ...

    def find(self, question: Question) -> tuple[Scores, Tensor]:
        """Scores of all tokens and those chosen, ascending; nothing is decoded."""
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
) -> Answering:
    """How a document is asked.

    Args:
        engine: the model, and the way that the user named, if any.
        document: the open document.
        method: restored from it.
        gather_by: what the user wants tokens gathered by; None: what the profile says where the
            method has scores to gather by, else as the method answers.
        index: the words of its passages; None: one of its own.

    Raises:
        UsageError: it cannot be gathered by that.
        LongctxError: the document cannot be asked in the way that the user named.
    """
    ways = method.ways or {engine.method_name: method}
    name = engine.asked_with or next(iter(ways))
    if name not in ways:
        raise LongctxError(
            f"cannot ask '{document.manifest.name}' with the method {name!r}",
            f"it was read with {engine.method_name!r} and can be asked with {' or '.join(ways)}",
            "Leave --method out, or ingest the document again with it.",
        )
    chosen = ways[name]
    if gather_by is None:
        gather_by = engine.profile.gather_by if has_scores(chosen, document) else METHOD
    scoring.require(gather_by)
    if chosen.recalls and gather_by == METHOD:
        return Recalling(engine, document, chosen, name)
    if chosen.recalls and engine.asked_with is not None:
        raise UsageError(
            f"cannot gather by {gather_by!r} with the method {name!r}",
            "it attends to everything that was kept, and nothing is gathered",
            f"Leave --method out, or use --gather-by {METHOD}.",
        )
    return Gathering(engine, document, chosen, name, gather_by, index)


def has_scores(method: Method, document: Document) -> bool:
    """Whether a method scores the document's tokens before a question is answered."""
    return not method.recalls and has_embeddings(document)


def has_embeddings(document: Document) -> bool:
    """Whether a document has embeddings to score by."""
    return embeddings.GROUP in {shard.group for shard in document.manifest.shards}


class Gatherer(ABC):
    """Tokens that are chosen by their scores are recomputed with the question.

    Args:
        engine: the model.
        documents: open; what is told of "tokens" is of all of them, counted on.
        name: of the method.
        gathers_by: whose scores they are; see `core/scoring/`.
        index: the words of the documents' passages.
    """

    _gather: int | None  # prefix and document tokens, unless the question says how many
    _edges: tuple[int, int]  # first and last tokens that are recomputed in any case

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
        self.gathers_by, self._index = gathers_by, index
        self._total = sum(document.manifest.tokens for document in documents)
        self.threshold = engine.profile.threshold if gathers_by == METHOD else None

    def begin(self, question: Question, on_gathered: Callable[[], None]) -> Begun:
        """Gathers, and recomputes.

        Raises:
            UsageError: the question leaves no room in the window, or the prompt none in what the
                decode policy holds.
            LongctxError: all tokens are wanted and do not fit.
        """
        wanted = self._gather if question.gather is None else question.gather
        options = question.decoding.options
        fit = room(self._engine.window, *self._lengths(question), wanted, options.less)
        options.require(len(self._prefix) + fit.tokens + len(question.ids))
        found = self._chosen(question, fit.tokens, self._edges)
        ids = self._ids(found[1])
        on_gathered()
        parts = (self._prefix, ids, question.ids)
        reserved, observed = question.reserved, options.observed
        prompt, hidden = recompute(self._engine.decoder, *parts, reserved, observed)
        policy = decoding.load(question.decoding.name).Policy(options, prompt, self._engine.window)
        return Begun(policy, hidden, torch.cat(parts), fit.dropped, lambda: found)

    def find(self, question: Question) -> tuple[Scores, Tensor]:
        """The tokens that score best; they may be more than the window.

        Raises:
            UsageError: the question leaves no room in the window.
            LongctxError: the document's method keeps nothing to search by.
        """
        self.require_search()
        room(self._engine.window, *self._lengths(question), self._gather)
        count = self._gather if question.gather is None else question.gather
        return self._chosen(question, count, (0, 0))

    def score(self, question: Question) -> Scores:
        """The scores of what is gathered by.

        Raises:
            LongctxError: the document's method keeps nothing to search by.
        """
        self.require_search()
        return self._scores(question)

    def _scores(self, question: Question) -> Scores:
        if self.gathers_by == METHOD:
            return self._method_scores(question)
        sought = Sought(question.words, lambda: self.own_scores(question), self._index)
        return scoring.load(self.gathers_by)(sought)

    def _lengths(self, question: Question) -> tuple[int, int, int, int]:
        return len(self._prefix), len(question.ids), question.reserved, self._total

    def _chosen(
        self, question: Question, count: int, edges: tuple[int, int]
    ) -> tuple[Scores, Tensor]:
        scores = self._scores(question)
        return scores, top_tokens(scores, count, self._total, edges)

    @abstractmethod
    def own_scores(self, question: Question) -> Scores:
        """The method's scores, for others to take part in.

        Raises:
            LongctxError: it has none.
        """

    @abstractmethod
    def _method_scores(self, question: Question) -> Scores:
        """The method's scores; none where it has none."""

    @abstractmethod
    def require_search(self) -> None:
        """Refuses a method that keeps nothing to search by, where its scores are wanted.

        Raises:
            LongctxError: it is such a method.
        """

    @abstractmethod
    def _ids(self, chosen: Tensor) -> Tensor:
        """The token ids of chosen tokens."""


class Gathering(Gatherer):
    """The tokens of one document that score best are recomputed with the question.

    Args:
        engine: the model.
        document: the open document.
        method: scores its tokens, and says how many are gathered and which in any case.
        name: the method's.
        gathers_by: whose scores they are; see `core/scoring/`.
        index: the words of the document's passages; None: one of its own.
    """

    def __init__(
        self,
        engine: Engine,
        document: Document,
        method: Method,
        name: str,
        gathers_by: str = METHOD,
        index: PassageIndex | None = None,
    ):
        index = PassageIndex(document) if index is None else index
        super().__init__(engine, (document,), name, gathers_by, index)
        self._document, self._method = document, method
        self._gather, self._edges = method.gather, method.edges
        if gathers_by != METHOD:
            self._leave_a_choice()

    @property
    def gather(self) -> int | None:
        """Prefix and document tokens that are wanted for a question; None: all."""
        return self._gather

    def _leave_a_choice(self) -> None:
        """For other scores, where the method wants all tokens or chooses them by place."""
        by_place = self._gather is not None and sum(self._edges) >= self._gather
        if by_place:
            self._edges = (0, 0)
        if self._gather in (None, sys.maxsize):
            self._gather = min(GATHER, self._engine.window // 2)

    def own_scores(self, question: Question) -> Scores:
        """See `Gatherer.own_scores`."""
        self.require_scores()
        return self._method_scores(question)

    def require_scores(self) -> None:
        """Refuses a method without scores for others to take part in.

        Raises:
            LongctxError: it is such a method.
        """
        if not has_scores(self._method, self._document):
            raise LongctxError(
                f"cannot gather by {self.gathers_by!r} from {self._document.manifest.name!r}",
                f"method {self._engine.method_name!r} keeps no embeddings to score by",
                "Ingest it with --method reform, or use --gather-by bm25.",
            )

    def _method_scores(self, question: Question) -> Scores:
        decoder, method = self._engine.decoder, self._method

        def read(memory: Chunked) -> None:
            for chunk in question.ids.split(memory.chunk):
                decoder.read(chunk, memory, method.depth)

        scores = method.score(read, question.scored, self._document)
        if _searches(method):
            _require_all(scores, self._document, embeddings.GROUP)
        return Scores(scores.raw.cpu(), scores.pooled.cpu())

    def require_search(self) -> None:
        """See `Gatherer.require_search`."""
        if self.gathers_by == METHOD:
            _require_search(self._method, self.name, self._document)

    def _ids(self, chosen: Tensor) -> Tensor:
        return token_ids(self._document, chosen, self._engine)


class Recalling:
    """The question and its answer attend to all that was kept of the document.

    Args:
        engine: the model.
        document: the open document.
        method: has kept it.
        name: the method's.
    """

    gathers_by, threshold = METHOD, None

    def __init__(self, engine: Engine, document: Document, method: Method, name: str):
        self._engine, self._document, self._method, self.name = engine, document, method, name
        self.documents = (document,)

    def begin(self, question: Question, on_gathered: Callable[[], None]) -> Begun:
        """Reads the question against the document.

        Raises:
            UsageError: the decode policy does not go with what the method keeps.
        """
        memory = self._method.recall()
        policy = self._policy(question.decoding.name, memory)
        hidden = self._read(memory, question)
        memory.begin_answer()
        on_gathered()
        prompt = torch.cat([self._engine.prompt.prefix(), question.ids])
        decoded = policy(question.decoding.options, memory, self._engine.window)
        return Begun(decoded, hidden, prompt, 0, lambda: self._chosen(memory, question))

    def _policy(self, name: str, memory: Recalled) -> Callable[..., Policy]:
        modules = {name: decoding.load(name) for name in {name, *decoding.names()}}
        over = {n: m.Recalling for n, m in modules.items() if hasattr(m, "Recalling")}
        has_all = hasattr(memory, "look")  # see `Whole` in core/memory.py
        fitting = sorted(name for name, policy in over.items() if has_all or not policy.chooses)
        if name in fitting:
            return over[name]
        raise UsageError(
            f"cannot decode with {name!r} what is asked with the method {self.name!r}",
            f"the policies for that are {', '.join(fitting)}",
            "Choose one of them with --decode, or another --method.",
        )

    def find(self, question: Question) -> tuple[Scores, Tensor]:
        """What the question itself attends to.

        Raises:
            LongctxError: the document's method keeps nothing to search by.
        """
        _require_search(self._method, self.name, self._document)
        memory = self._method.recall()
        self._read(memory, question)
        return self._chosen(memory, question)

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

    def _chosen(self, memory: Recalled, question: Question) -> tuple[Scores, Tensor]:
        scores = self._scores(memory)
        wanted = self._method.gather if question.gather is None else question.gather
        count = min(wanted, int((scores.pooled >= 0).sum()))
        return scores, top_tokens(scores, count, self._document.manifest.tokens, (0, 0))

    def _scores(self, memory: Recalled) -> Scores:
        scores = memory.scores(self._document.manifest.tokens)
        _require_all(scores, self._document, kept.GROUP)
        return Scores(scores.raw.cpu(), scores.pooled.cpu())


def token_ids(document: Document, tokens: Tensor, engine: Engine) -> Tensor:
    """The ids of a document's tokens.

    Args:
        document: the open document.
        tokens: (n,) ascending.
        engine: the model that they are for.

    Raises:
        StateMismatch: the model has no such ids.
    """
    ids = document.take("tokens", tokens)["ids"].long()
    if ((ids < 0) | (ids >= engine.files.config.vocab_size)).any():
        raise _damaged(document, "tokens that the model does not have")
    return ids


def _searches(method: Method) -> bool:
    return method.gather is not None and getattr(method, "searches", True)


def _require_search(method: Method, name: str, document: Document) -> None:
    if not _searches(method):
        raise LongctxError(
            f"cannot search document {document.manifest.name!r}",
            f"method {name!r} keeps no embeddings",
            "Ingest it with --method reform, or use --gather-by bm25.",
        )


def _require_all(scores: Scores, document: Document, group: str) -> None:
    if len(scores.raw) != document.manifest.tokens:
        raise _damaged(document, f"{len(scores.raw):,} rows of {group!r}")


def _damaged(document: Document, has: str) -> StateMismatch:
    manifest = document.manifest
    why = f"it has {has} for its {manifest.tokens:,} tokens"
    return StateMismatch(f"'{manifest.name}' is damaged", why, AGAIN)
