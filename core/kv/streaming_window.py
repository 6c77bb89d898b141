"""Attention of a chunk to a local window and to retrieved tokens before it.

Local tokens are at their true distances; far ones are all at the same, or one after another. The
two attentions are computed separately and merged by their log-sum-exps, so that the local window's
part is known first: the attention that each local token received, and a block's attention to
itself. Independent of method and store.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from longctx.core.kv.evicting import received
from longctx.core.model.adapter import Layer
from longctx.core.model.attention import fused_causal
from longctx.kernels.door import fused_attention, merged_attention, with_sinks

LOGITS = 1 << 24  # most attention logits at once where no fused operator computes them


@dataclass(frozen=True)
class Near:
    """Attention of T queries at the end of a local window to that window.

    Attributes:
        layer: the layer.
        q: queries (H, T, D), rotated to the last T of W positions.
        k: keys (G, W, D), rotated to positions from 0 on.
        out: attention (H, T, D) to the local window alone.
        lse: its log-sum-exps (H, T), with the layer's sinks.
    """

    layer: Layer
    q: Tensor
    k: Tensor
    out: Tensor
    lse: Tensor

    def given(self, per_head: bool) -> Tensor:
        """Attention that each local token received: (H, W), or summed over the heads (1, W)."""
        if not per_head:
            return received(self.layer, self.q, self.k, self.lse).sum(0, keepdim=True)
        group = self.layer.query_heads // self.layer.kv_heads
        return received(self.layer, self.q, self.k.repeat_interleave(group, dim=0), self.lse)


def plain(layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention (H, T, D) to k and v (G, S, D) at positions from 0, the queries at the last."""
    T, S = q.shape[1], k.shape[1]
    q = layer.rotate(q, slice(S - T, S), S)
    return layer.attention(q, layer.rotate(k, slice(0, S), S), v)


def near_of(layer: Layer, q: Tensor, k: Tensor, v: Tensor, length: int) -> Near:
    """Attends to a local window.

    Args:
        layer: the layer, with full attention.
        q: position-free queries (H, T, D) of its last T tokens.
        k: position-free keys (G, W, D).
        v: values (G, W, D).
        length: most positions of a window.
    """
    T, W = q.shape[1], k.shape[1]
    q, k = layer.rotate(q, slice(W - T, W), length), layer.rotate(k, slice(0, W), length)
    out, lse = attention_lse(layer, q, k, v, causal=True)
    if layer.sinks is not None:
        out, lse = with_sinks(out, lse, layer.sinks)
    return Near(layer, q, k, out, lse)


