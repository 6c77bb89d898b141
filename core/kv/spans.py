"""Semantic spans of a block, found in its attention map, and their index vectors.

Tang et al., "Ltri-LLM: Streaming Long Context Inference for LLMs with Training-Free Dynamic
Triangular Attention Pattern". Pure functions over B blocks of N tokens with up to S spans each,
independent of method, layer and store.
"""

import math

import torch
from torch import Tensor

from longctx.kernels.door import Boxes, span_boxes
from longctx.kernels.span_boxes_ref import wide

# Which neighbours of a span count: those before it in its rows, those after it in its columns.
RATIOS = {"row": (True, False), "column": (False, True), "row+column": (True, True)}


def quantile(maps: Tensor, share: float) -> Tensor:
    """The threshold of each block: the least entry that a share of all entries does not exceed.

    Args:
        maps: (B, H, N, N), attention of rows to columns; entries on and below the diagonal count,
            of all heads together.
        share: above 0, up to 1.

    Returns:
        (B,) in the dtype of the maps.
    """
    return quantiles(maps, [share])[:, 0]


def quantiles(maps: Tensor, shares: list[float]) -> Tensor:
    """`quantile` for many shares, with one sort.

    Args:
        maps: (B, H, N, N), see `quantile`.
        shares: n of them, each above 0, up to 1.

    Returns:
        (B, n) in the dtype of the maps.
    """
    N = maps.shape[-1]
    row, column = torch.tril_indices(N, N, device=maps.device)
    entries = maps[:, :, row, column].flatten(1)
    M = entries.shape[1]
    ranks = [min(max(1, math.ceil(share * M)), M) for share in shares]
    if len(ranks) == 1:  # needs no sort
        return entries.kthvalue(ranks[0], dim=1, keepdim=True).values
    return entries.sort(dim=1).values[:, torch.tensor(ranks, device=maps.device) - 1]


def boxes(summed: Tensor, theta: Tensor, heads: int = 1) -> Boxes:
    """The best span of each anti-diagonal of a block's scores (equation 5, appendix E).

    Args:
        summed: (B, N, N), attention summed over heads.
        theta: (B,), subtracted from every head's entries on and below the diagonal.
        heads: number of heads summed.

    Returns:
        2N-1 candidates; see `span_boxes`.
    """
    return span_boxes(summed, wide(theta) * heads)


