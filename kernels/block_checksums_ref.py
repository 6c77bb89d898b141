"""Checksums of blocks of memory: the definition."""

import numpy as np
import torch
from torch import Tensor
from xxhash import xxh3_128_digest

from longctx.kernels.choice import operation


@operation
def block_checksums(image: Tensor, first: int, size: int, count: int) -> Tensor:
    """The xxh3-128 of blocks that follow one another in memory.

    Args:
        image: (n,) uint8.
        first: where the first block begins.
        size: bytes of a block.
        count: blocks.

    Returns:
        (count, 2) int64 on the host: the upper and the lower 64 bits of each.
    """
    blocks = image[first : first + size * count].cpu().view(count, size).numpy()
    digests = b"".join(xxh3_128_digest(block.data) for block in blocks)
    return torch.from_numpy(np.frombuffer(digests, ">i8").astype("i8").reshape(count, 2))
