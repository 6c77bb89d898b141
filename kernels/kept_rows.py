"""Which tokens of a cache and a chunk are kept, and their rows, in Triton.

Nothing is sorted: one program for each head finds the least mass that is kept by cutting its range
into four, and kept tokens stay in order. Its warps are few, since all wait for each cut. Rows are
read where they are and written once. `kept_rows_ref.py` has the definitions.
"""

import torch
from torch import Tensor

from longctx.kernels.kept_rows_ref import Kept
from longctx.kernels.launch import tl, triton
from longctx.kernels.top_pages import LOWEST, _cut, _ordered

ROWS = 32  # of one program
LONGEST = 131072  # tokens of a head that one program ranks
PER_WARP = 2048


def refusal(
    keys: Tensor,
    values: Tensor,
    new_keys: Tensor,
    new_values: Tensor,
    positions: Tensor,
    mass: Tensor,
    index: Tensor,
) -> str | None:
    """Why the kernel does not gather these rows; None if it does."""
    given = keys, values, new_keys, new_values
    if len({x.dtype for x in given}) > 1 or len({x.shape[-1] for x in given}) > 1:
        return "keys and values are not alike"
    if index.dtype != torch.int64 or index.stride(-1) != 1 or not index.numel():
        return "the index is empty, not int64, or not contiguous in its last dimension"
    if any(x.stride(-1) != 1 for x in (*given, positions, mass)):
        return "rows are not contiguous"
    return None


def kept_rows(
    keys: Tensor,
    values: Tensor,
    new_keys: Tensor,
    new_values: Tensor,
    positions: Tensor,
    mass: Tensor,
    index: Tensor,
) -> Kept:
    """As defined."""
    (G, C, D), n = keys.shape, index.shape[1]
    out = torch.empty(2, G, n, D, dtype=keys.dtype, device=keys.device)
    numbers = [torch.empty(G, n, dtype=x.dtype, device=x.device) for x in (positions, mass)]
    strides = [x.stride(at) for x in (keys, values, new_keys, new_values) for at in (0, 1)]
    _gather[triton.cdiv(n, ROWS), G, 2](
        keys, values, new_keys, new_values, index, out, n, C, index.stride(0), *strides,
        positions, mass, *numbers, positions.stride(0), mass.stride(0),
        D=D, ROWS=ROWS, BLOCK_D=triton.next_power_of_2(D), num_warps=4,
    )  # fmt: skip
    return Kept(out[0], out[1], *numbers)


@triton.jit
def _copy(
    old, new, index, out, n, C, old_head, old_row, new_head, new_row,
    D: tl.constexpr, ROWS: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.program_id(1).to(tl.int64)
    column = tl.arange(0, BLOCK_D)[None, :]
    at = tl.load(index + row, mask=row < n, other=0)
    inside = (row < n)[:, None] & (column < D)
    kept = (at < C)[:, None]
    a = old + head * old_head + (at * old_row)[:, None] + column
    b = new + head * new_head + ((at - C) * new_row)[:, None] + column
    x = tl.load(a, mask=inside & kept, other=0.0)
    y = tl.load(b, mask=inside & (at >= C)[:, None], other=0.0)
    tl.store(out + row[:, None] * D + column, tl.where(kept, x, y), mask=inside)


@triton.jit
def _copy_numbers(numbers, index, out, n, ROWS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    at = tl.load(index + row, mask=row < n, other=0)
    tl.store(out + row, tl.load(numbers + at, mask=row < n, other=0), mask=row < n)


@triton.jit(do_not_specialize=["n", "C"])
def _gather(
    keys, values, new_keys, new_values, index, out, n, C, by_head,
    k_head, k_row, v_head, v_row, nk_head, nk_row, nv_head, nv_row,
    positions, mass, out_positions, out_mass, p_head, m_head,
    D: tl.constexpr, ROWS: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    head, which, heads = tl.program_id(1).to(tl.int64), tl.program_id(2), tl.num_programs(1)
    index += head * by_head
    out += (which.to(tl.int64) * heads + head) * n * D
    if which == 0:
        _copy(keys, new_keys, index, out, n, C, k_head, k_row, nk_head, nk_row, D, ROWS, BLOCK_D)
        _copy_numbers(positions + head * p_head, index, out_positions + head * n, n, ROWS)
    else:
        _copy(
            values, new_values, index, out, n, C, v_head, v_row, nv_head, nv_row,
            D, ROWS, BLOCK_D,
        )  # fmt: skip
        _copy_numbers(mass + head * m_head, index, out_mass + head * n, n, ROWS)


def heaviest_tokens_refusal(mass: Tensor, count: int, first: int = 0, last: int = 0) -> str | None:
    """Why the kernel does not rank these tokens; None if it does."""
    S, count = mass.shape[1] - first - last, count - first - last
    if mass.dtype != torch.float32 or mass.stride(-1) != 1:
        return f"masses are {mass.dtype}, or not contiguous in their last dimension"
    if not 0 < count < S or S > LONGEST:
        return f"it finds no {count} of {S} tokens"
    return None


def heaviest_tokens(mass: Tensor, count: int, first: int = 0, last: int = 0) -> Tensor:
    """As defined."""
    G, S = mass.shape
    out = torch.empty(G, count, dtype=torch.int64, device=mass.device)
    between = S - first - last
    block = triton.next_power_of_2(between)
    _heaviest[(G,)](
        mass, out, between, count - first - last, first, last, mass.stride(0), BLOCK=block,
        EDGES=triton.next_power_of_2(max(1, first, last)),
        num_warps=max(1, min(32, block // PER_WARP)),
    )  # fmt: skip
    return out


@triton.jit(do_not_specialize=["S", "count", "first", "last"])
def _heaviest(
    mass, out, S, count, first, last, by_head, BLOCK: tl.constexpr, EDGES: tl.constexpr
):  # fmt: skip
    head, token = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    out += head * (first + count + last)
    edge = tl.arange(0, EDGES).to(tl.int64)
    tl.store(out + edge, edge, mask=edge < first)
    tl.store(out + first + count + edge, first + S + edge, mask=edge < last)
    found = tl.load(mass + head * by_head + first + token, mask=token < S, other=0.0)
    value = tl.where(token < S, _ordered(found), LOWEST)
    limit, left = _cut(value, count)
    sure, level = value > limit, value == limit  # of ties the first are taken
    both = sure.to(tl.int64) + (level.to(tl.int64) << 32)
    before = tl.cumsum(both, 0) - both
    equal = before >> 32
    at = (before & 0xFFFFFFFF) + tl.minimum(equal, left)
    chosen = sure | (level & (equal < left))
    tl.store(out + first + at, first + token.to(tl.int64), mask=chosen)
