"""The activation of a gate times the other half of a product, in one pass in Triton.

Activation and product are computed in float32, each rounded to the dtype by itself, as in PyTorch.
`gated_product_ref.py` is the definition.
"""

import torch
from torch import Tensor

from longctx.kernels.gated_product_ref import GELU_TANH, SILU
from longctx.kernels.launch import tl, triton

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
BLOCK = 2048  # entries of one program
MOST = tl.constexpr(87.0)  # its exp is still finite


def refusal(x: Tensor, activation: str = SILU) -> str | None:
    """Why the kernel does not compute this; None if it does."""
    if x.dtype not in DTYPES:
        return f"it takes no {x.dtype}"
    if activation not in (SILU, GELU_TANH):
        return f"it knows no {activation}"
    if x.ndim != 2 or x.shape[1] % 2 or not x.numel() or x.stride(1) != 1:
        return f"it takes no halves of {tuple(x.shape)}, or rows are not contiguous"
    if x.device.type == "cpu" and x.dtype == torch.bfloat16:
        return "Triton's interpreter rounds to no bfloat16"
    return None


def gated_product(x: Tensor, activation: str = SILU) -> Tensor:
    """As defined."""
    T, inner = len(x), x.shape[1] // 2
    out = torch.empty(T, inner, dtype=x.dtype, device=x.device)
    _gate[T, triton.cdiv(inner, BLOCK)](
        x, out, inner, x.stride(0), TANH=activation == GELU_TANH, BLOCK=BLOCK,
        num_warps=4, enable_fp_fusion=False,
    )  # fmt: skip
    return out


@triton.jit
def _gate(x, out, inner, by_row, TANH: tl.constexpr, BLOCK: tl.constexpr):
    kind = out.dtype.element_ty
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < inner
    gate = tl.load(x + row * by_row + column, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(x + row * by_row + inner + column, mask=inside, other=0.0).to(tl.float32)
    if TANH:
        # y = sqrt(2 / pi) * (x + 0.044715 x^3), and (1 + tanh(y)) / 2 = 1 / (1 + exp(-2 y))
        y = 0.7978845608028654 * (gate + 0.044715 * (gate * gate * gate))
        gate = gate / (1.0 + tl.exp(tl.minimum(-2.0 * y, MOST)))
    else:
        gate = gate / (1.0 + tl.exp(tl.minimum(-gate, MOST)))
    gate = gate.to(kind).to(tl.float32)
    tl.store(out + row * inner + column, (gate * up).to(kind), mask=inside)
