"""The keys of a cache and of a chunk after it, rotated, and the chunk's queries, in Triton.

Each row is read where it is and written once, keys behind one another, so nothing is joined first.
Products and sums are in float32, each rounded to the dtype separately, as in PyTorch.
`rotated_chunk_ref.py` is the definition.
"""

import torch
from torch import Tensor

from longctx.kernels.launch import tl, triton

TILE, WARPS = 4096, 4  # entries of one program
DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def refusal(
    q: Tensor, k: Tensor, cached: Tensor, cos: Tensor | None, sin: Tensor | None
) -> str | None:
    """Why the kernel does not compute this; None if it does."""
    D, R = q.shape[-1], 0 if cos is None else cos.shape[-1]
    tables = [x for x in (cos, sin) if x is not None]
    if q.dtype not in DTYPES or {x.dtype for x in (k, cached, *tables)} != {q.dtype}:
        return f"it takes {', '.join(map(str, DTYPES))}, one of them for everything"
    if len(tables) == 1 or R % 2 or R > D:
        return f"it does not rotate {R} of {D} dimensions"
    if any(x.stride(-1) != 1 for x in (q, k, cached)) or not q.numel():
        return "there are no rows, or they are not contiguous in their last dimension"
    if not all(x.is_contiguous() for x in tables):
        return "cos or sin are not contiguous"
    if q.device.type == "cpu" and q.dtype == torch.bfloat16:
        return "Triton's interpreter rounds to no bfloat16"
    return None


def rotated_chunk(
    q: Tensor, k: Tensor, cached: Tensor, cos: Tensor | None, sin: Tensor | None
) -> tuple[Tensor, Tensor]:
    """As defined; queries lie in memory as (T, H, D)."""
    (H, T, D), (G, C, _) = q.shape, cached.shape
    keys = torch.empty(G, C + T, D, dtype=q.dtype, device=q.device)
    _launch(cached, k, keys, 0, cos, sin)
    if cos is None:
        return q, keys
    queries = torch.empty(T, H, D, dtype=q.dtype, device=q.device).transpose(0, 1)
    _launch(q[:, :0], q, queries, C, cos, sin)
    return queries, keys


def _launch(
    first: Tensor, then: Tensor, out: Tensor, start: int, cos: Tensor | None, sin: Tensor | None
) -> None:
    """Rotates rows (heads, n, D) of both to positions from `start`, into `out`."""
    heads, rows, D = out.shape
    half = 0 if cos is None else cos.shape[-1] // 2
    widest = max(triton.next_power_of_2(max(1, half)), triton.next_power_of_2(max(1, D - 2 * half)))
    block = max(1, TILE // (2 * widest))
    _turn[(triton.cdiv(rows * heads, block),)](
        first, then, out, out if cos is None else cos, out if sin is None else sin,
        rows, first.shape[1], start, *first.stride()[:2], *then.stride()[:2], *out.stride()[:2],
        HEADS=heads, D=D, HALF=half, HEADS_LAST=out.stride(0) < out.stride(1), BLOCK=block,
        BLOCK_HALF=triton.next_power_of_2(max(1, half)),
        BLOCK_REST=triton.next_power_of_2(max(1, D - 2 * half)),
        num_warps=WARPS, enable_fp_fusion=False,
    )  # fmt: skip


@triton.jit
def _either(a, b, offset, in_a, in_b):
    """Entries of one of two places, in float32."""
    x = tl.load(a + offset, mask=in_a, other=0.0).to(tl.float32)
    return x + tl.load(b + offset, mask=in_b, other=0.0).to(tl.float32)


@triton.jit(do_not_specialize=["rows", "count", "start"])
def _turn(
    first, then, out, cos, sin, rows, count, start,
    first_head, first_row, then_head, then_row, out_head, out_row,
    HEADS: tl.constexpr, D: tl.constexpr, HALF: tl.constexpr, HEADS_LAST: tl.constexpr,
    BLOCK: tl.constexpr, BLOCK_HALF: tl.constexpr, BLOCK_REST: tl.constexpr,
):  # fmt: skip
    kind = out.dtype.element_ty
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = place < rows * HEADS
    if HEADS_LAST:
        row, head = place // HEADS, place % HEADS
    else:
        row, head = place % rows, place // rows
    old = live & (row < count)
    new = live & (row >= count)
    a = (first + head * first_head + row * first_row)[:, None]
    b = (then + head * then_head + (row - count) * then_row)[:, None]
    target = (out + head * out_head + row * out_row)[:, None]
    if HALF > 0:
        column = tl.arange(0, BLOCK_HALF)[None, :]
        inside, within = live[:, None] & (column < HALF), column < HALF
        low = _either(a, b, column, old[:, None] & within, new[:, None] & within)
        high = _either(a, b, column + HALF, old[:, None] & within, new[:, None] & within)
        angle = ((row + start) * (2 * HALF))[:, None] + column
        c = tl.load(cos + angle, mask=inside, other=0.0).to(tl.float32)
        s = tl.load(sin + angle, mask=inside, other=0.0).to(tl.float32)
        turned = (low * c).to(kind).to(tl.float32) - (high * s).to(kind).to(tl.float32)
        tl.store(target + column, turned.to(kind), mask=inside)
        c = tl.load(cos + HALF + angle, mask=inside, other=0.0).to(tl.float32)
        s = tl.load(sin + HALF + angle, mask=inside, other=0.0).to(tl.float32)
        turned = (high * c).to(kind).to(tl.float32) + (low * s).to(kind).to(tl.float32)
        tl.store(target + HALF + column, turned.to(kind), mask=inside)
    if 2 * HALF < D:
        column = 2 * HALF + tl.arange(0, BLOCK_REST)[None, :]
        within = column < D
        x = _either(a, b, column, old[:, None] & within, new[:, None] & within)
        tl.store(target + column, x.to(kind), mask=live[:, None] & within)
