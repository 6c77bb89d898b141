"""Exact attention of a chunk to [cached | chunk], both already rotated.

A chunk after a cache needs a mask that no fused backend supports without building it. So attention
is split: all of the cache, then the chunk causally, merged by their log-sum-exps. Without fused
operators, one masked call gives the same. Soft caps, and sinks without a log-sum-exp, are computed
by definition, in blocks of queries. Knows nothing of methods.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from longctx.kernels.door import fused_attention

BLOCK_LOGITS = 1 << 24  # attention logits in memory at once if no fused operator computes them


def causal_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """Attention of T queries at the last T of S consecutive positions.

    Args:
        q: rotated queries (H, T, D).
        k: rotated keys (G, S, D); query head h reads key/value head h // (H/G).
        v: values (G, S, D).
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
    v: Tensor,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """The same with each query's log-sum-exp (H, T), or None if no fused operator gave it."""
    T, S = q.shape[1], k.shape[1]
    reach = S if window is None else min(window, S)
    if softcap is not None or (sinks is not None and (reach < S or T == 1)):
        return _defined(q, k, v, scale, reach, softcap, sinks), None
    if reach < S:
        return _masked(q, k, v, scale, _band(T, S, reach, q.device)), None
    if T == 1:
        return _sdpa(q, k, v, scale), None
    attended = fused_causal(q, k, v, scale)
    if attended is not None:
        return attended if sinks is None else with_sinks(*attended, sinks)
    if sinks is not None:
        return _defined(q, k, v, scale, reach, softcap, sinks), None
    if T == S:
        return _sdpa(q, k, v, scale, is_causal=True), None
    return _masked(q, k, v, scale, _band(T, S, S, q.device)), None


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


# --- fused --------------------------------------------------------------------------------------


def fused_causal(q: Tensor, k: Tensor, v: Tensor, scale: float) -> tuple[Tensor, Tensor] | None:
    """Attention of T queries at the last T of S positions, with its log-sum-exps.

    All of the cache and the chunk causally, merged; None if no fused operator is available.
    """
    C = k.shape[1] - q.shape[1]
    own = fused_attention(q, k[:, C:], v[:, C:], scale, causal=True)
    if own is None or not C:
        return own
    past = fused_attention(q, k[:, :C], v[:, :C], scale, causal=False)
    return None if past is None else merged(*past, *own)


def merged(past: Tensor, past_lse: Tensor, own: Tensor, own_lse: Tensor) -> tuple[Tensor, Tensor]:
    """Merges attention (H, T, D) to two sets of keys, each with its log-sum-exps, into one."""
    share = torch.sigmoid(past_lse - own_lse).to(own.dtype)[..., None]  # (H, T, 1)
    return own.lerp(past, share), torch.logaddexp(past_lse, own_lse)


def with_sinks(out: Tensor, lse: Tensor, sinks: Tensor) -> tuple[Tensor, Tensor]:
    """Gives each sink its share of the attention, and adds it to the log-sum-exp."""
    sink = sinks[:, None].to(lse.dtype)  # (H, 1)
    return out * torch.sigmoid(lse - sink).to(out.dtype)[..., None], torch.logaddexp(lse, sink)


# --- by definition ------------------------------------------------------------------------------


def _defined(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    window: int,
    softcap: float | None,
    sinks: Tensor | None,
) -> Tensor:
    """Softmax over capped logits and sinks, by blocks of queries and the keys in their reach."""
    (H, T, _), S = q.shape, k.shape[1]
    # Blocks no longer than the window see at most twice as many keys.
    rows = max(1, min(window, BLOCK_LOGITS // (H * min(S, 2 * window))))
    blocks = []
    for start in range(0, T, rows):
        block = q[:, start : start + rows]
        end = S - T + start + block.shape[1]  # of the keys that the block's last query sees
        reach = slice(max(0, end - block.shape[1] - window + 1), end)
        weights = _weights(block, k[:, reach], scale, window, softcap, sinks)
        blocks.append(torch.bmm(weights.to(v.dtype).flatten(1, 2), v[:, reach]).view(block.shape))
    return torch.cat(blocks, dim=1)


def _weights(
    q: Tensor,
    k: Tensor,
    scale: float,
    window: int,
    softcap: float | None,
    sinks: Tensor | None,
) -> Tensor:
    """(G, H/G, T, S) attention of queries at the last T of S positions, float32 or wider."""
    (H, T, D), (G, S, _) = q.shape, k.shape
    logits = torch.bmm(q.reshape(G, H // G * T, D), k.mT).mul_(scale).view(G, H // G, T, S)
    if softcap is not None:
        logits = torch.tanh(logits / softcap) * softcap
    logits = logits.masked_fill(~_band(T, S, window, q.device), -torch.inf)
    wide = torch.promote_types(q.dtype, torch.float32)
    if sinks is None:
        return torch.softmax(logits, dim=-1, dtype=wide)
    column = sinks.view(G, H // G, 1, 1).expand(-1, -1, T, 1)
    return torch.softmax(torch.cat([logits, column], dim=-1), dim=-1, dtype=wide)[..., :-1]
