"""Attention of a chunk with a sliding window, a soft cap or sinks: the definition, in PyTorch."""

import torch
import torch.nn.functional as F
from torch import Tensor

from longctx.kernels.choice import operation

BLOCK_LOGITS = 1 << 24  # attention logits in memory at once


@operation
def band_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    window: int,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Attention of a chunk with a sliding window, a soft cap of the logits, or sinks.

    Args:
        q: rotated queries (H, T, D) at the last T of S consecutive positions.
        k: rotated keys (G, S, D); query head h reads key/value head h // (H/G).
        v: values (G, S, D).
        scale: factor on q·k.
        window: a query at position p sees keys above p - window; S: all before it.
        softcap: logits are bounded to softcap * tanh(logits / softcap); None: no bound.
        sinks: (H,) logit of each query head that takes attention but has no value; None: none.

    Returns:
        Output (H, T, D), and the kernel's log-sum-exps (H, T), sinks included; None from the
        definition.
    """
    (H, T, _), S = q.shape, k.shape[1]
    if softcap is None and sinks is None:
        mask = band(T, S, window, q.device)
        return masked(q, k, v, scale, mask), None
    # Blocks no longer than the window see at most twice as many keys.
    rows = max(1, min(window, BLOCK_LOGITS // (H * min(S, 2 * window))))
    blocks = []
    for start in range(0, T, rows):
        block = q[:, start : start + rows]
        end = S - T + start + block.shape[1]  # of the keys that the block's last query sees
        reach = slice(max(0, end - block.shape[1] - window + 1), end)
        weights = _weights(block, k[:, reach], scale, window, softcap, sinks)
        blocks.append(torch.bmm(weights.to(v.dtype).flatten(1, 2), v[:, reach]).view(block.shape))
    return torch.cat(blocks, dim=1), None


def masked(q: Tensor, k: Tensor, v: Tensor, scale: float, mask: Tensor) -> Tensor:
    """Attention (H, T, D) where a mask (T, S) allows it."""
    return F.scaled_dot_product_attention(
        q[None], k[None], v[None], scale=scale, enable_gqa=True, attn_mask=mask
    )[0]


def band(T: int, S: int, window: int, device: torch.device) -> Tensor:
    """(T, S) bool: the causal band of the last T of S positions."""
    query = torch.arange(S - T, S, device=device)[:, None]
    key = torch.arange(S, device=device)[None]
    return (key <= query) & (key > query - window)


def _weights(
    q: Tensor, k: Tensor, scale: float, window: int, softcap: float | None, sinks: Tensor | None
) -> Tensor:
    """(G, H/G, T, S) attention of queries at the last T of S positions, float32 or wider."""
    (H, T, D), (G, S, _) = q.shape, k.shape
    logits = torch.bmm(q.reshape(G, H // G * T, D), k.mT).mul_(scale).view(G, H // G, T, S)
    if softcap is not None:
        logits = torch.tanh(logits / softcap) * softcap
    logits = logits.masked_fill(~band(T, S, window, q.device), -torch.inf)
    wide = torch.promote_types(q.dtype, torch.float32)
    if sinks is None:
        return torch.softmax(logits, dim=-1, dtype=wide)
    column = sinks.view(G, H // G, 1, 1).expand(-1, -1, T, 1)
    return torch.softmax(torch.cat([logits, column], dim=-1), dim=-1, dtype=wide)[..., :-1]
