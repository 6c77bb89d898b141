"""How to see whether something computes what a model's own layers do."""

import torch
from torch import Tensor

TOLERANCE, HALF = 1e-4, 4.0  # of the largest entry; in half precision, in roundings


class Mixture:
    """A memory whose output depends on every entry of q, k and v, so that any error shows.

    Args:
        scales: (T, 1) of each token's output; a large sum would hide the next norm's epsilon.
    """

    def __init__(self, scales: Tensor):
        self._scales = scales

    def attend(self, layer: object, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """A sum (H, T, D) of all three."""
        return self._scales.to(q.device) * (
            q + torch.repeat_interleave(2 * k - 3 * v, len(q) // len(k), dim=0)
        )


def apart(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """Which rows (T,) differ by more than rounding to `dtype` explains; so do those with NaN.

    Args:
        a, b: (T, E), on any devices.
        dtype: in which they were computed.
    """
    b = b.to(a.device)
    within = HALF * torch.finfo(dtype).eps if dtype.itemsize < 4 else TOLERANCE
    difference, largest = (a - b).abs().amax(-1), b.abs().amax(-1)
    return ~(difference <= within * largest)
