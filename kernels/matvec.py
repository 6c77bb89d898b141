"""A matrix times a vector, with the norm before it and the gate or the sum after it, in Triton.

A few resident programs per multiprocessor take blocks of rows in turn; each reads its next tile of
the matrix while it multiplies one, and its first before the previous kernel has ended, so matrix,
norm and bias must not be written by that kernel. Every program norms the vector itself, rounded as
in the definition. Products and sums are in float32, always in the same order.
`matvec_ref.py` is the definition.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from longctx.kernels.launch import multiprocessors, starts_early, tl, triton

DTYPES = (torch.float16, torch.bfloat16, torch.float32)


class Settings(NamedTuple):
    """How the matrix is cut.

    Attributes:
        rows, columns: of a tile, powers of two; no program computes fewer rows.
        warps: of a program, all side by side along the columns.
        resident: programs per multiprocessor; 0: one for each block of rows.
    """

    rows: int
    columns: int
    warps: int
    resident: int


WHOLE = 8192  # longest vector that each program keeps in registers
ROWS = 2  # of a tile as long as the vector
LONG = Settings(rows=4, columns=2048, warps=8, resident=2)  # for longer vectors


def refusal(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    norm: Tensor | None = None,
    eps: float = 0.0,
    residual: Tensor | None = None,
    gated: bool = False,
) -> str | None:
    """Why the kernel does not compute this; None if it does."""
    given = {t.dtype for t in (x, weight, bias, norm, residual) if t is not None}
    if len(given) > 1 or x.dtype not in DTYPES:
        return f"it takes no {' with '.join(sorted(map(str, given)))}"
    if x.ndim != 1:
        return f"there are {x.ndim} dimensions and not one vector"
    if any(t.stride(-1) != 1 for t in (x, weight, bias, norm, residual) if t is not None):
        return "something is not contiguous in its last dimension"
    if gated and len(weight) % 2:
        return f"{len(weight)} rows have no halves"
    if x.device.type == "cpu" and x.dtype == torch.bfloat16:
        return "Triton's interpreter rounds no bfloat16"
    if not weight.numel():
        return "the matrix is empty"
    return None


def matvec(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    norm: Tensor | None = None,
    eps: float = 0.0,
    residual: Tensor | None = None,
    gated: bool = False,
    settings: Settings | None = None,
) -> Tensor:
    """As defined, for a matrix cut by `settings`; None: those of `settings_for`.

    The matrix, `bias` and `norm` may be read before the previous kernel has ended.
    """
    N, K = weight.shape
    cut = settings or settings_for(K, x.dtype)
    out = torch.empty(N // 2 if gated else N, dtype=x.dtype, device=x.device)
    blocks = triton.cdiv(N, cut.rows)
    programs = min(blocks, cut.resident * multiprocessors(x.device)) or blocks
    early = starts_early(x.device)
    _multiply[programs,](
        x, weight, *(x if t is None else t for t in (bias, norm, residual)), out,
        N, K, weight.stride(0), eps,
        BIAS=bias is not None, NORM=norm is not None, RESIDUAL=residual is not None, GATED=gated,
        ROWS=cut.rows, COLUMNS=cut.columns, STEPS=triton.cdiv(K, cut.columns),
        EARLY=early, launch_pdl=early, num_warps=cut.warps,
    )  # fmt: skip
    return out


def settings_for(K: int, dtype: torch.dtype) -> Settings:
    """The settings that were fastest on an H200 for vectors of about this length."""
    columns, share = max(256, triton.next_power_of_2(K)), dtype.itemsize // 2
    if columns > WHOLE:
        return LONG._replace(rows=LONG.rows // share)
    warps = min(8, max(1, columns * share // 1024))
    return Settings(ROWS, columns, warps, resident=16 // warps)


@triton.jit
def _columns(x, step, K, COLUMNS: tl.constexpr):
    """(1, COLUMNS) of a vector in float32, laid out as a tile's columns; zeros after its K."""
    columns = step * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    return tl.load(x + columns, mask=columns < K, other=0.0).to(tl.float32)


