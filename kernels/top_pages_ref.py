"""Which pages of a cache fit a token best, and when each last did: the definitions.

The stamps are those of RaaS (Hu et al., "Efficient Long-Decoding Inference with Reasoning-Aware
Attention Sparsity", 3.2). `page_scores_ref.py` computes the scores.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from longctx.kernels.choice import operation


class Stamps(NamedTuple):
    """When pages last scored well enough.

    Attributes:
        stamps: (N, P) int64, changed in place.
        order: (N, P) int64, the number of each page in the text; ties go to the lower one.
        now: (1,) int64 on the device, the newest stamp.
        alpha: share of the softmax over the pages that earns a stamp; None: the better half of the
            pages in use, rounded up, earns it.
    """

    stamps: Tensor
    order: Tensor
    now: Tensor
    alpha: float | None = None


@operation
def stamp(scores: Tensor, stamps: Stamps) -> Tensor:
    """Gives the newest stamp to pages that were worth it to a token, of all layers at once.

    Args:
        scores: (N, P), a row for each head of every layer; -inf for pages not in use.
        stamps: of the same pages.

    Returns:
        (N, P) the stamps.
    """
    used = scores > -torch.inf
    if stamps.alpha is not None:
        worth = torch.softmax(scores, dim=-1) >= stamps.alpha
    else:
        wanted = (used.sum(dim=-1, keepdim=True) + 1) // 2
        worth = _rank(scores, stamps.order) < wanted
    return stamps.stamps.copy_(torch.where(worth & used, stamps.now, stamps.stamps))


def _rank(scores: Tensor, order: Tensor) -> Tensor:
    """The rank of each score in its row, best first; ties go to the lower in `order`."""
    by_order = order.argsort(dim=-1)
    ranked = scores.gather(-1, by_order).argsort(dim=-1, descending=True, stable=True)
    ranked = by_order.gather(-1, ranked)
    return torch.empty_like(ranked).scatter_(
        -1, ranked, torch.arange(ranked.shape[-1], device=ranked.device).expand_as(ranked)
    )


@operation
def top_pages(scores: Tensor, count: int, out: Tensor | None = None) -> Tensor:
    """The pages of each head with the highest scores, ascending.

    Args:
        scores: (G, P); no NaN.
        count: pages to choose.
        out: (G, min(count, P)) int64 for the result; None: new memory.

    Returns:
        (G, min(count, P)) int64, ascending; ties go to the earlier page.
    """
    best = scores.argsort(dim=-1, descending=True, stable=True)[:, :count].sort(dim=-1).values
    return best if out is None else out.copy_(best)
