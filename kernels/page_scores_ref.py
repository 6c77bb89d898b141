"""How well each page of a cache may fit a token: the definition.

The bound is Quest's (Tang et al., "Quest: Query-Aware Sparsity for Efficient Long-Context LLM
Inference", ICML 2024).
"""

import torch
from torch import Tensor

from longctx.kernels.choice import operation


@operation
def page_scores(
    q: Tensor,
    low: Tensor,
    high: Tensor,
    filled: Tensor,
    scale: float,
    always: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """The most that any key of each page could score with a token's queries.

    Args:
        q: rotated queries (H, 1, D).
        low, high: (G, P, D), minimum and maximum of each page's keys in every dimension.
        filled: (G, P) int32, entries in use.
        scale: factor on the sums.
        always: (1,) int64 on the device, a page that gets inf; None: none.
        out: (G, P) for the result; None: new memory.

    Returns:
        (G, P) float32 (float64 for float64 queries): the largest of a group's query heads; -inf
        for pages without entries.
    """
    wide = torch.promote_types(q.dtype, torch.float32)
    q = q.to(wide).view(len(low), -1, q.shape[-1])  # (G, H/G, D)
    # The larger of q * low and q * high, as low <= high.
    bound = torch.matmul(q.clamp(min=0), high.to(wide).mT)
    bound += torch.matmul(q.clamp(max=0), low.to(wide).mT)
    scores = (bound.amax(dim=1) * scale).masked_fill(filled == 0, -torch.inf)
    if always is not None:
        scores.index_fill_(1, always, torch.inf)
    return scores if out is None else out.copy_(scores)
