"""The two ways to an answer: tokens are gathered and recomputed, or all are attended to.

Which one it is says the method (`Method.recalls`). Both give a memory to decode from, and the
tokens that the answer stands on.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from longctx.core import decoding, embeddings
from longctx.core.decoding import Decoding
from longctx.core.errors import LongctxError, StateMismatch, UsageError
from longctx.core.gather import room, top_tokens
from longctx.core.kv import kept
from longctx.core.memory import Chunked, Method, Recalled, Scores
from longctx.core.policy import Policy
from longctx.core.recompute import recompute
from longctx.core.setup import Engine
from longctx.core.store.document import Document
from longctx.core.store.shards import AGAIN


@dataclass(frozen=True)
class Question:
    """What was asked.

    Attributes:
        ids: (T,) token ids, the template's included.
        scored: (T,) bool, the tokens of the user's own words.
        answer: tokens that the answer may have; 0: none is wanted.
        gather: tokens to gather; None: as many as the method wants.
        decoding: how its answer is decoded.
    """

    ids: Tensor
    scored: Tensor
    answer: int = 0
    gather: int | None = None
    decoding: Decoding = decoding.USUAL

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
        threshold: best score under which a document seems not to answer; None: it is not known.
    """

    name: str
    threshold: float | None

    def begin(self, question: Question, on_gathered: Callable[[], None]) -> Begun:
        """Reads the question; `on_gathered` is called when it is known what it needs."""
        ...

    def find(self, question: Question) -> tuple[Scores, Tensor]:
        """Scores of all tokens and those chosen, ascending; nothing is decoded."""
        ...

    def score(self, question: Question) -> Scores:
        """Scores of all tokens, on the CPU."""
        ...


def way_of(engine: Engine, document: Document, method: Method) -> Answering:
    """How a document is asked.

    Args:
        engine: the model, and the way that the user named, if any.
        document: the open document.
        method: restored from it.

    Raises:
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
    return (Recalling if chosen.recalls else Gathering)(engine, document, chosen, name)


class Gathering:
    """The tokens that score best are recomputed with the question.

    Args:
        engine: the model.
        document: the open document.
        method: scores its tokens.
        name: the method's.
    """

    def __init__(self, engine: Engine, document: Document, method: Method, name: str):
        self._engine, self._document, self._method, self.name = engine, document, method, name
        self._prefix = engine.prompt.prefix()
        self.threshold = engine.profile.threshold

    def begin(self, question: Question, on_gathered: Callable[[], None]) -> Begun:
        """Gathers, and recomputes.

        Raises:
            UsageError: the question leaves no room in the window, or the prompt none in what the
                decode policy holds.
            LongctxError: all tokens are wanted and do not fit.
        """
        wanted = self._method.gather if question.gather is None else question.gather
        options = question.decoding.options
        fit = room(self._engine.window, *self._lengths(question), wanted, options.less)
        options.require(len(self._prefix) + fit.tokens + len(question.ids))
        found = self._chosen(question, fit.tokens, self._method.edges)
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
        if self._method.gather is None:
            raise LongctxError(
                f"cannot search document {self._document.manifest.name!r}",
                f"method {self._engine.method_name!r} keeps no embeddings",
                "Ingest it with --method reform.",
            )
        room(self._engine.window, *self._lengths(question), self._method.gather)
        count = self._method.gather if question.gather is None else question.gather
        return self._chosen(question, count, (0, 0))

    def score(self, question: Question) -> Scores:
        """The method's scores."""
        decoder, method = self._engine.decoder, self._method

        def read(memory: Chunked) -> None:
            for chunk in question.ids.split(memory.chunk):
                decoder.read(chunk, memory, method.depth)

        scores = method.score(read, question.scored, self._document)
        if method.gather is not None:
            _require_all(scores, self._document, embeddings.GROUP)
        return Scores(scores.raw.cpu(), scores.pooled.cpu())

    def _lengths(self, question: Question) -> tuple[int, int, int, int]:
        tokens = self._document.manifest.tokens
        return len(self._prefix), len(question.ids), question.reserved, tokens

    def _chosen(
        self, question: Question, count: int, edges: tuple[int, int]
    ) -> tuple[Scores, Tensor]:
        scores = self.score(question)
        return scores, top_tokens(scores, count, self._document.manifest.tokens, edges)

    def _ids(self, chosen: Tensor) -> Tensor:
        ids = self._document.take("tokens", chosen)["ids"].long()
        if ((ids < 0) | (ids >= self._engine.files.config.vocab_size)).any():
            raise _damaged(self._document, "tokens that the model does not have")
        return ids


class Recalling:
    """The question and its answer attend to all that was kept of the document.

    Args:
        engine: the model.
        document: the open document.
        method: has kept it.
        name: the method's.
    """

    threshold = None

    def __init__(self, engine: Engine, document: Document, method: Method, name: str):
        self._engine, self._document, self._method, self.name = engine, document, method, name

    def begin(self, question: Question, on_gathered: Callable[[], None]) -> Begun:
        """Reads the question against the document.

        Raises:
            UsageError: the decode policy does not go with what the method keeps.
        """
        policy = self._policy(question.decoding.name)
        memory, hidden = self._read(question)
        memory.begin_answer()
        on_gathered()
        prompt = torch.cat([self._engine.prompt.prefix(), question.ids])
        decoded = policy(question.decoding.options, memory, self._engine.window)
        return Begun(decoded, hidden, prompt, 0, lambda: self._chosen(memory, question))

    def _policy(self, name: str) -> Callable[..., Policy]:
        module = decoding.load(name)
        if hasattr(module, "Recalling"):
            return module.Recalling
        fitting = [name for name in decoding.names() if hasattr(decoding.load(name), "Recalling")]
        raise UsageError(
            f"cannot decode with {name!r} what is asked with the method {self.name!r}",
            f"the policies for that are {', '.join(fitting)}",
            "Choose one of them with --decode, or another --method.",
        )

    def find(self, question: Question) -> tuple[Scores, Tensor]:
        """What the question itself attends to."""
        return self._chosen(self._read(question)[0], question)

    def score(self, question: Question) -> Scores:
        """How much the question attends to each token."""
        return self._scores(self._read(question)[0])

    def _read(self, question: Question) -> tuple[Recalled, Tensor]:
        memory, hidden = self._method.recall(), torch.zeros(0)
        for chunk in question.ids.split(memory.chunk):
            hidden = self._engine.decoder.read(chunk, memory)
        return memory, hidden[-1:]

    def _chosen(self, memory: Recalled, question: Question) -> tuple[Scores, Tensor]:
        scores = self._scores(memory)
        wanted = self._method.gather if question.gather is None else question.gather
        count = min(wanted, int((scores.pooled >= 0).sum()))
        return scores, top_tokens(scores, count, self._document.manifest.tokens, (0, 0))

    def _scores(self, memory: Recalled) -> Scores:
        scores = memory.scores(self._document.manifest.tokens)
        _require_all(scores, self._document, kept.GROUP)
        return Scores(scores.raw.cpu(), scores.pooled.cpu())


def _require_all(scores: Scores, document: Document, group: str) -> None:
    if len(scores.raw) != document.manifest.tokens:
        raise _damaged(document, f"{len(scores.raw):,} rows of {group!r}")


def _damaged(document: Document, has: str) -> StateMismatch:
    manifest = document.manifest
    why = f"it has {has} for its {manifest.tokens:,} tokens"
    return StateMismatch(f"'{manifest.name}' is damaged", why, AGAIN)
