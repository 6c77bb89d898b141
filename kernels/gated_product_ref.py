"""The activation of a gate times the other half of a product: the definition, in PyTorch."""

import torch.nn.functional as F
from torch import Tensor

from longctx.kernels.choice import operation

SILU, GELU_TANH = "silu", "gelu_tanh"


def activated(gate: Tensor, activation: str) -> Tensor:
    """The activation of a gate, by its name."""
    return F.silu(gate) if activation == SILU else F.gelu(gate, approximate="tanh")


@operation
def gated_product(x: Tensor, activation: str = SILU) -> Tensor:
    """The activation of the first half of each row times its second half.

    Args:
        x: (T, 2 I): gate, then up, as one product with both matrices gives them.
        activation: `silu`, or `gelu_tanh`, whose tanh approximates the normal distribution.

    Returns:
        (T, I); activation and product are each rounded to the dtype of x.
    """
    gate, up = x.chunk(2, dim=-1)
    return activated(gate, activation) * up