def suppress(
    score: Tensor, x: Tensor, y: Tensor, phi: float, keep: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Greedy non-maximum suppression of overlapping spans.

    A span x..y is the square from (x, x) to (y + 1, y + 1). The best span is kept, those that
    overlap it by more than `phi` are dropped, and so on. On equal scores the earlier x comes
    first, then the shorter span. Only positive scores are kept.

    Args:
        score: (B, M).
        x, y: (B, M) int64.
        phi: the largest ratio of intersection to union of two kept spans.
        keep: most spans kept per block.

    Returns:
        First tokens (B, keep), last tokens (B, keep) and which of them exist (B, keep), best first;
        where there is none, both tokens are 0.
    """
    M = score.shape[1]  # no span is longer
    order = (x * (M + 1) + y - x).argsort(dim=1, stable=True)
    order = order.gather(1, score.gather(1, order).argsort(dim=1, descending=True, stable=True))
    score, x, y = (each.gather(1, order) for each in (score, x, y))
    end, area = y + 1, (y + 1 - x).square()
    alive, found = score > 0, []
    places = torch.arange(M, device=score.device)
    for _ in range(keep):
        first = torch.where(alive, places, M).amin(dim=1, keepdim=True)  # (B, 1)
        found.append(first)
        kept = first.clamp(max=M - 1)
        side = torch.minimum(end, end.gather(1, kept)) - torch.maximum(x, x.gather(1, kept))
        shared = side.clamp(min=0).square()
        alive &= shared / (area + area.gather(1, kept) - shared) <= phi
        alive.scatter_(1, kept, False)
    best = torch.cat(found, dim=1)
    there, best = best < M, best.clamp(max=M - 1)
    return x.gather(1, best) * there, y.gather(1, best) * there, there


def find(maps: Tensor, share: float, phi: float, keep: int) -> tuple[Tensor, Tensor, Tensor]:
    """The spans of blocks.

    Args:
        maps: (B, H, N, N), attention by rows and columns.
        share: the quantile subtracted from every entry; see `quantile`.
        phi, keep: see `suppress`.

    Returns:
        First tokens, last tokens and which exist, (B, keep); see `suppress`.
    """
    theta = quantile(maps, share)
    score, x, y = boxes(wide(maps).sum(dim=1), theta, maps.shape[1])
    return suppress(score, x, y, phi, keep)


def ratios(summed: Tensor, x: Tensor, y: Tensor, kind: str) -> Tensor:
    """How much of the attention around a span stays within it (3.3.2).

    Args:
        summed: (B, N, N), attention summed over heads; entries above the diagonal do not count.
        x, y: (B, S) int64, first and last token of each span.
        kind: which neighbours in the block: `row` (the same rows, columns before the span),
            `column` (its columns, rows after it) or `row+column`.

    Returns:
        (B, S), the triangle's mass over that of triangle and neighbours; 1 where both are 0.
    """
    summed = wide(summed).tril()
    token = torch.arange(summed.shape[-1], device=x.device)
    before, after = token < x[:, :, None], token > y[:, :, None]  # (B, S, N)
    inside = ~(before | after)
    rows = inside.to(summed.dtype) @ summed  # (B, S, N), by column
    own, around = (rows * inside).sum(dim=2), torch.zeros_like(x, dtype=summed.dtype)
    of_rows, of_columns = RATIOS[kind]
    if of_rows:
        around += (rows * before).sum(dim=2)
    if of_columns:
        around += ((after.to(summed.dtype) @ summed) * inside).sum(dim=2)
    total = own + around
    return torch.where(total > 0, own / torch.where(total > 0, total, 1), 1.0)


def counts(length: Tensor, r: Tensor, there: Tensor, lam: float, most: int) -> Tensor:
    """How many index vectors each span gets (equation 7).

    A span gets its length times exp(-lam (1 - r)), rounded, and at least one. If a block exceeds
    `most`, what each span has beyond one is scaled down in proportion.

    Args:
        length: (B, S) int64, tokens of each span.
        r: (B, S), see `ratios`.
        there: (B, S), which spans exist; the others get none.
        lam: how fast the count falls with r.
        most: most vectors of a block; at least the number of spans.

    Returns:
        (B, S) int64.
    """
    wanted = (length * torch.exp(-lam * (1 - r))).round().long().clamp(min=1) * there
    spans = there.sum(dim=1, keepdim=True)
    more, total = wanted - there.long(), wanted.sum(dim=1, keepdim=True)
    fewer = more * (most - spans) // (total - spans).clamp(min=1) + there
    return torch.where(total > most, fewer, wanted)


def chosen(received: Tensor, x: Tensor, y: Tensor, count: Tensor) -> Tensor:
    """The tokens of each span that received the most attention (equation 6).

    Args:
        received: (B, N), of each token.
        x, y: (B, S) int64, first and last token of each span.
        count: (B, S), tokens to choose; at most the span's length.

    Returns:
        (B, S, N) bool; ties go to the earlier token.
    """
    token = torch.arange(received.shape[1], device=x.device)
    inside = (token >= x[:, :, None]) & (token <= y[:, :, None])
    own = received[:, None].masked_fill(~inside, -torch.inf)
    order = own.argsort(dim=2, descending=True, stable=True)
    return torch.zeros_like(inside).scatter(2, order, token < count[:, :, None])


def summed_vectors(vectors: Tensor, tokens: Tensor) -> Tensor:
    """The sum of each span's index vectors, which is all that `similarity` needs.

    Args:
        vectors: (B, N, D), a key or query of every token.
        tokens: (B, S, N) bool, see `chosen`.

    Returns:
        (B, S, D), float32 or float64.
    """
    vectors = wide(vectors)
    return tokens.to(vectors.dtype) @ vectors


def similarity(queries: Tensor, keys: Tensor) -> Tensor:
    """Similarity of spans: the sum of the products of all pairs of their vectors (equation 8).

    Args:
        queries: (J, D), sums of each span's index vectors.
        keys: (I, D), likewise.

    Returns:
        (J, I).
    """
    return queries @ keys.T  # a sum over pairs of products is the product of the sums


def block_scores(queries: Tensor, asking: Tensor, keys: Tensor, there: Tensor) -> Tensor:
    """The largest similarity of any of a block's spans to any query span (equation 9).

    Args:
        queries: (J, D), sums of index vectors.
        asking: (J,) bool, which of them exist.
        keys: (n, S, D), those of n blocks.
        there: (n, S) bool.

    Returns:
        (n,); -inf where a block has no span.
    """
    of_spans = similarity(queries, keys.flatten(0, 1))
    of_spans = of_spans.masked_fill(~asking[:, None], -torch.inf).amax(dim=0)
    return of_spans.view(there.shape).masked_fill(~there, -torch.inf).amax(dim=1)


def best(scores: Tensor, count: int, votes: Tensor | None = None) -> Tensor:
    """The best blocks: by votes if given, then by score, then the earlier one.

    Args:
        scores: (n,), no NaN.
        count: blocks to choose.
        votes: (n,), which take precedence over scores.

    Returns:
        (min(count, n),) int64, in document order.
    """
    order = scores.argsort(descending=True, stable=True)
    if votes is not None:
        order = order[votes[order].argsort(descending=True, stable=True)]
    return order[:count].sort().values
