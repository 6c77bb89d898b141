"""Checksums of blocks of memory: the definition."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from xxhash import xxh3_128_digest

from longctx.kernels.choice import operation


@operation
def block_checksums(memory: Tensor, starts: Sequence[int], size: int) -> Tensor:
    """The xxh3-128 of blocks of memory.

    Args:
        memory: (n,) uint8.
        starts: where each block begins.
        size: bytes of a block.

    Returns:
        (len(starts), 2) int64 on the host: the upper and the lower 64 bits of each.
    """
    blocks = (memory[start : start + size].cpu().numpy().data for start in starts)
    digests = b"".join(xxh3_128_digest(block) for block in blocks)
    return torch.from_numpy(np.frombuffer(digests, ">i8").astype("i8").reshape(-1, 2))
