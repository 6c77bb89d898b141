"""The keys of a cache and of a chunk after it, rotated, and the chunk's queries: the definition."""

import torch
from torch import Tensor

from longctx.kernels.choice import operation
from longctx.kernels.selected_attention_ref import rotate_half


@operation
def rotated_chunk(
    q: Tensor, k: Tensor, cached: Tensor, cos: Tensor | None, sin: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Rotates the keys of a cache and a chunk to consecutive positions, and the chunk's queries.

    Args:
        q: position-free queries (H, T, D) of the chunk, at positions C to C + T - 1.
        k: its position-free keys (G, T, D), at the same positions.
        cached: position-free keys (G, C, D), at positions 0 to C - 1.
        cos, sin: (>= C + T, R) by position, for `rotate_half`; None: nothing is rotated.

    Returns:
        The rotated queries (H, T, D), and all rotated keys (G, C + T, D), the cached ones first.
    """
    (T, C), keys = (q.shape[1], cached.shape[1]), torch.cat([cached, k], dim=1)
    if cos is None or sin is None:
        return q, keys
    own = slice(C, C + T)
    return rotate_half(q, cos[own], sin[own]), rotate_half(keys, cos[: C + T], sin[: C + T])
