"""One token's keys and values into their caches, keys and queries rotated, in Triton.

One small launch with a program for each head; the token's slot is read on the device. Products and
sums are in float32, each rounded to the dtype separately, as in PyTorch. `append_rotated_ref.py` is
the definition.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from longctx.kernels.append_rotated_ref import PAGE, Pages, Store
from longctx.kernels.launch import starts_early, tl, triton
from longctx.kernels.split_attention import DTYPES


def refusal(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    position: Tensor,
    cos: Tensor | None,
    sin: Tensor | None,
    stores: Sequence[Store],
    pages: Pages | None = None,
) -> str | None:
    """Why the kernel does not compute this; None if it does."""
    (_, T, D), R = q.shape, 0 if cos is None else cos.shape[-1]
    written = [x for store in stores for x in store[:2]] + list(pages[:2] if pages else ())
    turning = [x for x in (cos, sin) if x is not None]
    if q.dtype not in DTYPES or {x.dtype for x in (k, v, *written, *turning)} != {q.dtype}:
        return f"it takes {', '.join(map(str, DTYPES))}, one of them for everything"
    if T != 1 or v.shape[-1] != D:
        return f"there are {T} tokens, or the values do not have {D} dimensions"
    if (cos is None) != (sin is None) or R % 2 or R > D:
        return f"it does not rotate {R} of {D} dimensions"
    if len(stores) not in (1, 2):
        return f"there are {len(stores)} stores"
    if any(x.dtype != torch.int64 for x in (position, *(store.slot for store in stores))):
        return "the position or slots are not int64"
    if any(x.stride(-1) != 1 for x in (q, k, v, *written)):
        return "heads are not contiguous in their last dimension"
    if not all(x.is_contiguous() for x in (*turning, *(pages or ()))):
        return "cos, sin or what is known of pages are not contiguous"
    if q.device.type == "cpu" and q.dtype == torch.bfloat16:
        return "Triton's interpreter rounds to no bfloat16"
    return None


def append_rotated(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    position: Tensor,
    cos: Tensor | None,
    sin: Tensor | None,
    stores: Sequence[Store],
    pages: Pages | None = None,
) -> Tensor:
    """As defined."""
    (H, _, D), G = q.shape, len(k)
    out, early = torch.empty(H, 1, D, dtype=q.dtype, device=q.device), starts_early(q.device)
    R = 0 if cos is None else cos.shape[-1]
    both = [x for store in (stores[0], stores[-1]) for x in _where(store)]
    _append[(H + G,)](
        q, k, v, position, q if cos is None else cos, q if sin is None else sin, out, *both,
        *(pages or (q, q, position)), q.stride(0), k.stride(0), v.stride(0),
        pages.low.shape[1] if pages else 0, H,
        D=D, R=R, STORES=len(stores), PAGE=PAGE if pages else 0,
        BLOCK_D=triton.next_power_of_2(D), EARLY=early, launch_pdl=early, num_warps=1,
        enable_fp_fusion=False,
    )  # fmt: skip
    return out


def _where(store: Store) -> tuple[Tensor | int, ...]:
    """The tensors of a store and their strides."""
    keys, values, slot = store
    strides = (*keys.stride()[:2], *values.stride()[:2])
    return keys, values, slot, *strides, slot.stride(0) if len(slot) > 1 else 0


@triton.jit
def _turned(x, cos, sin, at, D: tl.constexpr, R: tl.constexpr, BLOCK_D: tl.constexpr):
    """The row at x, its first R entries rotated as in `rotate_half`."""
    kind = x.dtype.element_ty
    column = tl.arange(0, BLOCK_D)
    own = tl.load(x + column, mask=column < D, other=0.0)
    if R == 0:
        return own
    inside, low = column < R, column < R // 2
    other = tl.load(x + tl.where(low, column + R // 2, column - R // 2), mask=inside, other=0.0)
    c = tl.load(cos + at * R + column, mask=inside, other=0.0).to(tl.float32)
    s = tl.load(sin + at * R + column, mask=inside, other=0.0).to(tl.float32)
    a = (own.to(tl.float32) * c).to(kind).to(tl.float32)
    b = (other.to(tl.float32) * s).to(kind).to(tl.float32)
    return tl.where(inside, tl.where(low, a - b, a + b).to(kind), own)


@triton.jit
def _put(x, places, head, slot, by_head, by_row, D: tl.constexpr, BLOCK_D: tl.constexpr):
    column = tl.arange(0, BLOCK_D)
    spot = places + head.to(tl.int64) * by_head + slot * by_row
    tl.store(spot + column, x, mask=column < D)


@triton.jit
def _bound(
    k, low, high, filled, page, place,
    D: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Updates a page's bounds with the key written to its entry `place`."""
    column = tl.arange(0, BLOCK_D)
    spot, mask = page * D + column, column < D
    before = column < tl.where(place > 0, D, 0)
    k = k.to(tl.float32)
    smallest = tl.minimum(tl.load(low + spot, mask=before, other=float("inf")).to(tl.float32), k)
    largest = tl.maximum(tl.load(high + spot, mask=before, other=-float("inf")).to(tl.float32), k)
    tl.store(low + spot, smallest.to(low.dtype.element_ty), mask=mask)
    tl.store(high + spot, largest.to(high.dtype.element_ty), mask=mask)
    tl.store(filled + page, (place + 1).to(filled.dtype.element_ty))


@triton.jit(do_not_specialize=["count", "H"])
def _append(
    q, k, v, position, cos, sin, out,
    keys, values, slots, k_head, k_row, v_head, v_row, slot_head,
    keys2, values2, slots2, k_head2, k_row2, v_head2, v_row2, slot_head2,
    low, high, filled, by_q, by_k, by_v, count, H,
    D: tl.constexpr, R: tl.constexpr, STORES: tl.constexpr, PAGE: tl.constexpr,
    BLOCK_D: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    if EARLY:
        gdc_wait()
        gdc_launch_dependents()
    me, column, at = tl.program_id(0), tl.arange(0, BLOCK_D), tl.load(position)
    if me < H:
        x = _turned(q + me * by_q, cos, sin, at, D, R, BLOCK_D)
        tl.store(out + me * D + column, x, mask=column < D)
    else:
        head = me - H
        x = _turned(k + head * by_k, cos, sin, at, D, R, BLOCK_D)
        y = tl.load(v + head * by_v + column, mask=column < D, other=0.0)
        slot = tl.load(slots + head * slot_head)
        _put(x, keys, head, slot, k_head, k_row, D, BLOCK_D)
        _put(y, values, head, slot, v_head, v_row, D, BLOCK_D)
        if STORES == 2:
            slot = tl.load(slots2 + head * slot_head2)
            _put(x, keys2, head, slot, k_head2, k_row2, D, BLOCK_D)
            _put(y, values2, head, slot, v_head2, v_row2, D, BLOCK_D)
        if PAGE:
            page = head.to(tl.int64) * count + slot // PAGE
            _bound(x, low, high, filled, page, slot % PAGE, D, BLOCK_D)