@dataclass(frozen=True)
class Both:
    """Attention of T queries to far tokens and a local window.

    Attributes:
        layer: the layer.
        q: queries (H, T, D), rotated to the distance.
        k: keys (G, S, D) of the far tokens, rotated to position 0.
        out: attention (H, T, D) to both.
        lse: its log-sum-exps (H, T).
    """

    layer: Layer
    q: Tensor
    k: Tensor
    out: Tensor
    lse: Tensor

    def given(self) -> Tensor:
        """Attention (S,) that each far token received from all queries and heads."""
        (H, T, _), S = self.q.shape, self.k.shape[1]
        rows = max(1, LOGITS // (H * S))
        total = self.lse.new_zeros(S)
        for start in range(0, T, rows):
            logits = _logits(self.layer, self.q[:, start : start + rows], self.k)
            lse = self.lse[:, start : start + rows, None]
            total += torch.exp(logits - lse).sum((0, 1))
        return total


def at_one_distance(
    near: Near, q: Tensor, k: Tensor, v: Tensor, distance: int, length: int
) -> Both:
    """Adds attention to far tokens.

    Args:
        near: attention to the local window.
        q: its position-free queries (H, T, D).
        k: position-free keys (G, S, D) of the far tokens, S > 0.
        v: their values (G, S, D).
        distance: from all of them to all queries, in tokens.
        length: most positions of a window.
    """
    layer = near.layer
    at, zero = (torch.tensor(place, device=q.device) for place in (distance, 0))
    q = layer.rotate(q, at.expand(q.shape[1]), length)
    k = layer.rotate(k, zero.expand(k.shape[1]), length)
    return _both(near, q, k, v)


def one_after_another(near: Near, q: Tensor, k: Tensor, v: Tensor, length: int) -> Both:
    """Adds attention to far tokens at consecutive positions, with the local window behind them.

    Args:
        near, q, k, v, length: see `at_one_distance`.
    """
    layer, S, end = near.layer, k.shape[1], k.shape[1] + near.k.shape[1]
    q = layer.rotate(q, slice(end - q.shape[1], end), length)
    return _both(near, q, layer.rotate(k, slice(0, S), length), v)


def _both(near: Near, q: Tensor, k: Tensor, v: Tensor) -> Both:
    """Attention to far tokens too, with q and k rotated."""
    out, lse = attention_lse(near.layer, q, k, v, causal=False)
    return Both(near.layer, q, k, *merged_attention(out, lse, near.out, near.lse))


def attention_lse(
    layer: Layer, q: Tensor, k: Tensor, v: Tensor, causal: bool
) -> tuple[Tensor, Tensor]:
    """Attention of rotated queries and its log-sum-exps, without the layer's sinks.

    Args:
        layer: scale and soft cap are taken from it.
        q: (H, T, D).
        k, v: (G, S, D).
        causal: the queries are at the last T of the S positions; else they see all keys.

    Returns:
        (H, T, D), and (H, T) float32 or wider.
    """
    found = None
    if layer.softcap is None and causal and q.shape[1] > 1:
        found = fused_causal(q, k, v, layer.scale)
    elif layer.softcap is None:
        found = fused_attention(q, k, v, layer.scale, causal=False)
    return _defined(layer, q, k, v, causal) if found is None else found


def _defined(layer: Layer, q: Tensor, k: Tensor, v: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
    """The same by its definition, a block of queries at a time."""
    (H, T, _), (G, S, _) = q.shape, k.shape
    rows = max(1, LOGITS // (H * S))
    out, lse = [], []
    for start in range(0, T, rows):
        part = q[:, start : start + rows]
        logits = _logits(layer, part, k)  # (H, rows, S)
        if causal:
            places = torch.arange(S - T + start, S - T + start + part.shape[1], device=q.device)
            later = torch.arange(S, device=q.device) > places[:, None]
            logits = logits.masked_fill(later, -torch.inf)
        lse.append(logits.logsumexp(-1))
        weights = torch.exp(logits - lse[-1][..., None]).to(v.dtype)
        out.append(torch.bmm(weights.reshape(G, -1, S), v).view(part.shape))
    return torch.cat(out, dim=1), torch.cat(lse, dim=1)


def _logits(layer: Layer, q: Tensor, k: Tensor) -> Tensor:
    """Logits (H, ..., T, S), float32 or wider, of q (H, ..., T, D) and k (G, ..., S, D)."""
    H, G = len(q), len(k)
    wide = torch.promote_types(q.dtype, torch.float32)  # before the product, not after it
    grouped = q.reshape(G, H // G, *q.shape[1:]).to(wide)
    logits = (grouped @ k.to(wide).mT[:, None]).mul_(layer.scale).flatten(0, 1)
    return logits if layer.softcap is None else torch.tanh(logits / layer.softcap) * layer.softcap


def own_maps(near: Near, block: int) -> tuple[Tensor, int]:
    """Attention of the queries within their own blocks of the local window.

    Args:
        near: attention to the local window, which begins with a block.
        block: tokens of a block.

    Returns:
        (B, H, block, block), 0 in rows of others and above the diagonal; and how many tokens of the
        first of these blocks come before the queries.
    """
    (H, T, D), (G, W, _) = near.q.shape, near.k.shape
    offset = (W - T) % block
    B = -(-(offset + T) // block)
    after = B * block - offset - T
    q = F.pad(near.q, (0, 0, offset, after)).view(H, B, block, D)
    k = F.pad(near.k[:, W - T - offset :], (0, 0, 0, after)).view(G, B, block, D)
    lse = F.pad(near.lse, (offset, after)).view(H, B, block, 1)
    place = torch.arange(block, device=q.device)
    row = place[:, None] + block * torch.arange(B, device=q.device)[:, None, None]
    live = (row >= offset) & (row < offset + T) & (place <= place[:, None])  # (B, block, block)
    maps = torch.exp(_logits(near.layer, q, k) - lse)
    return torch.where(live, maps, 0).transpose(0, 1), offset
