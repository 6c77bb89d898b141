"""Attention of one token to chosen pages of a cache: the definition."""

import torch
from torch import Tensor

from longctx.kernels.choice import operation


@operation
def paged_attention(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    filled: Tensor,
    pages: Tensor | None,
    scale: float,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """Attention of one token to the pages that each key/value head has chosen.

    Args:
        q: rotated queries (H, 1, D).
        keys: rotated (G, C, D); query head h reads key head h // (H/G).
        values: (G, C, D).
        filled: (G, C / page) int32, entries in use of each page, always the first ones.
        pages: (G, P) int64 page numbers, unique in each row; None: all.
        scale: factor on q·k.
        softcap: logits are bounded to softcap * tanh(logits / softcap); None: no bound.
        sinks: (H,) logit of each query head that takes attention but has no value; None: none.

    Returns:
        (H, 1, D). At least one entry must be in use.
    """
    (H, _, D), (G, count) = q.shape, filled.shape
    wide, page = torch.promote_types(q.dtype, torch.float32), keys.shape[1] // count
    if pages is None:
        pages = torch.arange(count, device=q.device).expand(G, count)
    heads = torch.arange(G, device=q.device)[:, None]
    k, v = (x.view(G, count, page, -1)[heads, pages].to(wide) for x in (keys, values))
    live = torch.arange(page, device=q.device) < filled[heads, pages][..., None]  # (G, P, page)
    live = live.flatten(1)
    k, v = k.flatten(1, 2), torch.where(live[..., None], v.flatten(1, 2), 0)
    logits = torch.matmul(q.to(wide).view(G, H // G, D), k.mT) * scale  # (G, H/G, P * page)
    if softcap is not None:
        logits = torch.tanh(logits / softcap) * softcap
    logits = logits.masked_fill(~live[:, None], -torch.inf)
    if sinks is not None:
        logits = torch.cat([logits, sinks.to(wide).view(G, H // G, 1)], dim=-1)
    weights = torch.softmax(logits, dim=-1)[..., : live.shape[1]]
    return torch.matmul(weights, v).view(H, 1, -1).to(q.dtype)
