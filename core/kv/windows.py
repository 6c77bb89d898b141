"""Windows of what is kept without position, rotated to consecutive places from 0."""

import torch
from torch import Tensor

from longctx.core.kv.kept import LayerKV
from longctx.core.kv.keys import Keys
from longctx.core.model.adapter import Layer
from longctx.kernels.door import Window, rotated_rows


def rotated_window(
    layer: Layer, q: Tensor, keys: Keys, near: Window, W: int
) -> tuple[Tensor, Tensor]:
    """Queries (H, T, D) and keys (W, G, D) of a window, rotated to their places in it."""
    T, held = q.shape[1], keys.resident
    if held and layer.rope.half_split:
        tables = layer.rope.tables(W, q)
        own = rotated_rows(q.transpose(0, 1), None, *tables, dtype=q.dtype, total=near.total)
        k = rotated_rows(held.rows, near.tokens, *tables, held.scales, q.dtype)
        return own.transpose(0, 1), k
    q = layer.rotate(q, near.total - T + torch.arange(T, device=q.device), W)
    k = keys.gather(near.tokens).transpose(0, 1)  # (G, W, D)
    return q, layer.rotate(k, slice(0, W), W).transpose(0, 1)


def everything(kv: LayerKV) -> tuple[Tensor, Tensor]:
    """All keys and values (G, S, D) of a layer."""
    index = torch.arange(kv.keys.length, device=kv.keys.form.place.device)
    k, v = (x.gather(index).transpose(0, 1) for x in (kv.keys, kv.values))
    return k, v


def exactly(layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention (H, T, D) to all of k and v (G, S, D), the queries at the last positions."""
    T, S = q.shape[1], k.shape[1]
    q = layer.rotate(q, slice(S - T, S), S)
    return layer.attention(q, layer.rotate(k, slice(0, S), S), v)
