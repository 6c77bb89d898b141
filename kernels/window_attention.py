"""A chunk's attention to a window whose length only the device knows, in Triton, for Hopper.

PyTorch's flash attention of varying lengths is made for earlier GPUs, and a chunk has so few
queries that each multiprocessor runs only one of its programs, of four warps. Here a program has
eight, and keys and values come by bulk copies. `window_attention_ref.py` is the definition.
"""

import torch
from torch import Tensor

from longctx.kernels.launch import (
    aligned,
    bulk_tiles,
    padded_head,
    shared_memory,
    starts_early,
    tl,
    triton,
)

ROWS, KEYS, WARPS, STAGES = 128, 128, 8, 3  # queries of a program, keys at a time
LOG2_E = 1.4426950408889634
DTYPES = (torch.float16, torch.bfloat16)


def refusal(q: Tensor, k: Tensor, v: Tensor, scale: float, total: Tensor) -> str | None:
    """Why the kernel does not compute this; None if it does."""
    if total.dtype not in (torch.int64, torch.int32):
        return f"it takes no {total.dtype} total"
    if q.dtype not in DTYPES or {k.dtype, v.dtype} != {q.dtype}:
        return f"it takes no {q.dtype} queries with {k.dtype} keys and {v.dtype} values"
    if q.shape[-1] > 128:
        return f"head dimension {q.shape[-1]} is over 128"
    if not (q.numel() and k.numel()) or any(x.stride(-1) != 1 for x in (q, k, v)):
        return "there are no rows, or they are not contiguous in their last dimension"
    if not (aligned(k) and aligned(v)):
        return "keys or values do not follow one another at multiples of 16 bytes"
    if q.device.type == "cpu":
        interpretable = q.dtype == torch.float16
        return None if interpretable else "Triton's interpreter multiplies no bfloat16"
    if not starts_early(q.device):  # it is from before Hopper
        return "flash attention is made for this GPU"
    needed = (ROWS + 2 * STAGES * KEYS) * padded_head(q) * q.itemsize
    return None if needed <= shared_memory(q.device) else f"it needs {needed} bytes to share"


def window_attention(q: Tensor, k: Tensor, v: Tensor, scale: float, total: Tensor) -> Tensor:
    """As defined; the output lies in memory as (T, H, D)."""
    (H, T, D), G, width = q.shape, k.shape[1], padded_head(q)
    out = torch.empty(T, H, D, dtype=q.dtype, device=q.device).transpose(0, 1)
    _attend[triton.cdiv(T, ROWS), H](
        q, bulk_tiles(k, KEYS, width), bulk_tiles(v, KEYS, width), out, total, T, scale * LOG2_E,
        *q.stride()[:2], *out.stride()[:2],
        GROUP=H // G, D=D, ROWS=ROWS, KEYS=KEYS, BLOCK_D=width,
        num_warps=WARPS, num_stages=STAGES,
    )  # fmt: skip
    return out


@triton.jit
def _step(
    queries, keys, values, g, first, visible, n, scale, most, total, out,
    MASKED: tl.constexpr, KEYS: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """The largest logits, sums of weights and weighted values after KEYS more keys.

    Logits are in base 2. If MASKED, a query sees keys up to its `visible`, all of them under `n`.
    """
    k = keys.load([g, first, 0]).reshape(KEYS, BLOCK_D)
    v = values.load([g, first, 0]).reshape(KEYS, BLOCK_D)
    logits = tl.dot(queries, tl.trans(k)) * scale
    if MASKED:
        key = first + tl.arange(0, KEYS)
        logits = tl.where(key[None, :] <= visible[:, None], logits, -float("inf"))
        v = tl.where((key < n)[:, None], v, 0.0)  # no weight makes nothing of NaN
    above = tl.maximum(most, tl.max(logits, 1))
    weights = tl.exp2(logits - above[:, None])
    shrunk = tl.exp2(most - above)
    out = tl.dot(weights.to(v.dtype), v, out * shrunk[:, None])
    return above, total * shrunk + tl.sum(weights, 1), out


@triton.jit(do_not_specialize=["T"])
def _attend(
    q, keys, values, out, total, T, scale, q_head, q_row, out_head, out_row,
    GROUP: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
    BLOCK_D: tl.constexpr,
):  # fmt: skip
    start, head = tl.program_id(0) * ROWS, tl.program_id(1)
    g, head = head // GROUP, head.to(tl.int64)
    row, column = start + tl.arange(0, ROWS), tl.arange(0, BLOCK_D)
    inside = (row < T)[:, None] & (column < D)[None, :]
    places = row.to(tl.int64)[:, None]
    queries = tl.load(q + head * q_head + places * q_row + column[None, :], mask=inside, other=0.0)

    n = tl.load(total).to(tl.int32)
    visible = n - T + row
    most = tl.full((ROWS,), -float("inf"), tl.float32)
    weight, found = tl.zeros((ROWS,), tl.float32), tl.zeros((ROWS, BLOCK_D), tl.float32)
    seen_by_all = (n - T + start + 1) // KEYS * KEYS
    for first in tl.range(0, seen_by_all, KEYS):
        most, weight, found = _step(
            queries, keys, values, g, first, visible, n, scale, most, weight, found,
            False, KEYS, BLOCK_D,
        )  # fmt: skip
    for first in tl.range(seen_by_all, tl.minimum(n, n - T + start + ROWS), KEYS):
        most, weight, found = _step(
            queries, keys, values, g, first, visible, n, scale, most, weight, found,
            True, KEYS, BLOCK_D,
        )  # fmt: skip
    found = (found / weight[:, None]).to(out.dtype.element_ty)
    tl.store(out + head * out_head + places * out_row + column[None, :], found, mask=inside)
