"""Attention of one token to the first entries of a cache, in Triton.

As many programs as the device runs at a time share the visible entries, whose count is read on the
device. `split_attention.py` has what each does with its part and how parts are merged.
`cached_attention_ref.py` is the definition.
"""

import torch
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from longctx.kernels import split_attention as split_module
from longctx.kernels.launch import starts_early, tl, triton
from longctx.kernels.split_attention import attended, logits_of, rows_at, store_part

PROGRAMS = 1  # per multiprocessor
SIZE, WARPS, STAGES = 16384, 4, 4  # bytes of a step's keys, and the same of values; steps ahead
AHEAD = 128  # entries of a part that are prefetched before the previous kernel has ended
UNIT = tl.constexpr(16)  # parts are multiples of this many entries


def refusal(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    count: Tensor,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    weights: Tensor | None = None,
) -> str | None:
    """Why the kernel does not compute this; None if it does."""
    if count.dtype not in (torch.int64, torch.int32):
        return f"it takes no {count.dtype} count"
    if window is not None and window < 1:
        return f"a window of {window} shows nothing"
    if softcap is not None and softcap <= 0:
        return f"a soft cap of {softcap} is none"
    if weights is not None and (weights.dtype != torch.float32 or weights.stride(-1) != 1):
        return f"weights are {weights.dtype}, or not contiguous in their last dimension"
    return split_module.refusal(q, keys, values)


def cached_attention(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    count: Tensor,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    weights: Tensor | None = None,
) -> Tensor:
    """As defined."""
    (H, _, D), (G, C, _), q = q.shape, keys.shape, q.contiguous()
    window = C if window is None else min(window, C)
    splits = split_module.splits(q.device, G, PROGRAMS)
    parts, early = split_module.empty_parts(q, splits), starts_early(q.device)
    logits = None
    if weights is not None:
        logits = torch.empty(H, C, dtype=torch.float32, device=q.device)
    _attend[G, splits](
        q, keys, values, count, parts, q if logits is None else logits, C, window,
        *keys.stride()[:2], *values.stride()[:2], *split_module.factors(scale, softcap),
        GROUP=H // G, D=D, CAPPED=softcap is not None, KEPT=logits is not None,
        AHEAD=AHEAD, EARLY=early, launch_pdl=early, **split_module.tile(q, G, SIZE, WARPS, STAGES),
    )  # fmt: skip
    return split_module.merged(q, parts, splits, sinks, weights, logits, count, window)


@triton.jit
def _part(n, window, split, splits):
    """The first entry of a part, and the one after its last."""
    oldest = tl.maximum(n - window, 0)
    units = (n - oldest + UNIT - 1) // UNIT
    first = oldest + split * units // splits * UNIT
    return first, tl.minimum(oldest + (split + 1) * units // splits * UNIT, n)


@triton.jit
def _prefetch(x, first, last, by_row, D: tl.constexpr, AHEAD: tl.constexpr, BLOCK_D: tl.constexpr):
    """Prefetches the first rows of a part into the GPU's cache; no other effect."""
    LINE: tl.constexpr = 1024 // x.dtype.element_ty.primitive_bitwidth
    LINES: tl.constexpr = (BLOCK_D + LINE - 1) // LINE
    row, column = first + tl.arange(0, AHEAD)[:, None], tl.arange(0, LINES)[None, :] * LINE
    wanted = ((row < last) & (column < D)).to(tl.int32)
    tl.inline_asm_elementwise(
        "{ .reg .pred p; setp.ne.s32 p, $2, 0; @p prefetch.global.L2 [$1]; mov.u32 $0, 0; }",
        "=r,l,r",
        [(x + row.to(tl.int64) * by_row + column).to(tl.int64), wanted],
        dtype=tl.int32, is_pure=False, pack=1,
    )  # fmt: skip


@triton.jit(do_not_specialize=["C", "window"])
def _attend(
    q, keys, values, count, parts, kept, C, window, k_head, k_row, v_head, v_row, factor, bound,
    GROUP: tl.constexpr, D: tl.constexpr, CAPPED: tl.constexpr, KEPT: tl.constexpr,
    AHEAD: tl.constexpr, EARLY: tl.constexpr,
    TILE: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_ROWS: tl.constexpr,
):  # fmt: skip
    head, split, splits = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    keys += head.to(tl.int64) * k_head
    values += head.to(tl.int64) * v_head
    if EARLY:
        if AHEAD:
            # The count may still change: then these are not exactly this part's entries.
            n = tl.maximum(tl.minimum(tl.load(count, volatile=True), C), 0).to(tl.int32)
            first, last = _part(n, window, split, splits)
            _prefetch(keys, first, last, k_row, D, AHEAD, BLOCK_D)
            _prefetch(values, first, last, v_row, D, AHEAD, BLOCK_D)
        gdc_wait()
        gdc_launch_dependents()
    n = tl.minimum(tl.load(count), C).to(tl.int32)
    first, last = _part(n, window, split, splits)
    row, heads = tl.arange(0, TILE), tl.arange(0, BLOCK_ROWS)
    mine = heads < GROUP
    own = rows_at(q + (head * GROUP + heads) * D, mine, D, BLOCK_D)
    kept += ((head * GROUP + heads).to(tl.int64) * C)[:, None]
    highest = tl.full((BLOCK_ROWS,), -float("inf"), tl.float32)
    weight = tl.zeros((BLOCK_ROWS, TILE), tl.float32)
    out = tl.zeros((BLOCK_ROWS, BLOCK_D), tl.float32)
    for start in tl.range(first, last, TILE):
        place = (start + row).to(tl.int64)
        live = place < last
        k = rows_at(keys + place * k_row, live, D, BLOCK_D)
        v = rows_at(values + place * v_row, live, D, BLOCK_D)
        logits = logits_of(own, k, live, factor, bound, CAPPED)
        if KEPT:
            tl.store(kept + place[None, :], logits, mask=mine[:, None] & live[None, :])
        highest, weight, out = attended(logits, v, highest, weight, out)
    H = tl.num_programs(0) * GROUP
    store_part(
        parts, highest, weight, out, split, splits, H, head * GROUP,
        GROUP, D, BLOCK_D, BLOCK_ROWS,
    )  # fmt: skip
