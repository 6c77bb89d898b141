"""Index vectors of blocks, and the blocks that fit a chunk's queries best.

Two ways: InfLLM's mean of a block's most attended keys for each query head, compared with the mean
query (Xiao et al., "InfLLM: Training-Free Long-Context Extrapolation for LLMs with an Efficient
Context Memory", NeurIPS 2024); and the mean keys of short runs of tokens, compared with each query.
Pure functions, independent of method and store.
"""

import torch
from torch import Tensor

WIDENED = 1 << 20  # elements of rows multiplied at once; 4 MiB in float32
EVEN = 64  # rows come in multiples of this, so that every library sums them all in one way
QUERIES = 64  # of a longer chunk, means of so many runs of queries ask: a question's ask themselves
LOGITS = 1 << 24  # most products of queries and runs at once


def representatives(keys: Tensor, received: Tensor, count: int) -> Tensor:
    """For each query head, the mean of a block's keys that received most of its attention.

    Args:
        keys: position-free keys (B, N, G, D); query head h reads key head h // (H/G).
        received: (B, H, N); ties go to the earlier token.
        count: keys to average.

    Returns:
        (B, H, D) in the dtype of the keys.
    """
    (_, _, G, D), H = keys.shape, received.shape[1]
    best = received.sort(dim=-1, descending=True, stable=True).indices[..., :count]  # (B, H, count)
    of_heads = keys.permute(0, 2, 1, 3).repeat_interleave(H // G, dim=1)  # (B, H, N, D)
    chosen = of_heads.gather(2, best[..., None].expand(-1, -1, -1, D))
    return chosen.to(received.dtype).mean(2).to(keys.dtype)


def best_blocks(q: Tensor, vectors: Tensor, count: int) -> Tensor:
    """The blocks whose vectors have the highest product with the mean query, summed over heads.

    Args:
        q: position-free queries (H, T, D).
        vectors: (n, H, D).
        count: blocks; ties go to the earlier one.

    Returns:
        (min(count, n),) ascending.
    """
    wide = torch.promote_types(q.dtype, torch.float32)
    scores = products(vectors.flatten(1), q.to(wide).mean(1).flatten())
    best = scores.sort(descending=True, stable=True).indices[:count]
    return best.sort().values


def products(rows: Tensor, query: Tensor) -> Tensor:
    """Products of rows with a vector, in its dtype; on a CPU equal rows have equal products.

    There, rows are multiplied a part at a time, and narrower ones widened in a buffer that stays in
    the processor's cache. On a GPU that is no faster.

    Args:
        rows: (n, K), of the vector's dtype or a narrower one.
        query: (K,), float32 or wider.

    Returns:
        (n,).
    """
    if rows.is_cuda:
        return rows.to(query.dtype) @ query
    found = query.new_empty(len(rows))
    # Parts are padded to a multiple of EVEN rows: a remainder would be summed in another order.
    step = max(1, min(WIDENED // len(query) // EVEN, -(-len(rows) // EVEN))) * EVEN
    part = query.new_zeros(step, len(query))
    for start in range(0, len(rows), step):
        some = rows[start : start + step]
        is_ready = len(some) == step and some.dtype == query.dtype
        if not is_ready:
            part[: len(some)] = some
        found[start : start + step] = torch.mv(some if is_ready else part, query)[: len(some)]
    return found


def run_means(keys: Tensor, run: int) -> Tensor:
    """The mean keys of a block's runs of tokens.

    Args:
        keys: position-free keys (B, N, G, D).
        run: tokens of a run, a divisor of N.

    Returns:
        (B, N / run, G, D) in the dtype of the keys.
    """
    wide = torch.promote_types(keys.dtype, torch.float32)
    return keys.unflatten(1, (-1, run)).to(wide).mean(2).to(keys.dtype)


def shares(q: Tensor, means: Tensor, scale: float) -> Tensor:
    """What the queries would give of their attention to each block, if runs were all there is.

    Each query of each head gives 1 in all, so that a head that knows where to look outweighs many
    that look everywhere, and no block gains by a mean query that resembles nothing in particular.

    Args:
        q: position-free queries (H, T, D); query head h reads key head h // (H/G).
        means: (n, R, G, D) of n blocks with R runs.
        scale: of the logits.

    Returns:
        (n,), float32 or wider.
    """
    n, R, G, D = means.shape
    wide = torch.promote_types(q.dtype, torch.float32)
    asking = _asking(q.to(wide)).reshape(G, -1, D)  # (G, H/G * T, D)
    of_heads = means.permute(2, 3, 0, 1).flatten(2).to(wide)  # (G, D, n * R)
    step, total = max(1, LOGITS // (G * n * R)), q.new_zeros(n * R, dtype=wide)
    for part in asking.split(step, dim=1):
        total += (part @ of_heads).mul_(scale).softmax(-1).sum((0, 1))
    return total.view(n, R).sum(1)


def _asking(q: Tensor) -> Tensor:
    """The queries (H, T, D) themselves, or the means of `QUERIES` runs of them."""
    if q.shape[1] <= QUERIES:
        return q
    return torch.stack([part.mean(1) for part in q.tensor_split(QUERIES, dim=1)], dim=1)


def most_shared(q: Tensor, means: Tensor, scale: float, count: int) -> Tensor:
    """The blocks with the largest `shares`; ties go to the earlier one.

    Args:
        q, means, scale: see `shares`.
        count: blocks.

    Returns:
        (min(count, n),) ascending.
    """
    best = shares(q, means, scale).sort(descending=True, stable=True).indices[:count]
    return best.sort().values
