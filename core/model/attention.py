"""Exact attention of a chunk to [cached | chunk], both already rotated.

A chunk after a cache needs a mask that no fused backend supports without building it. So attention
is split: all of the cache, then the chunk causally, merged by their log-sum-exps. Without fused
operators, one masked call gives the same. Windows, soft caps, and sinks without a log-sum-exp, are
a kernel's (`band_attention`). Knows nothing of methods.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from longctx.kernels.band_attention_ref import band, masked
from longctx.kernels.door import band_attention, fused_attention, merged_attention, with_sinks

Values = Tensor | tuple[Tensor, Tensor]


def causal_attention(
    q: Tensor,
    k: Tensor,
    v: Values,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """Attention of T queries at the last T of S consecutive positions.

    Args:
        q: rotated queries (H, T, D).
        k: rotated keys (G, S, D); query head h reads key/value head h // (H/G).
        v: values (G, S, D), or those of the cache (G, S - T, D) and of the chunk (G, T, D).
        scale: factor on q·k.
        window: a query at position p sees keys above p - window; None for all before it.
        softcap: logits are bounded to softcap * tanh(logits / softcap); None if unbounded.
        sinks: (H,) logit of each query head that takes attention but has no value; None if none.

    Returns:
        (H, T, D).
    """
    return causal_attention_lse(q, k, v, scale, window, softcap, sinks)[0]


def causal_attention_lse(
    q: Tensor,
    k: Tensor,
    v: Values,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """The same with each query's log-sum-exp (H, T), or None if no fused operator gave it."""
    T, S = q.shape[1], k.shape[1]
    reach = S if window is None else min(window, S)
    plain = reach == S and softcap is None
    if plain and T > 1:
        attended = fused_causal(q, k, v, scale, sinks)
        if attended is not None:
            return attended
    v = v if torch.is_tensor(v) else torch.cat(v, dim=1)
    if not plain or sinks is not None:
        return band_attention(q, k, v, scale, reach, softcap, sinks)
    if T in (1, S):
        return _sdpa(q, k, v, scale, is_causal=T > 1), None
    return masked(q, k, v, scale, band(T, S, S, q.device)), None


def _sdpa(q: Tensor, k: Tensor, v: Tensor, scale: float, **how) -> Tensor:
    return F.scaled_dot_product_attention(
        q[None], k[None], v[None], scale=scale, enable_gqa=True, **how
    )[0]


# --- fused --------------------------------------------------------------------------------------


def fused_causal(
    q: Tensor, k: Tensor, v: Values, scale: float, sinks: Tensor | None = None
) -> tuple[Tensor, Tensor] | None:
    """Attention of T queries at the last T of S positions, with its log-sum-exps.

    All of the cache and the chunk causally, merged; None if no fused operator is available.
    """
    C = k.shape[1] - q.shape[1]
    cached, new = (v[:, :C], v[:, C:]) if torch.is_tensor(v) else v
    own = fused_attention(q, k[:, C:], new, scale, causal=True)
    if own is None or not C:
        return own if own is None or sinks is None else with_sinks(*own, sinks)
    past = fused_attention(q, k[:, :C], cached, scale, causal=False)
    return None if past is None else merged_attention(*past, *own, sinks)
