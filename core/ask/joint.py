"""Several documents asked at once: their passages are ranked together and share one budget.

Documents are compared with the question one after another, so only one state is in memory at a
time. Where methods' own rules choose tokens, each document with a token among the best also has its
first and last tokens recomputed. The prompt holds only the documents' tokens: a passage's document
and line follow from the positions of its tokens.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import TypeVar

import torch
from torch import Tensor

from longctx.core.ask.answering import Question
from longctx.core.ask.gather import best_tokens, top_tokens
from longctx.core.ask.gathering import Gatherer
from longctx.core.ask.kept_rows import KeptRows
from longctx.core.ask.one_document import Gathering
from longctx.core.ask.state_checks import has_embeddings
from longctx.core.ask.ways import way_of
from longctx.core.common.errors import StateMismatch, UsageError
from longctx.core.contracts.memory import Scores
from longctx.core.contracts.method import Method
from longctx.core.engine.opening import memory_of, saved_snapshot
from longctx.core.engine.setup import Engine
from longctx.core.retrieve.late_interaction import Maxima
from longctx.core.retrieve.lexical import PassageIndex
from longctx.core.store.document import Document

EDGE = 32  # first tokens, and last tokens, of a document with a token among the best

T = TypeVar("T")


class Joint(Gatherer):
    """Recomputes the best-scoring tokens of several documents with the question.

    Args:
        engines: the model, with the method of each document.
        documents: open, in order.
        gathers_by: the gather source; see `core/retrieve/gather_by/`.
        index: all their passages, and their words.
        rows: embeddings of the documents, on the device while there is room.

    Raises:
        UsageError: a document answers by recall, so nothing of it is gathered.
        LongctxError: a document cannot be asked in the way that the user named.
    """

    def __init__(
        self,
        engines: Sequence[Engine],
        documents: tuple[Document, ...],
        gathers_by: str,
        index: PassageIndex,
        rows: KeptRows,
    ):
        self._states = list(zip(engines, documents, strict=True))
        self._index, self._rows = index, rows
        self._asked_by = gathers_by
        self._ways = [self._way(*state, state[0].new_method()) for state in self._states]
        name = ", ".join(dict.fromkeys(way.name for way in self._ways))
        super().__init__(engines[0], documents, name, gathers_by, index)
        self._edges = (EDGE, EDGE)
        self.require_search()
        wanted = [way.gather for way in self._ways]
        self._gather = None if None in wanted else max(n for n in wanted if n is not None)

    def _way(self, engine: Engine, document: Document, method: Method) -> Gathering:
        stored = self._rows.of(document)
        way = way_of(engine, document, method, self._asked_by, self._index, stored)
        if not isinstance(way, Gathering):
            raise alone(document.manifest.name, way.name)
        return way

    def _has_embeddings(self, document: Document) -> bool:
        return has_embeddings(document)

    def _maxima(self, question: Question) -> Maxima:
        parts = [*self._each(lambda way: way.passage_maxima(question))]
        return Maxima.joined(parts)

    def _method_scores(self, question: Question) -> Scores:
        found = [*self._each(lambda way: way.score(question))]
        return Scores(
            torch.cat([scores.raw for scores in found]),
            torch.cat([scores.pooled for scores in found]),
        )

    def _each(self, ask: Callable[[Gathering], T]) -> Iterator[T]:
        """Restores the documents' states one after another, and asks each."""
        for engine, document in self._states:
            device = "cpu" if engine.devices else engine.device
            try:
                method = memory_of(engine, document, saved_snapshot(document, device))
                found = ask(self._way(engine, document, method))
            except StateMismatch as error:  # a method does not know whose rows it has
                error.document = document.manifest.folder
                raise
            yield found
            del method  # before the next one comes

    def require_search(self) -> None:
        """See `Gatherer.require_search`."""
        for way in self._ways:
            way.require_search()

    def _top_tokens(self, scores: Scores, count: int, edges: tuple[int, int]) -> Tensor:
        lengths = [document.manifest.tokens for document in self.documents]
        return joint_tokens(scores, count, lengths, edges)


def alone(name: str, method: str) -> UsageError:
    """The error for a document that cannot be asked together with others."""
    return UsageError(
        f"cannot ask '{name}' together with other documents",
        f"the method {method!r} attends to everything that it kept of one document",
        "Ask it alone, or use --gather-by hybrid.",
    )


def joint_tokens(
    scores: Scores, count: int, lengths: Sequence[int], edges: tuple[int, int]
) -> Tensor:
    """The tokens of several documents to gather: the best, and the edges of their documents.

    Documents are admitted by the rank of their best token, while that token still fits beside the
    edges of all admitted documents; further ones only to make up `count`. Ties go to the higher
    raw score, then the earlier document, then the earlier token.

    Args:
        scores: of all N tokens, numbered through all documents.
        count: how many to gather, edges included.
        lengths: tokens of each document; they add up to N.
        edges: (first, last) tokens of each admitted document; fewer where all edges would take
            more than half of `count`.

    Returns:
        (min(count, N),) token indices, ascending.
    """
    total = sum(lengths)
    if count >= total or not any(edges):
        return top_tokens(scores, count, total, (0, 0))
    borders = torch.tensor([0, *accumulate(lengths)])
    order = _ranked(scores, count, borders.tolist())
    owner = torch.searchsorted(borders, order, right=True) - 1
    admitted = list(dict.fromkeys(owner.tolist()))  # documents, best first
    while True:
        pinned = _edges_of(admitted, borders.tolist(), edges, count)
        free = torch.isin(owner, torch.tensor(admitted)) & ~torch.isin(order, pinned)
        ranks = free.nonzero()[:, 0][: count - len(pinned)]
        enough = sum(lengths[other] for other in admitted[:-1]) >= count
        best = int((owner == admitted[-1]).nonzero()[0])
        if len(admitted) == 1 or not enough or best <= int(ranks[-1]):
            return torch.cat([pinned, order[ranks]]).sort().values
        admitted.pop()


def _ranked(scores: Scores, count: int, borders: list[int]) -> Tensor:
    """The `count` best tokens of each document, ranked together.

    The gathered tokens are among them, and they are far fewer than all tokens.
    """
    spans = [range(first, end) for first, end in pairwise(borders)]
    best = [best_tokens(scores, span, min(count, len(span))).cpu() for span in spans]
    tokens = torch.cat(best).sort().values
    order = tokens[scores.raw[tokens].argsort(descending=True, stable=True)]
    return order[scores.pooled[order].argsort(descending=True, stable=True)]


def _edges_of(
    documents: Sequence[int], borders: Sequence[int], edges: tuple[int, int], count: int
) -> Tensor:
    """First and last tokens of documents, scaled down where all edges would take more than half of
    `count`."""
    share = min(sum(edges), count // 2 // len(documents))
    first = share * edges[0] // sum(edges)
    found = []
    for start, end in ((borders[number], borders[number + 1]) for number in documents):
        if end - start <= share:
            found.append(torch.arange(start, end))
        else:
            found += [torch.arange(start, start + first), torch.arange(end - share + first, end)]
    return torch.cat(found)
