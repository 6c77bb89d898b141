"""Rows selected from blocks that may lie in pinned host memory, in Triton.

The kernel gets a table of the blocks' addresses, so the GPU reads selected rows in place, over its
bus, and the host does not wait. `gather_rows_ref.py` is the definition.
"""

from collections.abc import Sequence
from math import gcd

import torch
from torch import Tensor

from longctx.kernels.launch import tl, triton

TILE, WARPS = 4096, 4  # entries of one program
KINDS = {
    torch.float16: tl.float16,
    torch.bfloat16: tl.bfloat16,
    torch.float32: tl.float32,
    torch.int8: tl.int8,
}


def refusal(
    blocks: Sequence[Tensor],
    table: Tensor,
    tail: Tensor,
    start: int,
    index: Tensor,
    scales: Sequence[Tensor] | None = None,
    scale_table: Tensor | None = None,
) -> str | None:
    """Why the kernel does not compute this; None if it does. It checks only the first block."""
    kind = blocks[0].dtype if blocks else tail.dtype
    if tail.dtype not in KINDS or tail.dtype == torch.int8 or kind not in KINDS:
        return f"it takes no {kind} blocks with a {tail.dtype} tail"
    if (kind == torch.int8) != bool(scales):
        return f"{kind} blocks {'without' if kind == torch.int8 else 'with'} scales"
    if index.dtype != torch.int64:
        return f"it takes no {index.dtype} index"
    if not blocks:
        return None
    first = (blocks[0], scales[0]) if scales else (blocks[0],)
    if not all(x.is_contiguous() for x in first):
        return "a block is not contiguous"
    # Asked of an own block only: each answer of the driver takes a microsecond.
    if tail.is_cuda and not all(x.is_cuda or x.is_pinned() for x in first):
        return "a block lies in host memory that is not pinned"
    return None


def gather_rows(
    blocks: Sequence[Tensor],
    table: Tensor,
    tail: Tensor,
    start: int,
    index: Tensor,
    scales: Sequence[Tensor] | None = None,
    scale_table: Tensor | None = None,
) -> Tensor:
    """As defined."""
    (n, G, D), S = tail.shape, len(index)
    out = torch.empty(S, G, D, dtype=tail.dtype, device=tail.device)
    if not out.numel():
        return out
    stored = blocks[0] if blocks else tail
    BLOCK_D = triton.next_power_of_2(D)
    BLOCK = max(1, TILE // BLOCK_D)
    _gather[(triton.cdiv(S * G, BLOCK),)](
        table, table if scale_table is None else scale_table,
        tail.contiguous(), index.contiguous(), out, S, start, start + n,
        KIND=KINDS[stored.dtype], B=len(stored) if blocks else 0, G=G, D=D,
        ALIGN=gcd(16, D * stored.element_size()), SCALED=scale_table is not None,
        BLOCK=BLOCK, BLOCK_D=BLOCK_D, num_warps=WARPS,
    )  # fmt: skip
    return out


@triton.jit(do_not_specialize=["S", "start", "end"])
def _gather(
    table, scale_table, tail, index, out, S, start, end,
    KIND: tl.constexpr, B: tl.constexpr, G: tl.constexpr, D: tl.constexpr,
    ALIGN: tl.constexpr, SCALED: tl.constexpr, BLOCK: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    places = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)  # heads of rows
    columns = tl.arange(0, BLOCK_D)[None, :]
    live, inside, head = places < S * G, columns < D, places % G
    rows = tl.load(index + places // G, mask=live, other=0)
    rows = tl.minimum(tl.maximum(rows, 0), end - 1)
    recent = (live & (rows >= start))[:, None]
    spots = tail + (((rows - start) * G + head) * D)[:, None] + columns
    found = tl.load(spots, mask=recent & inside, other=0.0)
    if B:
        old = live & (rows < start)
        block, head = rows // B, rows % B * G + head
        base = tl.load(table + block, mask=old, other=0).to(tl.pointer_type(KIND))
        base = tl.multiple_of(base, ALIGN)  # for loads of 16 bytes
        spots = base[:, None] + (head * D)[:, None] + columns
        stored = tl.load(spots, mask=old[:, None] & inside, other=0)
        if SCALED:
            base = tl.load(scale_table + block, mask=old, other=0).to(tl.pointer_type(tl.float16))
            scale = tl.load(base + head, mask=old, other=0.0)
            stored = stored.to(tl.float32) * scale.to(tl.float32)[:, None]
        elif stored.dtype != found.dtype:
            stored = stored.to(tl.float32)
        found = tl.where(old[:, None], stored.to(found.dtype), found)
    tl.store(out + (places * D)[:, None] + columns, found, mask=live[:, None] & inside)
