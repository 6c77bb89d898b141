"""GPU time of a call, for scripts that measure kernels alone.

Measured by CUDA events around calls that were queued beforehand, so host time does not count.
"""

from collections.abc import Callable
from statistics import median

import torch

UNCOUNTED, ROUNDS = 3, 5  # calls in which kernels are compiled, and rounds that are timed
QUEUE_CYCLES = 20_000_000  # about 10 ms, in which Python queues the calls


def seconds(call: Callable[[], object], repeats: int = 20) -> float:
    """GPU seconds of one call on the current device, the median of five rounds.

    Args:
        call: what is measured; it must not wait for the device.
        repeats: calls of a round.
    """
    for _ in range(UNCOUNTED):
        call()
    return median(_round(call, repeats) for _ in range(ROUNDS)) / repeats


def _round(call: Callable[[], object], repeats: int) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(QUEUE_CYCLES)
    start.record()
    for _ in range(repeats):
        call()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 1000  # milliseconds
