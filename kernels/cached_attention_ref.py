"""Attention of one token to the first entries of a cache: the definition."""

import torch
import torch.nn.functional as F
from torch import Tensor

from longctx.kernels.choice import operation


@operation
def cached_attention(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    count: Tensor,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    weights: Tensor | None = None,
) -> Tensor:
    """Attention of one token to the first `count` entries of a cache, itself one of them.

    Args:
        q: rotated queries (H, 1, D).
        keys: rotated (G, C, D); query head h reads key head h // (H/G).
        values: (G, C, D).
        count: (1,) int on the device; later entries are ignored.
        scale: factor on q·k.
        window: only this many of the last of them are seen; None: all.
        softcap: logits are bounded to softcap * tanh(logits / softcap); None: no bound.
        sinks: (H,) logit of each query head that takes attention but has no value; None: none.
        weights: (G, C) float32 (float64 for float64 queries), receives each entry's attention,
            the largest of its group's query heads; 0 for those not seen. None: not needed.

    Returns:
        (H, 1, D).
    """
    (H, _, D), G, n = q.shape, len(keys), int(count)
    seen = slice(0 if window is None else max(0, n - window), n)
    k, v = keys[:, seen], values[:, seen]
    if softcap is None and sinks is None and weights is None:
        grouped = q.reshape(1, G, H // G, D)  # the heads of a group act as queries of one head
        out = F.scaled_dot_product_attention(grouped, k[None], v[None], scale=scale)
        return out.view(H, 1, -1)
    wide = torch.promote_types(q.dtype, torch.float32)
    logits = torch.matmul(q.to(wide).view(G, H // G, D), k.to(wide).mT) * scale  # (G, H/G, n)
    if softcap is not None:
        logits = torch.tanh(logits / softcap) * softcap
    if sinks is not None:
        logits = torch.cat([logits, sinks.to(wide).view(G, H // G, 1)], dim=-1)
    received = torch.softmax(logits, dim=-1)[..., : k.shape[1]]
    if weights is not None:
        weights.zero_()[:, seen] = received.amax(dim=1)
    return torch.matmul(received, v.to(wide)).view(H, 1, -1).to(q.dtype)
