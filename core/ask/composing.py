"""Composing: what was gathered becomes the document's part of a prompt, in the documents' order.

The only place that decides what tokens passages are. A model with the tokenizer of the one that
read the documents gets the stored tokens; another one gets the text, and tokenizes it. Knows
nothing of how passages were chosen.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from longctx.core.ask.gather import split
from longctx.core.common.errors import StateMismatch
from longctx.core.engine.setup import Engine
from longctx.core.retrieve.best_passages import Chosen, Measure, Run
from longctx.core.store.document import Document
from longctx.core.store.shards import AGAIN
from longctx.core.tokens.safe_splits import plain_backend

DOCUMENT = "document"  # the order of passages in a prompt
LONGEST = 16  # bytes of a token, on average, beyond which a text is not tokenized to be counted


@dataclass(frozen=True)
class Composed:
    """The document's part of a prompt.

    Attributes:
        ids: (n,) token ids.
        passages: how many runs of text they are.
    """

    ids: Tensor
    passages: int

    def told(self) -> dict[str, Any]:
        """What is reported: tokens; passages; their order."""
        return {"tokens": len(self.ids), "passages": self.passages, "order": DOCUMENT}


class Composer(ABC):
    """Composes documents' parts of prompts for the model that answers.

    Args:
        engine: that model.
        documents: open; tokens are numbered through all of them.
    """

    def __init__(self, engine: Engine, documents: Sequence[Document]):
        self.engine, self._documents = engine, documents
        lengths = (document.manifest.tokens for document in documents)
        self._firsts = [*accumulate(lengths, initial=0)]

    def measure(self, passages: int | None, whole: int) -> Measure:
        """How passages are counted while they are chosen.

        Args:
            passages: the most; None: as many as fit.
            whole: tokens of everything, from `total`.
        """
        return Measure(passages, self.size, whole)

    @abstractmethod
    def total(self, wanted: int | None) -> int:
        """Tokens of all documents; at least that many where they are far more than are wanted."""

    @abstractmethod
    def size(self, first: int, end: int) -> int:
        """Tokens of a run of the documents' tokens [first, end) of one source."""

    def composed(self, chosen: Chosen) -> Composed:
        """The prompt's part: the chosen tokens in the order of the documents.

        Raises:
            StateMismatch: a document has tokens that its model does not have, or is damaged.
        """
        runs = _runs(chosen.tokens, self._borders())
        ids = self._ids(chosen.tokens, runs)
        return Composed(torch.cat([torch.zeros(0, dtype=torch.long), *ids]), len(runs))

    @abstractmethod
    def _ids(self, tokens: Tensor, runs: Sequence[Run]) -> list[Tensor]:
        """The ids of each run; `tokens` are those of all runs, ascending."""

    def _borders(self) -> list[int]:
        """First tokens of all sources, and the end."""
        found = [
            first + source.first_token
            for first, document in zip(self._firsts, self._documents, strict=False)
            for source in document.manifest.sources
        ]
        return [*found, self._firsts[-1]]


class OfStored(Composer):
    """For a model that has the documents' own tokens."""

    def total(self, wanted: int | None) -> int:
        """See `Composer.total`."""
        return self._firsts[-1]

    def size(self, first: int, end: int) -> int:
        """See `Composer.size`."""
        return end - first

    def _ids(self, tokens: Tensor, runs: Sequence[Run]) -> list[Tensor]:
        parts = split(tokens, [document.manifest.tokens for document in self._documents])
        found = [
            token_ids(document, part, self.engine)
            for document, part in zip(self._documents, parts, strict=True)
        ]
        return [*torch.cat(found).split([end - first for first, end in runs])]


class OfText(Composer):
    """For a model with another tokenizer: each passage is tokenized by itself, as plain text.

    Args:
        engine, documents: as of `Composer`.
    """

    def __init__(self, engine: Engine, documents: Sequence[Document]):
        super().__init__(engine, documents)
        self._backend = plain_backend(engine.files.tokenizer.backend_tokenizer)
        self._known: dict[Run, Tensor] = {}  # while passages are chosen and composed
        self._whole: int | None = None

    def total(self, wanted: int | None) -> int:
        """See `Composer.total`."""
        if self._whole is None:
            sources = (source for d in self._documents for source in d.manifest.sources)
            size = sum(source.size for source in sources)
            if wanted is not None and size > LONGEST * wanted:
                return size
            runs = [run for run in pairwise(self._borders()) if run[0] < run[1]]
            self._whole = sum(len(self._encoded(run)) for run in runs)
        return self._whole

    def size(self, first: int, end: int) -> int:
        """See `Composer.size`."""
        run = first, end
        if run not in self._known:
            self._known[run] = self._encoded(run)
        return len(self._known[run])

    def _ids(self, tokens: Tensor, runs: Sequence[Run]) -> list[Tensor]:
        found = [self._known[run] if run in self._known else self._encoded(run) for run in runs]
        self._known.clear()
        return found

    def _encoded(self, run: Run) -> Tensor:
        ids = self._backend.encode(self.text(run), add_special_tokens=False).ids
        return torch.tensor(ids, dtype=torch.long)

    def text(self, run: Run) -> str:
        """The text of a run of tokens of one source, as its bytes decode.

        Raises:
            StateMismatch: the text or the tokens are damaged.
        """
        number = int(np.searchsorted(self._firsts, run[0], side="right")) - 1
        document, offset = self._documents[number], self._firsts[number]
        source, start, end = document.span(run[0] - offset, run[1] - offset)
        codec = document.manifest.sources[source].codec
        return document.text(source, start, end).decode(codec, errors="replace")


def composer_of(engine: Engine, documents: Sequence[Document]) -> Composer:
    """The composer for the model that answers.

    Args:
        engine: the model that read the documents, with the one that answers.
        documents: open.
    """
    answering = engine.answering
    if answering is engine or _described(answering) == _described(engine):
        return OfStored(answering, documents)
    return OfText(answering, documents)


def token_ids(document: Document, tokens: Tensor, engine: Engine) -> Tensor:
    """The ids of a document's tokens.

    Args:
        document: the open document.
        tokens: (n,) ascending.
        engine: the model.

    Raises:
        StateMismatch: the model's vocabulary lacks some of them.
    """
    ids = document.take("tokens", tokens)["ids"].long()
    if ((ids < 0) | (ids >= engine.files.config.vocab_size)).any():
        manifest = document.manifest
        why = f"it has tokens that the model does not have for its {manifest.tokens:,} tokens"
        raise StateMismatch(f"'{manifest.name}' is damaged", why, AGAIN, manifest.folder)
    return ids


def everything(chosen: Chosen, total: int) -> Chosen:
    """The same scores, with all tokens."""
    return replace(chosen, tokens=torch.arange(total))


def _described(engine: Engine) -> str:
    return engine.files.tokenizer.backend_tokenizer.to_str()


def _runs(tokens: Tensor, borders: Sequence[int]) -> list[Run]:
    """Ascending tokens as runs of one source each."""
    values = tokens.numpy()
    if not len(values):
        return []
    cuts = (np.diff(values) != 1) | np.isin(values[1:], borders)
    places = [0, *(np.flatnonzero(cuts) + 1).tolist(), len(values)]
    return [(int(values[low]), int(values[high - 1]) + 1) for low, high in pairwise(places)]
