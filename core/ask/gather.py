"""Gather: which tokens of a document a question needs, and the passages they form.

Scores come from the method; the rule that turns scores into tokens is the same for all methods.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from longctx.core.ask.place import Passage, placed
from longctx.core.contracts.memory import Scores
from longctx.core.passages.matching import Query, best_piece, pieces, shown
from longctx.core.passages.snippet import Snippet
from longctx.core.store.document import Document

BEFORE = 80  # characters of a line that are shown before its best token


def top_tokens(scores: Scores, count: int, total: int, edges: tuple[int, int]) -> Tensor:
    """The tokens to gather: the document's edges, and the best of the rest.

    Ties go to the higher raw score, then to the earlier token.

    Args:
        scores: of all N tokens; unused where `count` is at least N.
        count: how many to gather.
        total: N.
        edges: (first, last) tokens that are always gathered; scaled down where `count` is less.

    Returns:
        (min(count, N),) token indices, ascending.
    """
    if count >= total:
        return torch.arange(total)
    first, last = edges
    if first + last > count:
        first = count * first // (first + last)
        last = count - first
    best = best_tokens(scores, range(first, total - last), count - first - last)
    ends = torch.cat([torch.arange(first), torch.arange(total - last, total)])
    return torch.cat([ends, best.cpu()]).sort().values


def best_tokens(scores: Scores, among: range, count: int) -> Tensor:
    """The best of a range of tokens, (count,), unordered; ties as in `top_tokens`."""
    raw, pooled = (s[among.start : among.stop] for s in (scores.raw, scores.pooled))
    if count == 0:
        return torch.zeros(0, dtype=torch.long)
    cut = pooled.topk(count).values[-1]
    sure = (pooled > cut).nonzero()[:, 0]
    level = (pooled == cut).nonzero()[:, 0]
    # A stable descending sort leaves equal raw scores in document order.
    order = raw[level].argsort(descending=True, stable=True)
    return torch.cat([sure, level[order[: count - len(sure)]]]) + among.start


def split(tokens: Tensor, lengths: Sequence[int]) -> list[Tensor]:
    """Splits tokens of several documents by document, each counted from its own start.

    Args:
        tokens: (n,) ascending, numbered through all documents.
        lengths: tokens of each document.
    """
    borders = [0, *accumulate(lengths)]
    places = torch.searchsorted(tokens, torch.tensor(borders)).tolist()
    spans = zip(pairwise(places), borders, strict=False)
    return [tokens[low:high] - first for (low, high), first in spans]


def passages(
    documents: Sequence[Document], tokens: Tensor, raw: Tensor, query: Query
) -> list[Passage]:
    """The gathered tokens as contiguous runs of one source each, best score first.

    Args:
        documents: open; tokens are numbered through all of them.
        tokens: (n,) ascending token indices.
        raw: (N,) scores; empty where the method has none.
        query: the question, with the weights of its words.
    """
    lengths = [document.manifest.tokens for document in documents]
    scores = raw.split(lengths) if len(raw) else [raw] * len(lengths)
    found = [
        passage_of(document, first, end, own, query)
        for document, part, own in zip(documents, split(tokens, lengths), scores, strict=True)
        for first, end in runs(document, part)
    ]
    return sorted(found, key=lambda passage: -passage.score)


def runs(document: Document, tokens: Tensor) -> Iterable[tuple[int, int]]:
    """Contiguous runs [first, end) of tokens (n,) ascending, each of one source."""
    borders = {source.first_token for source in document.manifest.sources}
    run: list[int] = []
    for token in tokens.tolist():
        if run and (token != run[1] or token in borders):
            yield run[0], run[1]
            run = []
        run = [run[0] if run else token, token + 1]
    if run:
        yield run[0], run[1]


def gathered_spans(
    documents: Sequence[Document], tokens: Tensor, raw: Tensor
) -> list[tuple[Document, int, int, int]]:
    """The same runs in the same order, as bytes: (document, source, start, end)."""
    lengths = [document.manifest.tokens for document in documents]
    scores = raw.split(lengths) if len(raw) else [raw] * len(lengths)
    found = [
        (_best(own, first, end)[1], (document, *document.span(first, end)))
        for document, part, own in zip(documents, split(tokens, lengths), scores, strict=True)
        for first, end in runs(document, part)
    ]
    found.sort(key=lambda one: -one[0])
    return [span for _, span in found]


def _best(raw: Tensor, first: int, end: int) -> tuple[int, float]:
    """The best token of a run, and its score as it is reported; the first where none has one."""
    best = first + int(raw[first:end].argmax()) if len(raw) else first
    return best, round(float(raw[best]), 6) if len(raw) else 0.0


def passage_of(document: Document, first: int, end: int, raw: Tensor, query: Query) -> Passage:
    """The tokens [first, end) of a document, with the line that fits a query best.

    Args:
        document: open.
        first, end: tokens of one source, counted from the document's first.
        raw: (N,) scores of the document's tokens; empty where there are none.
        query: the question, with the weights of its words.
    """
    source, start, stop = document.span(first, end)
    best, score = _best(raw, first, end)
    _, best_start, _ = document.span(best, best + 1)
    info = document.manifest.sources[source]
    raw_text = document.text(source, start, stop)
    text = raw_text.decode(info.codec, errors="replace")
    piece = best_piece(query, text, pieces(text, 0, len(text)))
    if piece is None:
        best_text = _around(raw_text, best_start - start, info.codec)
    else:
        best_start = Snippet(start, raw_text, info.codec, text).byte(piece.start)
        best_text = text[piece.start : piece.end]
        low, high = shown(best_text, query.marked(best_text))
        best_text = best_text[low:high]
    return Passage(
        **placed(document, source, start, stop),
        score=score,
        text=text,
        best_place=document.place(source, min(best_start, stop)),
        best_text=best_text,
    )


def _around(text: bytes, offset: int, encoding: str) -> str:
    """The line at a byte offset, from at most `BEFORE` characters before it."""
    start = text.rfind(b"\n", 0, offset) + 1
    end = text.find(b"\n", offset)
    before = text[start:offset].decode(encoding, errors="replace")[-BEFORE:]
    after = text[offset : len(text) if end < 0 else end].decode(encoding, errors="replace")
    return before + after
