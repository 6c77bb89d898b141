"""The activation of a gate times the other half of a product: the definition, in PyTorch."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from longctx.kernels.choice import operation

SILU, GELU_TANH, CLAMPED = "silu", "gelu_tanh", "clamped"


class Activation(NamedTuple):
    """What is done to gate and up.

    Attributes:
        name: `silu`; `gelu_tanh`, whose tanh approximates the normal distribution; `clamped`: gate
            and up alternate, both are bounded, and the result is
            (up + 1) * gate * sigmoid(alpha * gate).
        alpha, limit: of `clamped`.
    """

    name: str = SILU
    alpha: float = 1.0
    limit: float = 0.0


class Biases(NamedTuple):
    """What is added to each row: of `rows` (X, 2 I) the one whose number `which` (S,) says."""

    rows: Tensor
    which: Tensor


PLAIN = Activation()


@operation
def gated_product(
    x: Tensor, activation: Activation = PLAIN, biases: Biases | None = None
) -> Tensor:
    """The activation of a gate times the other half of each row.

    Args:
        x: (S, 2 I): gate, then up, as one product with both matrices gives them; see `Activation`.
        activation: of the gate.
        biases: added to x first; None: none.

    Returns:
        (S, I); every step is rounded to the dtype of x.
    """
    if biases is not None:
        x = x + biases.rows[biases.which]
    if activation.name != CLAMPED:
        gate, up = x.chunk(2, dim=-1)
        if activation.name == SILU:
            return F.silu(gate) * up
        return F.gelu(gate, approximate="tanh") * up
    gate = x[:, ::2].clamp(max=activation.limit)
    up = x[:, 1::2].clamp(-activation.limit, activation.limit)
    return (up + 1) * (gate * torch.sigmoid(gate * activation.alpha))
