"""Causal attention over packed sequences: FlashAttention's on a GPU, PyTorch's elsewhere."""

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor


def attention(q: Tensor, k: Tensor, v: Tensor, bounds: Tensor, longest: int) -> Tensor:
    """Each sequence's causal attention.

    Args:
        q: (N, H, D).
        k, v: (N, G, D); H is a multiple of G.
        bounds: (S + 1,) int32, where sequences start, and N, perhaps several times.
        longest: tokens that no sequence exceeds.

    Returns:
        (N, H, D).
    """
    groups = q.shape[1] // k.shape[1]
    k, v = (part.repeat_interleave(groups, 1) for part in (k, v))
    if q.is_cuda:
        flash = torch.ops.aten._flash_attention_forward  # the only way to packed sequences
        return flash(q, k, v, bounds, bounds, longest, longest, 0.0, True, False)[0]
    ends = bounds.unique().tolist()
    read = [_one(q[a:b], k[a:b], v[a:b]) for a, b in pairwise(ends)]
    return torch.cat(read)


def _one(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (part.transpose(0, 1)[None] for part in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)[0].transpose(0, 1)
