"""Properties of the device that a kernel is launched on."""

from functools import cache

import torch


@cache
def starts_early(device: torch.device) -> bool:
    """Whether a kernel may be launched before the previous one has ended."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)


@cache
def multiprocessors(device: torch.device) -> int:
    """A device's multiprocessors; a CPU, where kernels are interpreted, counts as one."""
    if device.type != "cuda":
        return 1
    return torch.cuda.get_device_properties(device).multi_processor_count
