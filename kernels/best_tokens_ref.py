"""The tokens that attention went to, best first, by one rule for ties: the definition.

All sizes are fixed and counts are tensors: where no kernel runs, a GPU is not waited for either.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from longctx.kernels.choice import operation


@operation
def best_tokens(weights: Tensor, count: Tensor, budget: int, pool: int) -> Tensor:
    """The tokens of each head with the largest weights after pooling, best first.

    A token's weight is the largest of its `pool` neighbours, itself in the middle; of equal ones
    the token whose own weight is larger comes first, then the earlier one.

    Args:
        weights: (G, N), none below 0.
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
    for rank in (own, pooled):  # the rule's last part first: each sort keeps the order of equals
        order = rank.gather(1, tokens).argsort(dim=1, descending=True, stable=True)
        tokens = tokens.gather(1, order)
    return tokens


def _chosen(own: Tensor, pooled: Tensor, K: int) -> Tensor:
    """(G, N) bool, K in each row: a cut by the pooled weight, in its level by the own, then place.

    Sorting all of N would give the same; this goes over it a few times.
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
