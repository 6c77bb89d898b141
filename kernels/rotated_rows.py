"""Selected rows of heads, each rotated to its place, in one pass in Triton.

Rows are read once and written once. Products and sums are in float32, each rounded to the result's
dtype separately, as in PyTorch. `rotated_rows_ref.py` is the definition.
"""

import torch
from torch import Tensor

from longctx.kernels.launch import tl, triton

TILE, WARPS = 4096, 4  # entries of one program
DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def refusal(
    rows: Tensor,
    index: Tensor | None,
    cos: Tensor | None,
    sin: Tensor | None,
    scales: Tensor | None = None,
    dtype: torch.dtype | None = None,
    total: Tensor | None = None,
) -> str | None:
    """Why the kernel does not compute this; None if it does."""
    D, R = rows.shape[-1], 0 if cos is None else cos.shape[-1]
    dtype = dtype or (rows if cos is None else cos).dtype
    if dtype not in DTYPES or rows.dtype not in (*DTYPES, torch.int8):
        return f"it makes no {dtype} rows from {rows.dtype}"
    if (rows.dtype == torch.int8) != (scales is not None):
        return f"{rows.dtype} rows {'with' if rows.dtype != torch.int8 else 'without'} scales"
    if index is not None and index.dtype != torch.int64:
        return f"it takes no {index.dtype} index"
    if total is not None and total.dtype not in (torch.int64, torch.int32):
        return f"it takes no {total.dtype} total"
    if (cos is None) != (sin is None) or R % 2 or R > D:
        return f"it does not rotate {R} of {D} dimensions"
    if rows.stride(-1) != 1 or not len(rows):
        return "there are no rows, or they are not contiguous in their last dimension"
    if not all(one is None or one.is_contiguous() for one in (cos, sin)):
        return "cos or sin are not contiguous"
    if rows.device.type == "cpu" and dtype == torch.bfloat16:
        return "Triton's interpreter rounds to no bfloat16"
    return None


def rotated_rows(
    rows: Tensor,
    index: Tensor | None,
    cos: Tensor | None,
    sin: Tensor | None,
    scales: Tensor | None = None,
    dtype: torch.dtype | None = None,
    total: Tensor | None = None,
) -> Tensor:
    """As defined."""
    (N, G, D), S = rows.shape, len(rows if index is None else index)
    half = 0 if cos is None else cos.shape[-1] // 2
    dtype = dtype or (rows if cos is None else cos).dtype
    out = torch.empty(S, G, D, dtype=dtype, device=rows.device)
    if not out.numel():
        return out
    widest = max(triton.next_power_of_2(half), triton.next_power_of_2(D - 2 * half))
    BLOCK = max(1, TILE // (2 * widest))
    _rotate[(triton.cdiv(S * G, BLOCK),)](
        rows, rows if index is None else index, rows if cos is None else cos,
        rows if sin is None else sin, rows if scales is None else scales,
        rows if total is None else total, out, N, S, rows.stride(0), rows.stride(1),
        *((0, 0) if scales is None else scales.stride()),
        G=G, D=D, HALF=half, LISTED=index is not None, SCALED=scales is not None,
        MOVED=total is not None, BLOCK=BLOCK, BLOCK_HALF=triton.next_power_of_2(max(1, half)),
        BLOCK_REST=triton.next_power_of_2(max(1, D - 2 * half)),
        num_warps=WARPS, enable_fp_fusion=False,
    )  # fmt: skip
    return out


@triton.jit
def _decoded(places, scale, inside, kind: tl.constexpr, SCALED: tl.constexpr):
    """Entries of rows, rounded to `kind`, in float32."""
    found = tl.load(places, mask=inside, other=0).to(tl.float32)
    if SCALED:
        found *= scale
    return found.to(kind).to(tl.float32)


@triton.jit
def _rounded(a, b, kind: tl.constexpr):
    """a * b rounded to `kind`, in float32."""
    return (a * b).to(kind).to(tl.float32)


@triton.jit(do_not_specialize=["N", "S"])
def _rotate(
    rows, index, cos, sin, scales, total, out, N, S, by_row, by_head, scale_row, scale_head,
    G: tl.constexpr, D: tl.constexpr, HALF: tl.constexpr,
    LISTED: tl.constexpr, SCALED: tl.constexpr, MOVED: tl.constexpr,
    BLOCK: tl.constexpr, BLOCK_HALF: tl.constexpr, BLOCK_REST: tl.constexpr,
):  # fmt: skip
    kind = out.dtype.element_ty
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)  # heads of rows
    live, spot, head = place < S * G, place // G, place % G
    row = spot
    if LISTED:
        row = tl.load(index + spot, mask=live, other=0)
        row = tl.minimum(tl.maximum(row, 0), N - 1)
    scale = row
    if SCALED:
        scale = tl.load(scales + row * scale_row + head * scale_head, mask=live, other=0.0)
        scale = scale.to(tl.float32).to(kind).to(tl.float32)[:, None]
    source = (rows + row * by_row + head * by_head)[:, None]
    target = (out + place * D)[:, None]
    live = live[:, None]
    if HALF > 0:
        column = tl.arange(0, BLOCK_HALF)[None, :]
        inside = live & (column < HALF)
        low = _decoded(source + column, scale, inside, kind, SCALED)
        high = _decoded(source + HALF + column, scale, inside, kind, SCALED)
        if MOVED:
            spot += tl.load(total) - S
        angle = (spot * (2 * HALF))[:, None] + column
        c = tl.load(cos + angle, mask=inside, other=0.0).to(kind).to(tl.float32)
        s = tl.load(sin + angle, mask=inside, other=0.0).to(kind).to(tl.float32)
        turned = _rounded(low, c, kind) - _rounded(high, s, kind)
        tl.store(target + column, turned.to(kind), mask=inside)
        c = tl.load(cos + HALF + angle, mask=inside, other=0.0).to(kind).to(tl.float32)
        s = tl.load(sin + HALF + angle, mask=inside, other=0.0).to(kind).to(tl.float32)
        turned = _rounded(high, c, kind) + _rounded(low, s, kind)
        tl.store(target + HALF + column, turned.to(kind), mask=inside)
    if 2 * HALF < D:
        column = 2 * HALF + tl.arange(0, BLOCK_REST)[None, :]
        inside = live & (column < D)
        found = _decoded(source + column, scale, inside, kind, SCALED)
        tl.store(target + column, found.to(kind), mask=inside)
