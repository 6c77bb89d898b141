"""A chunk's attention to a window whose length only the device knows: the definition.

It is PyTorch's flash attention of varying lengths, which reads the length on the device.
"""

from functools import lru_cache

import torch
from torch import Tensor

from longctx.kernels import choice
from longctx.kernels.choice import operation
from longctx.kernels.fused_attention import in_half


@operation
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
    why = _flash_refusal(q)
    if choice.asked_for() == "reference":
        why = f"{choice.VARIABLE}=reference"
    if why is None:
        out = choice.attempt(key, lambda: flash(q, k, v, scale, total))
        if out is not None:
            choice.tell(op, "flash attention", f"on {q.device.type}")
            return out
        why = f"flash attention failed: {choice.broken[key]}"
    choice.tell(op, "with the number of keys on the host", why)
    return None


def _flash_refusal(q: Tensor) -> str | None:
    """Why `flash` does not accept queries (H, T, D); None: no known reason."""
    if q.device.type != "cuda":
        return f"the tensors are on {q.device.type}"
    if not in_half(q):
        return f"flash attention takes no {q.dtype} heads of {q.shape[-1]}"
    has = hasattr(torch.ops.aten, "_flash_attention_forward")
    return None if has else "this PyTorch has no flash attention of varying lengths"


def flash(q: Tensor, k: Tensor, v: Tensor, scale: float, total: Tensor) -> Tensor:
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
