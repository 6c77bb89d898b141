"""PyTorch's fused attention operators that return log-sum-exps, the fastest first.

Each is called as f(q, k, v, scale, causal) and returns the output (H, T, D) and the natural
log-sum-exps (H, T) in float32 or wider. Causal requires T = S. An operator may refuse a dtype, a
head dimension or a device when called; `fused_attention` then tries the next one. One more,
`window`, returns no log-sum-exps and reads the number of keys on the device.
"""

from collections.abc import Callable
from functools import lru_cache

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


def window_attention(q: Tensor, k: Tensor, v: Tensor, scale: float, total: Tensor) -> Tensor | None:
    """A chunk's causal attention to padded keys whose number only the device knows.

    Args:
        q: rotated queries (H, T, D), at positions total - T to total - 1.
        k, v: rotated keys and values (S, G, D); query head h reads head h // (H/G); rows from
            `total` on are ignored.
        scale: factor on q·k.
        total: (1,) int on the device, between T and S. It is not copied to the host.

    Returns:
        (H, T, D); None if no operator accepts the tensors: then read `total` from the device and
        attend to that many keys.
    """
    op, key = "window attention", ("window attention", q.device, q.dtype, q.shape[-1])
    why = window_refusal(q)
    if choice.asked_for() == "reference":
        why = f"{choice.VARIABLE}=reference"
    if why is None:
        out = choice.attempt(key, lambda: window(q, k, v, scale, total))
        if out is not None:
            choice.tell(op, "flash attention", f"on {q.device.type}")
            return out
        why = f"flash attention failed: {choice.broken[key]}"
    choice.tell(op, "with the number of keys on the host", why)
    return None


def operators(q: Tensor, k: Tensor) -> list[Operator]:
    """Operators that may accept queries (H, T, D) and keys (G, S, D) of this device and dtype."""
    aten = torch.ops.aten
    if q.device.type == "cpu":
        return [flash_cpu] if hasattr(aten, "_scaled_dot_product_flash_attention_for_cpu") else []
    if q.device.type != "cuda":
        return []
    half = _in_half(q)
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


def window_refusal(q: Tensor) -> str | None:
    """Why `window` does not accept queries (H, T, D); None: no known reason."""
    if q.device.type != "cuda":
        return f"the tensors are on {q.device.type}"
    if not _in_half(q):
        return f"flash attention takes no {q.dtype} heads of {q.shape[-1]}"
    has = hasattr(torch.ops.aten, "_flash_attention_forward")
    return None if has else "this PyTorch has no flash attention of varying lengths"


def window(q: Tensor, k: Tensor, v: Tensor, scale: float, total: Tensor) -> Tensor:
    """Causal attention of queries (H, T, D) at the last T of `total` rows of k and v (S, G, D).

    Variable-length flash attention reads the lengths on the device, so the host need not know
    `total` (1,), and aligns the causal mask to the last query and the last key.
    """
    T, S = q.shape[1], len(k)
    keys = torch.empty(2, dtype=torch.int32, device=q.device)
    torch.mul(_ends(1, q.device), total, out=keys)  # [0, total]
    queries = _ends(T, q.device)
    out, *_ = torch.ops.aten._flash_attention_forward(
        q.transpose(0, 1), k, v, queries, keys, T, S, 0.0, True, False, scale=scale
    )
    return out.transpose(0, 1)


@lru_cache(maxsize=64)
def _ends(count: int, device: torch.device) -> Tensor:
    """[0, count], (2,) int32, cached: where one sequence begins and ends."""
    return torch.arange(2, dtype=torch.int32, device=device) * count


def _in_half(q: Tensor) -> bool:
    """Whether flash attention accepts heads of this dtype and dimension."""
    D = q.shape[-1]
    return q.dtype in (torch.bfloat16, torch.float16) and D % 8 == 0 and D <= 256
