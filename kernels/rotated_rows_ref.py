"""Selected rows of heads, each rotated to its place: the definition, in PyTorch."""

import torch
from torch import Tensor

from longctx.kernels.choice import operation
from longctx.kernels.selected_attention_ref import rotate_half


@operation
def rotated_rows(
    rows: Tensor,
    index: Tensor | None,
    cos: Tensor | None,
    sin: Tensor | None,
    scales: Tensor | None = None,
    dtype: torch.dtype | None = None,
    total: Tensor | None = None,
) -> Tensor:
    """Rows by their number, decoded and rotated to consecutive positions.

    Args:
        rows: (N, G, D) floating-point, or int8 with scales; the last dimension is contiguous.
        index: (S,) int64, clamped to 0..N-1; None: all of them in order, S = N.
        cos, sin: (P, R) by position, for `rotate_half`; None: nothing is rotated.
        scales: (N, G) float16; a row is its int8 entries times its scale.
        dtype: of the result, and what is computed in; None: that of cos, or of rows.
        total: (1,) int on the device, from S to P: row s stands at position total - S + s; None: at
            position s, S <= P. It does not leave the device.

    Returns:
        (S, G, D). Every product and sum is rounded to the dtype, as in the models.
    """
    dtype = dtype or (rows if cos is None else cos).dtype
    if index is not None:
        index = index.clamp(0, len(rows) - 1)
        rows = rows.index_select(0, index)
        scales = None if scales is None else scales.index_select(0, index)
    rows = rows.to(dtype)
    if scales is not None:
        rows = rows * scales.to(dtype)[..., None]
    if cos is None or sin is None:
        return rows
    S = len(rows)
    if total is None:
        cos, sin = cos[:S], sin[:S]
    else:
        places = total - S + torch.arange(S, device=rows.device)
        cos, sin = cos.index_select(0, places), sin.index_select(0, places)
    rotated = rotate_half(rows.transpose(0, 1), cos.to(dtype), sin.to(dtype))  # (G, S, D)
    return rotated.transpose(0, 1).contiguous()
