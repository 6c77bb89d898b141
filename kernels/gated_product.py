"""The activation of a gate times the other half of a product, in one pass in Triton.

Every step is computed in float32 and rounded to the dtype by itself, as in PyTorch.
`gated_product_ref.py` is the definition.
"""

import torch
from torch import Tensor
from triton.language.extra.cuda import libdevice

from longctx.kernels.gated_product_ref import CLAMPED, GELU_TANH, PLAIN, SILU, Activation, Biases
from longctx.kernels.launch import tl, triton

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
NAMES = (SILU, GELU_TANH, CLAMPED)
BLOCK = 2048  # entries of one program
MOST = tl.constexpr(87.0)  # its exp is still finite


def refusal(x: Tensor, activation: Activation = PLAIN, biases: Biases | None = None) -> str | None:
    """Why the kernel does not compute this; None if it does."""
    if x.dtype not in DTYPES or (biases is not None and biases.rows.dtype != x.dtype):
        return f"it takes no {x.dtype}, or other biases"
    if activation.name not in NAMES:
        return f"it knows no {activation.name}"
    if x.ndim != 2 or x.shape[1] % 2 or not x.numel() or x.stride(1) != 1:
        return f"it takes no halves of {tuple(x.shape)}, or rows are not contiguous"
    if biases is not None and not (biases.rows.is_contiguous() and biases.which.is_contiguous()):
        return "biases are not contiguous"
    if x.device.type == "cpu" and x.dtype == torch.bfloat16:
        return "Triton's interpreter rounds to no bfloat16"
    return None


def gated_product(
    x: Tensor, activation: Activation = PLAIN, biases: Biases | None = None
) -> Tensor:
    """As defined."""
    rows, inner = len(x), x.shape[1] // 2
    out = torch.empty(rows, inner, dtype=x.dtype, device=x.device)
    _gate[rows, triton.cdiv(inner, BLOCK)](
        x, out, *(biases or (x, x)), inner, x.stride(0), activation.alpha, activation.limit,
        KIND=NAMES.index(activation.name), BIASED=biases is not None,
        EXACT=x.device.type == "cuda", BLOCK=BLOCK, num_warps=4, enable_fp_fusion=False,
    )  # fmt: skip
    return out


@triton.jit
def _rounded(x, kind: tl.constexpr):
    return x.to(kind).to(tl.float32)


@triton.jit
def _silu(x):
    return x / (1.0 + tl.exp(tl.minimum(-x, MOST)))


@triton.jit
def _gelu(x, EXACT: tl.constexpr):
    """x (1 + tanh(y)) / 2 for y = sqrt(2 / pi) (x + 0.044715 x^3)."""
    y = 0.7978845608028654 * (x + 0.044715 * (x * x * x))
    if EXACT:  # the digits that PyTorch's sum loses where tanh is near -1 are lost here too
        return 0.5 * x * (1.0 + libdevice.tanh(y))
    return x / (1.0 + tl.exp(tl.minimum(-2.0 * y, MOST)))


@triton.jit
def _loaded(x, row, bias, column, inside, kind: tl.constexpr, BIASED: tl.constexpr):
    """Entries of a row in float32, their bias added."""
    found = tl.load(x + row + column, mask=inside, other=0.0).to(tl.float32)
    if BIASED:
        more = tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)
        found = _rounded(found + more, kind)
    return found


@triton.jit
def _gate(
    x, out, biases, index, inner, by_row, alpha, limit,
    KIND: tl.constexpr, BIASED: tl.constexpr, EXACT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    kind = out.dtype.element_ty
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside, start, bias = column < inner, row * by_row, biases
    if BIASED:
        bias = biases + tl.load(index + row).to(tl.int64) * 2 * inner
    if KIND == 2:
        both = tl.program_id(1) * 2 * BLOCK + tl.arange(0, 2 * BLOCK)
        both = _loaded(x, start, bias, both, both < 2 * inner, kind, BIASED)
        gate, up = tl.split(tl.reshape(both, (BLOCK, 2)))
        gate = _rounded(tl.minimum(gate, limit), kind)
        up = _rounded(tl.minimum(tl.maximum(up, -limit), limit), kind)
        steep = _rounded(gate * alpha, kind)
        share = _rounded(1.0 / (1.0 + tl.exp(tl.minimum(-steep, MOST))), kind)
        gate, up = _rounded(gate * share, kind), _rounded(up + 1.0, kind)
    else:
        gate = _loaded(x, start, bias, column, inside, kind, BIASED)
        up = _loaded(x, start, bias, inner + column, inside, kind, BIASED)
        gate = _rounded(_gelu(gate, EXACT) if KIND == 1 else _silu(gate), kind)
    tl.store(out + row * inner + column, (gate * up).to(kind), mask=inside)
