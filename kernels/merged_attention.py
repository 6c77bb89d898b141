"""Attention to two sets of keys merged into one, with sinks, in one pass in Triton.

Shares are rounded to the dtype, as in PyTorch; everything else is in float32 and rounded once for
each product. `merged_attention_ref.py` is the definition.
"""

import torch
from torch import Tensor

from longctx.kernels.launch import tl, triton

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
TILE = 4096  # entries of one program
MOST = tl.constexpr(87.0)  # its exp is still finite


def refusal(
    past: Tensor, past_lse: Tensor, own: Tensor, own_lse: Tensor, sinks: Tensor | None = None
) -> str | None:
    """Why the kernel does not compute this; None if it does."""
    if own.dtype not in DTYPES or past.dtype != own.dtype:
        return f"it merges no {past.dtype} and {own.dtype}"
    if {past_lse.dtype, own_lse.dtype} != {torch.float32}:
        return f"log-sum-exps are {past_lse.dtype} and {own_lse.dtype}"
    if any(x.stride(-1) != 1 for x in (past, own)) or not own.numel():
        return "there are no heads, or they are not contiguous in their last dimension"
    if own.device.type == "cpu" and own.dtype == torch.bfloat16:
        return "Triton's interpreter rounds to no bfloat16"
    return None


def merged_attention(
    past: Tensor, past_lse: Tensor, own: Tensor, own_lse: Tensor, sinks: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """As defined; the output lies in memory as (T, H, D)."""
    H, T, D = own.shape
    out = torch.empty(T, H, D, dtype=own.dtype, device=own.device).transpose(0, 1)
    lse = torch.empty(H, T, dtype=torch.float32, device=own.device)
    width = triton.next_power_of_2(D)
    block = max(1, TILE // width)
    _merge[triton.cdiv(T, block), H](
        past, past_lse, own, own_lse, own if sinks is None else sinks.contiguous(), out, lse, T,
        *past.stride()[:2], *own.stride()[:2], *past_lse.stride(), *own_lse.stride(),
        *out.stride()[:2], D=D, SINKS=sinks is not None, ROWS=block, BLOCK=width,
        num_warps=4, enable_fp_fusion=False,
    )  # fmt: skip
    return out, lse


@triton.jit
def _sigmoid(x):
    return 1.0 / (1.0 + tl.exp(tl.minimum(-x, MOST)))


@triton.jit
def _sum_exp(a, b):
    """log(exp(a) + exp(b)) of finite a and b."""
    return tl.maximum(a, b) + tl.log(1.0 + tl.exp(-tl.abs(a - b)))


@triton.jit(do_not_specialize=["T"])
def _merge(
    past, past_lse, own, own_lse, sinks, out, lse, T,
    past_head, past_row, own_head, own_row, past_lse_head, past_lse_row, own_lse_head, own_lse_row,
    out_head, out_row, D: tl.constexpr, SINKS: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    kind = out.dtype.element_ty
    row, head = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.program_id(1).to(tl.int64)
    column, live = tl.arange(0, BLOCK)[None, :], row < T
    row = row.to(tl.int64)
    inside = live[:, None] & (column < D)
    a = tl.load(past_lse + head * past_lse_head + row * past_lse_row, mask=live, other=0.0)
    b = tl.load(own_lse + head * own_lse_head + row * own_lse_row, mask=live, other=0.0)
    share = _sigmoid(a - b).to(kind).to(tl.float32)[:, None]
    x = tl.load(past + head * past_head + row[:, None] * past_row + column, mask=inside, other=0.0)
    y = tl.load(own + head * own_head + row[:, None] * own_row + column, mask=inside, other=0.0)
    x, y = x.to(tl.float32), y.to(tl.float32)
    apart = x - y  # as PyTorch interpolates
    found = tl.where(share < 0.5, y + share * apart, x - apart * (1.0 - share))
    total = _sum_exp(a, b)
    if SINKS:
        sink = tl.load(sinks + head).to(tl.float32)
        taken = _sigmoid(total - sink).to(kind).to(tl.float32)[:, None]
        found = found.to(kind).to(tl.float32) * taken
        total = _sum_exp(total, sink)
    tl.store(out + head * out_head + row[:, None] * out_row + column, found.to(kind), mask=inside)
    tl.store(lse + head * T + row, total, mask=live)
