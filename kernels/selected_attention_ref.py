"""Attention of one token to a list of selected keys, rotated to their places: the definition."""

import torch
from torch import Tensor

from longctx.kernels.choice import operation


def rotate_half(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates the leading dimensions of x, each of their first half with its partner in the second.

    Args:
        x: (heads, n, D).
        cos, sin: (n, R), R <= D; dimensions from R on do not change.

    Returns:
        (heads, n, D).
    """
    R = cos.shape[-1]
    part = x[..., :R]
    low, high = part.chunk(2, dim=-1)
    return torch.cat([part * cos + torch.cat([-high, low], dim=-1) * sin, x[..., R:]], dim=-1)


@operation
def selected_attention(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    index: Tensor,
    total: Tensor,
    scale: float,
    cos: Tensor | None = None,
    sin: Tensor | None = None,
    key_scales: Tensor | None = None,
    gathered: bool = False,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """Attention of one token to those that a list names, itself the last, keys rotated in place.

    Args:
        q: position-free queries (H, 1, D), at position total - 1.
        keys: (N, G, D), position-free, of q's dtype or int8; query head h reads key head
            h // (H/G).
        values: (N, G, D).
        index: (S,) int64, the tokens in order; entry s is at position s.
        total: (1,) int on the device, entries in use; later ones are ignored.
        scale: factor on q·k.
        cos, sin: (>= S, R) by position, for `rotate_half`; None: nothing is rotated.
        key_scales: float16 (N, G) of int8 keys.
        gathered: the values are (S, G, D), in the order of the list.
        softcap: logits are bounded to softcap * tanh(logits / softcap); None: no bound.
        sinks: (H,) logit of each query head that takes attention but has no value; None: none.

    Returns:
        (H, 1, D) in the dtype of q, computed in float32 (float64 for float64 queries).
    """
    (H, _, D), G, S = q.shape, keys.shape[1], len(index)
    wide = torch.promote_types(q.dtype, torch.float32)
    live = torch.arange(S, device=q.device) < total
    index = torch.where(live, index, 0)
    k = keys.index_select(0, index).to(wide)  # (S, G, D)
    if key_scales is not None:
        k = k * key_scales.index_select(0, index).to(wide)[..., None]
    v = values[:S] if gathered else values.index_select(0, index)
    v = torch.where(live[:, None, None], v, 0).to(wide)  # else zero times infinity is NaN
    q, k, dtype = q.to(wide), k.transpose(0, 1), q.dtype
    if cos is not None and sin is not None:
        own = total.long() - 1
        q = rotate_half(q, cos.index_select(0, own).to(wide), sin.index_select(0, own).to(wide))
        k = rotate_half(k, cos[:S].to(wide), sin[:S].to(wide))
    logits = torch.bmm(q.reshape(G, H // G, D), k.mT) * scale  # (G, H/G, S)
    if softcap is not None:
        logits = torch.tanh(logits / softcap) * softcap
    logits = logits.masked_fill(~live, -torch.inf)
    if sinks is not None:
        logits = torch.cat([logits, sinks.to(wide).view(G, H // G, 1)], dim=-1)
    weights = torch.softmax(logits, dim=-1)[..., :S]
    return torch.bmm(weights, v.transpose(0, 1)).view(H, 1, -1).to(dtype)
