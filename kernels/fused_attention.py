"""PyTorch's fused attention operators that return log-sum-exps, the fastest first.

Each is called as f(q, k, v, scale, causal) and gives the output (H, T, D) and the natural
log-sum-exps (H, T) in float32 or wider. Causal means that T equals S. An operator may refuse a
dtype, a head dimension or a device when it is called; `door.py` then takes the next one.
"""

from collections.abc import Callable

import torch
from torch import Tensor

Attended = tuple[Tensor, Tensor]
Operator = Callable[[Tensor, Tensor, Tensor, float, bool], Attended]


def operators(q: Tensor, k: Tensor) -> list[Operator]:
    """Those that may take queries (H, T, D) and keys (G, S, D) of this device, dtype and shape."""
    aten, D = torch.ops.aten, q.shape[-1]
    if q.device.type == "cpu":
        return [flash_cpu] if hasattr(aten, "_scaled_dot_product_flash_attention_for_cpu") else []
    if q.device.type != "cuda":
        return []
    half = q.dtype in (torch.bfloat16, torch.float16) and D % 8 == 0 and D <= 256
    has_cudnn = torch.version.hip is None and torch.backends.cudnn.is_available()
    known = {
        cudnn: half and has_cudnn and k.shape[1] > 1,  # PyTorch gives it no single key either
        flash: half,
        efficient: q.dtype in (torch.bfloat16, torch.float16, torch.float32),
    }
    return [
        operator
        for operator, takes in known.items()
        if takes and hasattr(aten, f"_scaled_dot_product_{operator.__name__}_attention")
    ]


def cudnn(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool) -> Attended:
    """cuDNN's, nearly twice as fast as flash attention on Hopper; grouped heads as they are."""
    out, lse, *_ = torch.ops.aten._scaled_dot_product_cudnn_attention(
        q[None], k[None], v[None], None, True, 0.0, causal, False, scale=scale
    )
    return out[0], lse[0].reshape(q.shape[:2])


def flash(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool) -> Attended:
    """Flash attention; grouped heads as they are."""
    out, lse, *_ = torch.ops.aten._scaled_dot_product_flash_attention(
        q[None], k[None], v[None], 0.0, causal, False, scale=scale
    )
    return out[0], lse[0, :, : q.shape[1]]


def efficient(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool) -> Attended:
    """Memory-efficient attention, for float32 too; it knows no groups, so heads are repeated."""
    k, v = (x.repeat_interleave(len(q) // len(x), dim=0) for x in (k, v))
    out, lse, *_ = torch.ops.aten._scaled_dot_product_efficient_attention(
        q[None], k[None], v[None], None, True, 0.0, causal, scale=scale
    )
    return out[0], lse[0, :, : q.shape[1]]  # its log-sum-exps are padded to a multiple of 32


def flash_cpu(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool) -> Attended:
    """Flash attention on a CPU; grouped heads as they are."""
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        q[None], k[None], v[None], 0.0, causal, scale=scale
    )
    return out[0], lse[0]
