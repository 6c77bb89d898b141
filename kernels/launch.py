"""Properties of the device that a kernel is launched on, and the language kernels are written in.

Triton is Python in form only: what its names stand for on a device, a type checker cannot know.
"""

from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...

else:
    import triton

    tl = triton.language


@cache
def starts_early(device: torch.device) -> bool:
    """Whether a kernel may be launched before the previous one has ended."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)


@cache
def shared_memory(device: torch.device) -> int:
    """Bytes that the threads of a program can share at most."""
    return torch.cuda.get_device_properties(device).shared_memory_per_block_optin


@cache
def multiprocessors(device: torch.device) -> int:
    """A device's multiprocessors; a CPU, where kernels are interpreted, counts as one."""
    if device.type != "cuda":
        return 1
    return torch.cuda.get_device_properties(device).multi_processor_count


def padded_head(q: Tensor) -> int:
    """The head dimension, the last of `q`, padded for matrix units."""
    return max(16, 1 << (q.shape[-1] - 1).bit_length())


def aligned(rows: Tensor) -> bool:
    """Whether rows start, and follow one another, at multiples of 16 bytes, as bulk copies need."""
    steps = (stride * rows.itemsize for stride in rows.stride()[:-1])
    return rows.data_ptr() % 16 == 0 and all(step % 16 == 0 for step in steps)


def bulk_tiles(rows: Tensor, count: int, D: int) -> TensorDescriptor:
    """Rows (N, G, D) as (G, N, D), copied in tiles of `count` rows; zeros beyond N and D."""
    heads = rows.transpose(0, 1)
    return TensorDescriptor(heads, list(heads.shape), list(heads.stride()), [1, count, D])
