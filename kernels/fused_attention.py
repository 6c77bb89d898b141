"""PyTorch's fused attention operators that return log-sum-exps, the fastest first.

Each is called as f(q, k, v, scale, causal) and returns the output (H, T, D) and the natural
log-sum-exps (H, T) in float32 or wider. Causal requires T = S. An operator may refuse a dtype, a
head dimension or a device when called; `fused_attention` then tries the next one.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from longctx.kernels import choice

Attended = tuple[Tensor, Tensor]
Operator = Callable[[Tensor, Tensor, Tensor, float, bool], Attended]


def fused_attention(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool) -> Attended | None:
    """Attention with its log-sum-exps, by the fastest fused operator that takes these tensors.

    Args:
        q: queries (H, T, D).
        k, v: keys and values (G, S, D); query head h reads head h // (H/G).
        scale: factor on q·k.
        causal: query i sees keys up to i, and T must equal S; else each sees all keys.

    Returns:
        Output (H, T, D) and log-sum-exps (H, T); None if no operator accepts the tensors.
    """
    if choice.asked_for() == "reference":
        choice.tell("attention", "a masked call", f"{choice.VARIABLE}=reference")
        return None
    why = f"the first that takes {q.dtype} on {q.device.type}"
    for operator in operators(q, k):
        name = f"{operator.__name__} attention"
        key = (name, q.device, q.dtype, q.shape[-1], causal)
        attended = choice.attempt(key, lambda chosen=operator: chosen(q, k, v, scale, causal))
        if attended is not None:
            choice.tell("attention", name, why)
            return attended
        why = f"{name} failed: {choice.broken[key]}"
    choice.tell("attention", "a masked call", why)
    return None


def operators(q: Tensor, k: Tensor) -> list[Operator]:
    """Operators that may accept queries (H, T, D) and keys (G, S, D) of this device and dtype."""
    aten = torch.ops.aten
    if q.device.type == "cpu":
        return [flash_cpu] if hasattr(aten, "_scaled_dot_product_flash_attention_for_cpu") else []
    if q.device.type != "cuda":
        return []
    half = in_half(q)
    has_cudnn = torch.version.hip is None and torch.backends.cudnn.is_available()
    known = {
        cudnn: half and has_cudnn and k.shape[1] > 1,  # PyTorch does not use it for one key either
        flash: half,
        efficient: q.dtype in (torch.bfloat16, torch.float16, torch.float32),
    }
    return [
        operator
        for operator, takes in known.items()
        if takes and hasattr(aten, f"_scaled_dot_product_{operator.__name__}_attention")
    ]


def cudnn(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool) -> Attended:
    """cuDNN's, nearly twice as fast as flash attention on Hopper; supports grouped heads."""
    out, lse, *_ = torch.ops.aten._scaled_dot_product_cudnn_attention(
        q[None], k[None], v[None], None, True, 0.0, causal, False, scale=scale
    )
    return out[0], lse[0].reshape(q.shape[:2])


def flash(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool) -> Attended:
    """Flash attention; supports grouped heads."""
    out, lse, *_ = torch.ops.aten._scaled_dot_product_flash_attention(
        q[None], k[None], v[None], 0.0, causal, False, scale=scale
    )
    return out[0], lse[0, :, : q.shape[1]]


def efficient(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool) -> Attended:
    """Memory-efficient attention, also for float32; without grouped heads, so they are repeated."""
    k, v = (x.repeat_interleave(len(q) // len(x), dim=0) for x in (k, v))
    out, lse, *_ = torch.ops.aten._scaled_dot_product_efficient_attention(
        q[None], k[None], v[None], None, True, 0.0, causal, scale=scale
    )
    return out[0], lse[0, :, : q.shape[1]]  # its log-sum-exps are padded to a multiple of 32


def flash_cpu(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool) -> Attended:
    """Flash attention on a CPU; supports grouped heads."""
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        q[None], k[None], v[None], 0.0, causal, scale=scale
    )
    return out[0], lse[0]


def in_half(q: Tensor) -> bool:
    """Whether flash attention accepts heads of this dtype and dimension."""
    D = q.shape[-1]
    return q.dtype in (torch.bfloat16, torch.float16) and D % 8 == 0 and D <= 256