@triton.jit
def _tile(
    weight, block, step, N, K, stride,
    GATED: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """(ROWS, COLUMNS) of the matrix; gated: rows of the first and second half alternate."""
    place = block * ROWS + tl.arange(0, ROWS)
    row = place // 2 + place % 2 * (N // 2) if GATED else place
    columns = step * COLUMNS + tl.arange(0, COLUMNS)
    spots = weight + row.to(tl.int64)[:, None] * stride + columns[None, :]
    live = (place < N)[:, None] & (columns < K)[None, :]
    return tl.load(spots, mask=live, other=0.0, eviction_policy="evict_first")


@triton.jit
def _root(x, K, eps, COLUMNS: tl.constexpr, STEPS: tl.constexpr):
    """1 / the root mean square of a vector."""
    squares = tl.zeros((1, COLUMNS), tl.float32)
    for step in range(STEPS):
        part = _columns(x, step, K, COLUMNS)
        squares += part * part
    return tl.rsqrt(tl.sum(squares) / K + eps)


@triton.jit
def _rounded(x, dtype: tl.constexpr):
    return x.to(dtype).to(tl.float32)


@triton.jit
def _multiply(
    x, weight, bias, norm, residual, out, N, K, stride, eps,
    BIAS: tl.constexpr, NORM: tl.constexpr, RESIDUAL: tl.constexpr, GATED: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, STEPS: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    dtype: tl.constexpr = x.dtype.element_ty
    first, programs, blocks = tl.program_id(0), tl.num_programs(0), tl.cdiv(N, ROWS)
    tile = _tile(weight, first, 0, N, K, stride, GATED, ROWS, COLUMNS)
    scale = _columns(norm, 0, K, COLUMNS) if NORM else 1.0
    if EARLY:
        gdc_launch_dependents()
        gdc_wait()
    state = _columns(x, 0, K, COLUMNS)
    root = 1.0
    if NORM:
        if STEPS == 1:
            root = tl.rsqrt(tl.sum(state * state) / K + eps)
            state = _rounded(scale * _rounded(state * root, dtype), dtype)
        else:
            root = _root(x, K, eps, COLUMNS, STEPS)
    for block in range(first, blocks, programs):
        place = block * ROWS + tl.arange(0, ROWS)
        row = place // 2 + place % 2 * (N // 2) if GATED else place
        # What the end of a block needs is asked for at its beginning.
        more, before = 0.0, 0.0
        if BIAS:
            more = tl.load(bias + row, mask=place < N, other=0.0).to(tl.float32)
        if RESIDUAL and not GATED:
            before = tl.load(residual + place, mask=place < N, other=0.0).to(tl.float32)
        sums = tl.zeros((ROWS, COLUMNS), tl.float32)
        for step in tl.range(STEPS, num_stages=1):
            if STEPS > 1:
                state = _columns(x, step, K, COLUMNS)
                if NORM:
                    scale = _columns(norm, step, K, COLUMNS)
                    state = _rounded(scale * _rounded(state * root, dtype), dtype)
            last = step == STEPS - 1
            next_block, next_step = tl.where(last, block + programs, block), step + 1
            next_step = tl.where(last, 0, next_step)
            ahead = _tile(weight, next_block, next_step, N, K, stride, GATED, ROWS, COLUMNS)
            sums += tile.to(tl.float32) * state
            tile = ahead
        product = tl.sum(sums, 1)
        if BIAS:
            product += more
        product = _rounded(product, dtype)
        live = place < N
        if GATED:
            gate, up = tl.split(tl.reshape(product, (ROWS // 2, 2)))
            product = _rounded(_rounded(gate * tl.sigmoid(gate), dtype) * up, dtype)
            place = block * (ROWS // 2) + tl.arange(0, ROWS // 2)
            live = place < N // 2
            if RESIDUAL:
                before = tl.load(residual + place, mask=live, other=0.0).to(tl.float32)
        if RESIDUAL:
            product += before
        tl.store(out + place, product.to(dtype), mask=live)
