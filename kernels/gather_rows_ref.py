"""Rows selected from blocks that may lie in host memory: the definition, in PyTorch."""

from collections.abc import Sequence

import torch
from torch import Tensor


def gather_rows(
    blocks: Sequence[Tensor],
    tail: Tensor,
    start: int,
    index: Tensor,
    scales: Sequence[Tensor] | None = None,
) -> Tensor:
    """Rows by their number, from the blocks up to `start` and from the tail after it.

    Args:
        blocks: (B, G, D) each, all of one B; row r < start is row r % B of block r // B.
        tail: (n, G, D); row r >= start is tail[r - start].
        start: rows in the blocks.
        index: (S,) int64, clamped to 0..start+n-1.
        scales: float16 (B, G) for each block, whose rows are then int8; None: they are as they are.

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
