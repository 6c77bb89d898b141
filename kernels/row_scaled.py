"""States in eight bits with a scale for each row, in one pass with what comes before, in Triton.

A program holds one row in registers: norm or gate are computed and rounded as `residual_norm.py`
and `gated_product.py` do, the largest entry is found, and only eight bits of each are written.
`row_scaled_ref.py` is the definition.
"""

import torch
from torch import Tensor

from longctx.kernels.gated_product import _gelu, _rounded, _silu
from longctx.kernels.gated_product_ref import GELU_TANH, PLAIN, SILU, Activation
from longctx.kernels.launch import tl, triton
from longctx.kernels.residual_norm import _form, _normed, _sum
from longctx.kernels.residual_norm import refusal as norm_refusal
from longctx.kernels.residual_norm_ref import Scaled
from longctx.kernels.row_scaled_ref import FP8, LARGEST, LEAST, ScaledRows

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
NAMES = (SILU, GELU_TANH)
WIDEST = 32768  # entries of a row
PER_WARP = 1024
MOST, MIN = tl.constexpr(LARGEST), tl.constexpr(LEAST)


def refusal(x: Tensor) -> str | None:
    """Why the kernel does not compute this; None if it does."""
    return _refused(x, x.shape[-1])


def residual_row_scaled_refusal(
    x: Tensor, added: Tensor | None, after: Scaled | None, factor: float, before: Scaled
) -> str | None:
    """Why the kernel does not compute this; None if it does."""
    return _refused(x, x.shape[-1]) or norm_refusal(x, added, after, factor, before)


def gated_row_scaled_refusal(x: Tensor, activation: Activation = PLAIN) -> str | None:
    """Why the kernel does not compute this; None if it does."""
    if activation.name not in NAMES:
        return f"it knows no {activation.name}"
    return (
        f"it takes no halves of {x.shape[-1]}" if x.shape[-1] % 2 else _refused(x, x.shape[1] // 2)
    )


def _refused(x: Tensor, width: int) -> str | None:
    if x.dtype not in DTYPES:
        return f"it takes no {x.dtype}"
    if x.ndim != 2 or not x.numel() or width > WIDEST or x.stride(1) != 1:
        return f"it takes no rows of shape {tuple(x.shape)}, or they are not contiguous"
    if x.device.type == "cuda" and torch.cuda.get_device_capability(x.device) < (8, 9):
        return "this GPU rounds to no eight-bit numbers"
    if x.device.type == "cpu" and x.dtype == torch.bfloat16:
        return "Triton's interpreter rounds to no bfloat16"
    return None


def row_scaled(x: Tensor) -> ScaledRows:
    """As defined."""
    return residual_row_scaled(x, None, None, 1.0, None)[1]


def residual_row_scaled(
    x: Tensor, added: Tensor | None, after: Scaled | None, factor: float, before: Scaled | None
) -> tuple[Tensor, ScaledRows]:
    """As defined; without `before` the sum itself is scaled."""
    rows, E = x.shape
    total = x if added is None else torch.empty(x.shape, dtype=x.dtype, device=x.device)
    made = _empty(x, E)
    more, block = x if added is None else added, triton.next_power_of_2(E)
    _norm[(rows,)](
        x, more, total, made.values, made.scales,
        x if after is None else after.weight, x if before is None else before.weight,
        x.stride(0), more.stride(0), factor,
        0.0 if after is None else after.eps, 0.0 if before is None else before.eps,
        E=E, ADDS=added is not None, AFTER=_form(after), BEFORE=_form(before),
        SCALES=factor != 1.0, BLOCK=block, num_warps=_warps(block), enable_fp_fusion=False,
    )  # fmt: skip
    return total, made


def gated_row_scaled(x: Tensor, activation: Activation = PLAIN) -> ScaledRows:
    """As defined."""
    inner = x.shape[1] // 2
    made, block = _empty(x, inner), triton.next_power_of_2(inner)
    _gate[(len(x),)](
        x, made.values, made.scales, x.stride(0),
        KIND=NAMES.index(activation.name), EXACT=x.device.type == "cuda",
        INNER=inner, BLOCK=block, num_warps=_warps(block), enable_fp_fusion=False,
    )  # fmt: skip
    return made


def _empty(x: Tensor, width: int) -> ScaledRows:
    values = torch.empty(len(x), width, dtype=FP8, device=x.device)
    return ScaledRows(values, torch.empty(len(x), 1, dtype=torch.float32, device=x.device))


def _warps(block: int) -> int:
    return max(1, min(16, block // PER_WARP))


@triton.jit
def _store(state, values, scales, row, column, inside, E: tl.constexpr):
    """Writes a row (1, BLOCK) of float32, masked entries 0, in eight bits with its scale."""
    largest = tl.maximum(tl.max(tl.max(tl.abs(state), 1), 0), MIN)
    state = state * (MOST / largest)
    state = tl.minimum(tl.maximum(state, -MOST), MOST)
    tl.store(values + row * E + column, state.to(values.dtype.element_ty), mask=inside)
    tl.store(scales + row, largest / MOST)


@triton.jit
def _norm(
    x, added, total, values, scales, after, before, by_row, added_by_row,
    factor, after_eps, before_eps,
    E: tl.constexpr, ADDS: tl.constexpr, AFTER: tl.constexpr, BEFORE: tl.constexpr,
    SCALES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    kind = total.dtype.element_ty
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)[None, :]
    inside = column < E
    state = tl.load(x + row * by_row + column, mask=inside, other=0.0).to(tl.float32)
    if ADDS:
        more = tl.load(added + row * added_by_row + column, mask=inside, other=0.0).to(tl.float32)
        state = _sum(state, more, after, after_eps, factor, E, AFTER, SCALES, BLOCK, kind)
        tl.store(total + row * E + column, state.to(kind), mask=inside)
    if BEFORE:
        state = _normed(state, before, before_eps, E, BEFORE, BLOCK, kind)
    _store(state, values, scales, row, column, inside, E)


@triton.jit
def _gate(
    x, values, scales, by_row, KIND: tl.constexpr, EXACT: tl.constexpr,
    INNER: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    kind = x.dtype.element_ty
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)[None, :]
    inside, place = column < INNER, x + row * by_row + column
    gate = tl.load(place, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(place + INNER, mask=inside, other=0.0).to(tl.float32)
    gate = _rounded(_gelu(gate, EXACT) if KIND == 1 else _silu(gate), kind)
    _store(_rounded(gate * up, kind), values, scales, row, column, inside, INNER)
