"""What part of a layer adds to its states, and the norm of the sum: the definition, in PyTorch."""

from typing import NamedTuple

import torch
from torch import Tensor

from longctx.kernels.choice import operation

NARROW, WIDE, OFFSET = "narrow", "wide", "offset"
FORMS = (NARROW, WIDE, OFFSET)


class Scaled(NamedTuple):
    """An RMS norm.

    Attributes:
        weight: (E,).
        eps: added to the mean square.
        form: `narrow` rounds before the weight is multiplied, `wide` afterwards, and `offset` adds
            1 to the weight and rounds afterwards.
    """

    weight: Tensor
    eps: float
    form: str = NARROW


@operation
def residual_norm(
    x: Tensor,
    added: Tensor | None = None,
    after: Scaled | None = None,
    factor: float = 1.0,
    before: Scaled | None = None,
) -> tuple[Tensor, Tensor]:
    """The sum of states and what a part of a layer adds to them, and the norm of the sum.

    Every step is rounded to the dtype of x, in the order in which models compute.

    Args:
        x: states (..., E).
        added: of the same shape; None: nothing, and the sum is x itself.
        after: norm of `added`, None if it is added as it is.
        factor: on `added`, after its norm.
        before: norm of the sum, before the next part; None: none.

    Returns:
        The sum, and its norm; without `before` the sum twice.
    """
    if added is not None:
        added = added if after is None else normed(added, after)
        x = x + (added if factor == 1.0 else added * factor)
    return x, x if before is None else normed(x, before)


def normed(x: Tensor, norm: Scaled) -> Tensor:
    """The norm of x (..., E), computed in float32 or wider, in the dtype of x."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + norm.eps)
    if norm.form == NARROW:
        return norm.weight * wide.to(x.dtype)
    weight = norm.weight if norm.form == WIDE else 1.0 + norm.weight.to(wide.dtype)
    return (weight * wide).to(x.dtype)
