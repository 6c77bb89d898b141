"""Rows selected from blocks that may lie in host memory: the definition, in PyTorch."""

from collections.abc import Sequence

import torch
from torch import Tensor

from longctx.kernels.choice import operation


@operation
def gather_rows(
    blocks: Sequence[Tensor],
    table: Tensor,
    tail: Tensor,
    start: int,
    index: Tensor,
    scales: Sequence[Tensor] | None = None,
    scale_table: Tensor | None = None,
) -> Tensor:
    """Rows by their number, from blocks that may lie in host memory and from the tail after them.

    The kernel reads blocks through their addresses, unchecked: the caller must keep them alive,
    contiguous, and on the tail's device or in pinned host memory.

    Args:
        blocks: (B, G, D) each, all of one B and dtype; row r < start is row r % B of block r // B.
        table: int64 (blocks,) on the tail's device, the `data_ptr` of each block; a multiple of 16
            if a row's bytes are one.
        tail: (n, G, D); row r >= start is tail[r - start].
        start: rows in the blocks.
        index: (S,) int64 on the tail's device, clamped to 0..start+n-1.
        scales: float16 (B, G) for each block, whose rows are then int8; None: rows are not scaled.
        scale_table: int64 (blocks,), the `data_ptr` of each block's scales.

    Returns:
        (S, G, D) in the dtype and on the device of the tail.
    """
    index = index.clamp(0, start + len(tail) - 1)
    out = tail.new_empty(len(index), *tail.shape[1:])
    stored = index < start
    out[~stored] = tail[index[~stored] - start]
    B = len(blocks[0]) if blocks else 1
    owner = torch.where(stored, index // B, -1)
    for number in owner.unique().tolist():
        if number >= 0:
            here, block = owner == number, blocks[number]
            rows = (index[here] - number * B).to(block.device)
            found = block.index_select(0, rows).to(tail.device)
            if scales is not None:
                scale = scales[number].index_select(0, rows).to(tail.device)
                found = found.float() * scale.float()[..., None]
            out[here] = found.to(tail.dtype)
    return out
