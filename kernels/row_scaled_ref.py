"""States in eight bits with a scale for each row, and what is computed before them: definitions.

What a product with eight-bit numbers needs. The scale makes the largest entry of a row the largest
number of the format, so that one token's outlier costs no other token its digits.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from longctx.kernels.choice import operation
from longctx.kernels.gated_product_ref import PLAIN, Activation, gated_product
from longctx.kernels.residual_norm_ref import Scaled, residual_norm

FP8 = torch.float8_e4m3fn
LARGEST = 448.0  # of the format
LEAST = 1e-12  # that the largest entry of a row counts as; a row of zeros has a scale too


class ScaledRows(NamedTuple):
    """Rows as eight-bit numbers.

    Attributes:
        values: (T, E) in float8_e4m3fn.
        scales: (T, 1) float32, by which they are multiplied.
    """

    values: Tensor
    scales: Tensor


@operation
def row_scaled(x: Tensor) -> ScaledRows:
    """Rows (T, E) in eight bits, each divided by its scale and rounded to float8_e4m3fn."""
    wide = x.float()
    largest = wide.abs().amax(-1, keepdim=True).clamp(min=LEAST)
    values = (wide * (LARGEST / largest)).clamp(-LARGEST, LARGEST)
    return ScaledRows(values.to(FP8), largest / LARGEST)


@operation
def residual_row_scaled(
    x: Tensor, added: Tensor | None, after: Scaled | None, factor: float, before: Scaled
) -> tuple[Tensor, ScaledRows]:
    """The sum of states and what is added to them, and the rows of its norm in eight bits.

    Args:
        x: states (T, E).
        added, after, factor, before: as of `residual_norm`.

    Returns:
        The sum (T, E), and the rows of its norm.
    """
    total, norm = residual_norm.definition(x, added, after, factor, before)
    return total, row_scaled.definition(norm)


@operation
def gated_row_scaled(x: Tensor, activation: Activation = PLAIN) -> ScaledRows:
    """The gated product of x (T, 2 I), see `gated_product`, as rows in eight bits."""
    return row_scaled.definition(gated_product.definition(x, activation))
