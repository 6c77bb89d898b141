"""The sum of states and what is added to them, and its norm, in one pass in Triton.

Each row is read once and held in registers. Sums are in float32; every step is rounded as in
PyTorch, so only the order of the sum of squares differs. `residual_norm_ref.py` is the definition.
"""

import torch
from torch import Tensor

from longctx.kernels.launch import tl, triton
from longctx.kernels.residual_norm_ref import FORMS, Scaled

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
WIDEST, TILE = 16384, 2048  # entries of a row; of a program with several rows
PER_WARP = 1024


def refusal(
    x: Tensor,
    added: Tensor | None = None,
    after: Scaled | None = None,
    factor: float = 1.0,
    before: Scaled | None = None,
) -> str | None:
    """Why the kernel does not compute this; None if it does."""
    weights = [norm.weight for norm in (after, before) if norm is not None]
    given = [x, *weights, *([] if added is None else [added])]
    if x.dtype not in DTYPES or {one.dtype for one in given} != {x.dtype}:
        return f"it takes {', '.join(map(str, DTYPES))}, one of them for everything"
    if added is None and (after is not None or before is None):
        return "there is nothing to compute"
    if added is not None and added.shape != x.shape:
        return "what is added has another shape"
    if not 2 <= x.ndim <= 3 or not x.numel() or x.shape[-1] > WIDEST:
        return f"it takes no states of shape {tuple(x.shape)}"
    if any(one.stride(-1) != 1 for one in given):
        return "rows are not contiguous"
    if x.device.type == "cpu" and x.dtype == torch.bfloat16:
        return "Triton's interpreter rounds to no bfloat16"
    return None


def residual_norm(
    x: Tensor,
    added: Tensor | None = None,
    after: Scaled | None = None,
    factor: float = 1.0,
    before: Scaled | None = None,
) -> tuple[Tensor, Tensor]:
    """As defined."""
    E, width = x.shape[-1], triton.next_power_of_2(x.shape[-1])
    each = x.shape[1] if x.ndim == 3 else 1
    rows = x.shape[0] * each
    total = x if added is None else torch.empty(x.shape, dtype=x.dtype, device=x.device)
    out = total if before is None else torch.empty(x.shape, dtype=x.dtype, device=x.device)
    block = max(1, TILE // width)
    _norm[(triton.cdiv(rows, block),)](
        x, x if added is None else added, total, out,
        x if after is None else after.weight, x if before is None else before.weight,
        rows, *_strides(x), *_strides(x if added is None else added), factor,
        0.0 if after is None else after.eps, 0.0 if before is None else before.eps,
        E=E, EACH=each, ADDS=added is not None, AFTER=_form(after), BEFORE=_form(before),
        SCALES=factor != 1.0, ROWS=block, BLOCK=width,
        num_warps=max(1, min(16, width * block // PER_WARP)), enable_fp_fusion=False,
    )  # fmt: skip
    return total, out


def _strides(x: Tensor) -> tuple[int, int]:
    """Of the first dimension, and of the second if there are three."""
    return x.stride(0), x.stride(1) if x.ndim == 3 else 0


def _form(norm: Scaled | None) -> int:
    """The form's number; 0: no norm."""
    return 0 if norm is None else 1 + FORMS.index(norm.form)


@triton.jit
def _normed(
    x, weights, eps, E: tl.constexpr, FORM: tl.constexpr, BLOCK: tl.constexpr, kind: tl.constexpr
):  # fmt: skip
    """Rows x in float32, normed and rounded to `kind`, in float32 again."""
    column = tl.arange(0, BLOCK)
    weight = tl.load(weights + column, mask=column < E, other=0.0).to(tl.float32)
    mean = tl.sum(x * x, 1) / E
    x = x * tl.rsqrt(mean + eps)[:, None]
    if FORM == 1:
        x = x.to(kind).to(tl.float32) * weight[None, :]
    if FORM == 2:
        x = x * weight[None, :]
    if FORM == 3:
        x = x * (1.0 + weight)[None, :]
    return x.to(kind).to(tl.float32)


@triton.jit
def _sum(
    x, more, weights, eps, factor, E: tl.constexpr, FORM: tl.constexpr, SCALES: tl.constexpr,
    BLOCK: tl.constexpr, kind: tl.constexpr,
):  # fmt: skip
    """Rows and what is added, normed and scaled, rounded to `kind`; all in float32."""
    if FORM:
        more = _normed(more, weights, eps, E, FORM, BLOCK, kind)
    if SCALES:
        more = (more * factor).to(kind).to(tl.float32)
    return (x + more).to(kind).to(tl.float32)


@triton.jit(do_not_specialize=["rows"])
def _norm(
    x, added, total, out, after, before, rows, x_row, x_each, added_row, added_each,
    factor, after_eps, before_eps,
    E: tl.constexpr, EACH: tl.constexpr, ADDS: tl.constexpr, AFTER: tl.constexpr,
    BEFORE: tl.constexpr, SCALES: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    kind = out.dtype.element_ty
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    first, second = row // EACH, row % EACH
    inside = (row < rows)[:, None] & (column < E)[None, :]
    place = (first * x_row + second * x_each)[:, None] + column[None, :]
    state = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    target = row[:, None] * E + column[None, :]
    if ADDS:
        place = (first * added_row + second * added_each)[:, None] + column[None, :]
        more = tl.load(added + place, mask=inside, other=0.0).to(tl.float32)
        state = _sum(state, more, after, after_eps, factor, E, AFTER, SCALES, BLOCK, kind)
        tl.store(total + target, state.to(kind), mask=inside)
    if BEFORE:
        state = _normed(state, before, before_eps, E, BEFORE, BLOCK, kind)
        tl.store(out + target, state.to(kind), mask=inside)
