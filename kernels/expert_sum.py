"""What a token's experts give, weighted and summed, in one pass in Triton.

Rows are read where they are; sums and products are in float32, rounded where PyTorch rounds them.
`expert_sum_ref.py` is the definition.
"""

import torch
from torch import Tensor

from longctx.kernels.launch import tl, triton

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
BLOCK, MOST = 1024, 64  # entries of one program; experts of a token


def refusal(
    rows: Tensor,
    places: Tensor,
    weights: Tensor,
    biases: Tensor | None = None,
    experts: Tensor | None = None,
) -> str | None:
    """Why the kernel does not compute this; None if it does."""
    if rows.dtype not in DTYPES or weights.dtype not in (rows.dtype, torch.float32):
        return f"it takes no {rows.dtype} rows with {weights.dtype} weights"
    if (biases is None) != (experts is None) or (biases is not None and biases.dtype != rows.dtype):
        return "biases have another dtype, or there are no experts"
    given = [rows, places, weights, *(x for x in (biases, experts) if x is not None)]
    if not all(x.is_contiguous() for x in given) or not rows.numel():
        return "something is empty or not contiguous"
    if places.shape[1] > MOST:
        return f"a token has {places.shape[1]} experts"
    if rows.device.type == "cpu" and rows.dtype == torch.bfloat16:
        return "Triton's interpreter rounds to no bfloat16"
    return None


def expert_sum(
    rows: Tensor,
    places: Tensor,
    weights: Tensor,
    biases: Tensor | None = None,
    experts: Tensor | None = None,
) -> Tensor:
    """As defined."""
    (T, K), E = places.shape, rows.shape[1]
    out = torch.empty(T, E, dtype=rows.dtype, device=rows.device)
    _sum[T, triton.cdiv(E, BLOCK)](
        rows, places, weights, rows if biases is None else biases,
        places if experts is None else experts, out, E,
        K=K, BIASED=biases is not None, NARROW=weights.dtype == rows.dtype, BLOCK=BLOCK,
        num_warps=4, enable_fp_fusion=False,
    )  # fmt: skip
    return out


@triton.jit
def _sum(
    rows, places, weights, biases, experts, out, E,
    K: tl.constexpr, BIASED: tl.constexpr, NARROW: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    kind = out.dtype.element_ty
    token = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < E
    total = tl.zeros((BLOCK,), tl.float32)
    for k in tl.static_range(K):
        at = tl.load(places + token * K + k)
        found = tl.load(rows + at * E + column, mask=inside, other=0.0).to(tl.float32)
        if BIASED:
            expert = tl.load(experts + token * K + k)
            more = tl.load(biases + expert * E + column, mask=inside, other=0.0).to(tl.float32)
            found = (found + more).to(kind).to(tl.float32)
        found = found * tl.load(weights + token * K + k).to(tl.float32)
        total += found.to(kind).to(tl.float32) if NARROW else found
    tl.store(out + token * E + column, total.to(kind), mask=inside)
