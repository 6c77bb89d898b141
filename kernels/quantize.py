"""Vectors as int8 with one float16 scale each: the form of embeddings, and of keys and values.

Plain PyTorch on every device; the kernels that read such vectors decode them themselves.
"""

import torch
from torch import Tensor


def quantize(x: Tensor) -> tuple[Tensor, Tensor]:
    """Stores vectors as int8 with one float16 scale each.

    Args:
        x: (n, heads, D), any float dtype.

    Returns:
        int8 (n, heads, D) and float16 scales (n, heads) = max|x| / 127; a zero vector has scale 0.
    """
    scales = (x.abs().amax(dim=-1) / 127).to(torch.float16)
    divisor = scales.to(x.dtype).clamp_min(torch.finfo(torch.float16).smallest_normal)[..., None]
    return (x / divisor).round_().clamp_(-127, 127).to(torch.int8), scales
