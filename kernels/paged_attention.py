"""Attention of one token to chosen pages of a cache, in Triton.

As many programs as the device runs at a time share the pages that a key head has chosen; the pages
are read in place. `split_attention.py` has what each does with its part and how parts are merged.
`paged_attention_ref.py` is the definition.
"""

import torch
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from longctx.kernels import split_attention as split_module
from longctx.kernels.launch import starts_early, tl, triton
from longctx.kernels.split_attention import attended, logits_of, rows_at, store_part

PROGRAMS = 3  # per multiprocessor
SIZE, WARPS, STAGES = 8192, 4, 4  # bytes of a step's keys; pages, fill counts and keys ahead


def refusal(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    filled: Tensor,
    pages: Tensor | None,
    scale: float,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> str | None:
    """Why the kernel does not compute this; None if it does."""
    if filled.dtype != torch.int32 or (pages is not None and pages.dtype != torch.int64):
        return "the filling is not int32, or the pages are not int64"
    if not filled.numel() or keys.shape[1] % filled.shape[1]:
        return f"{keys.shape[1]} entries are no {filled.shape[1]} pages"
    if softcap is not None and softcap <= 0:
        return f"a soft cap of {softcap} is none"
    return split_module.refusal(q, keys, values)


def paged_attention(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    filled: Tensor,
    pages: Tensor | None,
    scale: float,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """As defined."""
    (H, _, D), (G, C, _), q = q.shape, keys.shape, q.contiguous()
    filled, listed = filled.contiguous(), pages is not None
    pages = filled if pages is None else pages.contiguous()
    splits = split_module.splits(q.device, G, PROGRAMS)
    parts, early = split_module.empty_parts(q, splits), starts_early(q.device)
    _attend[G, splits](
        q, keys, values, filled, pages, parts, pages.shape[1], filled.shape[1],
        *keys.stride()[:2], *values.stride()[:2], *split_module.factors(scale, softcap),
        GROUP=H // G, D=D, PAGE=C // filled.shape[1], LISTED=listed, CAPPED=softcap is not None,
        EARLY=early, launch_pdl=early, **split_module.tile(q, G, SIZE, WARPS, STAGES),
    )  # fmt: skip
    return split_module.merged(q, parts, splits, sinks)


@triton.jit(do_not_specialize=["P", "every"])
def _attend(
    q, keys, values, filled, pages, parts, P, every, k_head, k_row, v_head, v_row, factor, bound,
    GROUP: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr, LISTED: tl.constexpr,
    CAPPED: tl.constexpr, EARLY: tl.constexpr,
    TILE: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_ROWS: tl.constexpr,
):  # fmt: skip
    if EARLY:
        gdc_wait()
        gdc_launch_dependents()
    head, split, splits = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    first, last = split * P // splits * PAGE, (split + 1) * P // splits * PAGE
    row, heads = tl.arange(0, TILE), tl.arange(0, BLOCK_ROWS)
    own = rows_at(q + (head * GROUP + heads) * D, heads < GROUP, D, BLOCK_D)
    far = head.to(tl.int64)
    keys, values = keys + far * k_head, values + far * v_head
    filled, pages = filled + far * every, pages + far * P
    highest = tl.full((BLOCK_ROWS,), -float("inf"), tl.float32)
    weight = tl.zeros((BLOCK_ROWS, TILE), tl.float32)
    out = tl.zeros((BLOCK_ROWS, BLOCK_D), tl.float32)
    for start in tl.range(first, last, TILE):
        place = start + row  # among the entries of the chosen pages
        page, inside = place // PAGE, place < last
        if LISTED:
            page = tl.load(pages + page, mask=inside, other=0)
        live = place % PAGE < tl.load(filled + page, mask=inside, other=0)
        place = page.to(tl.int64) * PAGE + place % PAGE
        # Keys of a chosen page do not wait for its fill count: logits of free entries are dropped.
        k = rows_at(keys + place * k_row, inside if LISTED else live, D, BLOCK_D)
        v = rows_at(values + place * v_row, live, D, BLOCK_D)
        logits = logits_of(own, k, live, factor, bound, CAPPED)
        highest, weight, out = attended(logits, v, highest, weight, out)
    H = tl.num_programs(0) * GROUP
    store_part(
        parts, highest, weight, out, split, splits, H, head * GROUP,
        GROUP, D, BLOCK_D, BLOCK_ROWS,
    )  # fmt: skip
