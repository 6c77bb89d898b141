"""The tokens that attention went to, best first, by one rule for ties: the definition.

All sizes are fixed and counts are tensors, so that nothing waits for a GPU even without the kernel.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from longctx.kernels.choice import operation


@operation
def best_tokens(weights: Tensor, count: Tensor, budget: int, pool: int) -> Tensor:
    """The tokens of each head with the largest weights after pooling, best first.

    A token's weight is the largest of its `pool` neighbours, itself in the middle; ties go to the
    token with the larger own weight, then to the earlier one.

    Args:
        weights: (G, N), not negative.
        count: (1,) int on the device, tokens in use: always the first ones.
        budget: tokens to choose.
        pool: odd.

    Returns:
        (G, min(budget, N)) int64, best first; tokens that are not in use come after all others.
    """
    K = min(budget, weights.shape[1])
    unused = torch.arange(weights.shape[1], device=weights.device) >= count
    own = weights.masked_fill(unused, -1.0)
    pooled = F.max_pool1d(own[None], pool, stride=1, padding=pool // 2)[0]
    pooled = pooled.masked_fill(unused, -1.0)
    tokens = _packed(_chosen(own, pooled, K), K)
    for rank in (own, pooled):  # the rule's last part first: the sorts are stable
        order = rank.gather(1, tokens).argsort(dim=1, descending=True, stable=True)
        tokens = tokens.gather(1, order)
    return tokens


def _chosen(own: Tensor, pooled: Tensor, K: int) -> Tensor:
    """(G, N) bool, K in each row: a cut by pooled weight, at a tie by own weight, then by place.

    Sorting all N would give the same; this only makes a few passes.
    """
    cut = pooled.topk(K, sorted=False).values.amin(dim=1, keepdim=True)
    chosen = pooled > cut
    level = own.masked_fill(pooled != cut, -2.0)
    missing = K - chosen.sum(dim=1, keepdim=True)  # at least 1
    cut = level.topk(K).values.gather(1, missing - 1)
    chosen |= level > cut
    level = level == cut
    missing = K - chosen.sum(dim=1, keepdim=True)
    return chosen | (level & (level.cumsum(dim=1, dtype=torch.int32) <= missing))


def _packed(chosen: Tensor, K: int) -> Tensor:
    """The places (G, K), ascending, of the K marked entries of each row (G, N)."""
    place = torch.where(chosen, chosen.cumsum(dim=1) - 1, K)
    tokens = torch.arange(chosen.shape[1], device=chosen.device).expand_as(place)
    return place.new_empty(len(place), K + 1).scatter_(1, place, tokens)[:, :K]
