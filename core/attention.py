"""Exact attention of a chunk to [cached | chunk], both already rotated.

A chunk after a cache needs a mask that no fused backend knows without building it, so it is
split: all of the cache, then the chunk causally, merged by their log-sum-exps. Where the fused
operators are missing, one masked call gives the same. Knows nothing of methods.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def causal_attention(
    q: Tensor, k: Tensor, v: Tensor, scale: float, window: int | None = None
) -> Tensor:
    """Attention of T queries that stand at the last T of S consecutive positions.

    Args:
        q: rotated queries (H, T, D).
        k: rotated keys (G, S, D); query head h reads key/value head h // (H/G).
        v: values (G, S, D).
        scale: factor on q·k.
        window: a query at position p sees keys above p - window; None: all before it.

    Returns:
        (H, T, D).
    """
    T, S = q.shape[1], k.shape[1]
    if window is not None and window < S:
        return _masked(q, k, v, scale, _band(T, S, window, q.device))
    if T == 1 or T == S:
        return _sdpa(q, k, v, scale, is_causal=T > 1)
    fused = _fused(q)
    if fused is None:
        return _masked(q, k, v, scale, _band(T, S, S, q.device))
    C = S - T
    past, past_lse = fused(q, k[:, :C], v[:, :C], False, scale)
    own, own_lse = fused(q, k[:, C:], v[:, C:], True, scale)
    share = torch.sigmoid(past_lse - own_lse).to(q.dtype)[..., None]  # (H, T, 1)
    return own.lerp(past, share)


def _sdpa(q: Tensor, k: Tensor, v: Tensor, scale: float, **how) -> Tensor:
    return F.scaled_dot_product_attention(
        q[None], k[None], v[None], scale=scale, enable_gqa=True, **how
    )[0]


def _masked(q: Tensor, k: Tensor, v: Tensor, scale: float, mask: Tensor) -> Tensor:
    return _sdpa(q, k, v, scale, attn_mask=mask)


def _band(T: int, S: int, window: int, device: torch.device) -> Tensor:
    """(T, S) bool: the causal band of the last T of S positions."""
    query = torch.arange(S - T, S, device=device)[:, None]
    key = torch.arange(S, device=device)[None]
    return (key <= query) & (key > query - window)


def _fused(q: Tensor):
    """The device's fused operator as f(q, k, v, causal, scale) -> (out, log-sum-exp), or None."""
    if q.device.type == "cpu" and hasattr(
        torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu"
    ):
        return _flash_cpu
    if q.device.type == "cuda" and q.dtype in (torch.bfloat16, torch.float16):
        return _cudnn
    return None


def _flash_cpu(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float):
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        q[None], k[None], v[None], 0.0, causal, scale=scale
    )
    return out[0], lse[0]  # (H, T, D), (H, T)


def _cudnn(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float):
    out, lse, *_ = torch.ops.aten._scaled_dot_product_cudnn_attention(
        q[None], k[None], v[None], None, True, 0.0, causal, False, scale=scale
    )
    return out[0], lse[0].reshape(q.shape[:2])
