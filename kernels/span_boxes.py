"""The best span of each anti-diagonal of the scores of a block's spans, in Triton.

Each program takes a block. It sums up the map, some rows at a time, and stores the scores so that
an anti-diagonal becomes a column, then reads them back at once. `span_boxes_ref.py` is the
definition.
"""

import torch
from torch import Tensor

from longctx.kernels.launch import tl, triton
from longctx.kernels.span_boxes_ref import Boxes

LONGEST = 1024  # tokens of a block
TILE, WARPS = 4096, 4  # entries that a program sums up at once

DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def refusal(summed: Tensor, threshold: Tensor) -> str | None:
    """Why the kernel does not find the spans; None if it does."""
    if summed.dtype not in DTYPES or threshold.dtype not in DTYPES:
        return f"it takes no {summed.dtype} map and {threshold.dtype} threshold"
    if not 0 < summed.shape[1] <= LONGEST or not summed.shape[0]:
        return f"it takes up to {LONGEST} tokens of a block, not {tuple(summed.shape)}"
    return None


def span_boxes(summed: Tensor, threshold: Tensor) -> Boxes:
    """As defined."""
    (B, N, _), device = summed.shape, summed.device
    M, columns = 2 * N - 1, triton.next_power_of_2(N)
    rows = max(1, min(TILE // columns, columns))
    score = torch.empty(B, M, device=device)
    x = torch.empty(B, M, dtype=torch.int64, device=device)
    y = torch.empty_like(x)
    sheared = torch.empty(B, N, M, device=device)
    _boxes[B,](
        summed, threshold.contiguous(), sheared, score, x, y, N, *summed.stride(),
        ROWS=rows, COLUMNS=columns, num_warps=WARPS,
    )  # fmt: skip
    return Boxes(score, x, y)


@triton.jit
def _boxes(
    summed, threshold, sheared, score, x, y, N, s_block, s_row, s_column,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    block, M = tl.program_id(0).to(tl.int64), 2 * N - 1
    summed, sheared = summed + block * s_block, sheared + block * N * M
    off = tl.load(threshold + block).to(tl.float32)
    column = tl.arange(0, COLUMNS)[None, :]
    above = tl.zeros((COLUMNS,), tl.float32)  # sums of the columns over the rows before
    for start in tl.range(0, N, ROWS):
        row = start + tl.arange(0, ROWS)[:, None]
        below = (column <= row) & (row < N)
        entry = tl.load(summed + row * s_row + column * s_column, mask=below, other=0.0)
        down = tl.where(below, entry.to(tl.float32) - off, 0.0)
        sums = tl.cumsum(down, 0) + above[None, :]
        above += tl.sum(down, 0)
        # The span x..y is entry x of anti-diagonal x + y.
        scores = tl.cumsum(sums, 1, reverse=True)
        tl.store(sheared + column * M + column + row, scores, mask=below)
    tl.debug_barrier()  # before other threads' scores are read
    first = tl.arange(0, COLUMNS)[:, None]
    for start in tl.range(0, M, ROWS):
        middle = start + tl.arange(0, ROWS)
        last = middle[None, :] - first
        inside = (first <= last) & (last < N)
        seen = tl.load(sheared + first * M + middle[None, :], mask=inside, other=-float("inf"))
        best, place = tl.max(seen, 0, return_indices=True, return_indices_tie_break_left=True)
        out, real = block * M + middle, middle < M
        tl.store(score + out, best, mask=real)
        tl.store(x + out, place.to(tl.int64), mask=real)
        tl.store(y + out, (middle - place).to(tl.int64), mask=real)
