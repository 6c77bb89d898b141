"""Properties of the device that a kernel is launched on, and the language kernels are written in.

Triton is Python in form only: what its names stand for on a device, a type checker cannot know.
"""

from functools import cache
from typing import TYPE_CHECKING, Any

import torch

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
