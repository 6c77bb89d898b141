"""One token's state through a matrix, with what stands before and after it: the definition."""

import torch
import torch.nn.functional as F
from torch import Tensor

from longctx.kernels.choice import operation


@operation
def matvec(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    norm: Tensor | None = None,
    eps: float = 0.0,
    residual: Tensor | None = None,
    gated: bool = False,
) -> Tensor:
    """A matrix times a vector, with the norm before it and the gate or sum after it.

    Args:
        x: (K,).
        weight: (N, K).
        bias: (N,) added to the product; None: none.
        norm: (K,) weight of an RMS norm applied to x first, in float32 and rounded before it is
            weighted; None: no norm.
        eps: added to the mean square of the norm.
        residual: (M,) added to the result; None: none.
        gated: the second half of the product is multiplied by the SiLU of the first, M = N / 2;
            else M = N.

    Returns:
        (M,) in the dtype of x.
    """
    if norm is not None:
        wide = torch.promote_types(x.dtype, torch.float32)
        root = torch.rsqrt(x.to(wide).square().mean() + eps)
        x = norm * (x.to(wide) * root).to(x.dtype)
    out = F.linear(x, weight, bias)
    if gated:
        gate, up = out.chunk(2)
        out = F.silu(gate) * up
    return out if residual is None else residual + out
