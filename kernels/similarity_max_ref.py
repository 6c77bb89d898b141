"""Best int8 cosine of each token with any question token, and its sliding maximum: definition."""

import torch
import torch.nn.functional as F
from torch import Tensor

from longctx.kernels.choice import operation

BLOCK = 1 << 14  # tokens at a time; more leave the CPU's caches


@operation
def similarity_max(vectors: Tensor, scales: Tensor, query: Tensor, query_scales: Tensor) -> Tensor:
    """For each token its best int8 cosine, meaned over heads, with any token of the question.

    Args:
        vectors: int8 (n, heads, D), the tokens.
        scales: float16 (n, heads).
        query: int8 (T, heads, D), the question's tokens.
        query_scales: float16 (T, heads).

    Returns:
        (n,) float32. Equal inputs give equal bits, however n is cut.
    """
    blocks = zip(vectors.split(BLOCK), scales.split(BLOCK), strict=True)
    parts = [_best_cosine(*block, query, query_scales) for block in blocks]
    return torch.cat(parts) if parts else torch.zeros(0, device=vectors.device)


def _best_cosine(vectors: Tensor, scales: Tensor, query: Tensor, query_scales: Tensor) -> Tensor:
    heads = vectors.shape[1]
    total = torch.zeros(len(vectors), len(query), device=vectors.device)
    for h in range(heads):
        # float32 holds these int32 dots exactly: |dot| <= 127 * 127 * D < 2**24 for D <= 1040
        dots = vectors[:, h].float() @ query[:, h].float().T  # (n, T)
        total += dots * scales[:, h, None].float() * query_scales[None, :, h].float()
    return total.amax(dim=1) / heads


@operation
def sliding_max(raw: Tensor, reach: int) -> Tensor:
    """Maximum over -reach..+reach around each entry, clipped at the ends.

    Args:
        raw: (n,).
        reach: neighbours on each side.

    Returns:
        (n,) in the dtype of raw.
    """
    reach = min(reach, len(raw))  # there may be fewer neighbours
    return F.max_pool1d(raw[None], kernel_size=2 * reach + 1, stride=1, padding=reach)[0]
