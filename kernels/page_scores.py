"""How well each page of a cache may fit a token, in Triton.

Bounds are two products on the matrix units, one with the positive part of the queries and one with
the negative part. `page_scores_ref.py` is the definition.
"""

import torch
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from longctx.kernels import split_attention as split_module
from longctx.kernels.launch import starts_early, tl, triton
from longctx.kernels.split_attention import rows_at

PROGRAMS = 3  # per multiprocessor
SIZE, WARPS, STAGES = 16384, 4, 3  # bytes of a step's lower bounds, and the same of upper ones


def refusal(
    q: Tensor,
    low: Tensor,
    high: Tensor,
    filled: Tensor,
    scale: float,
    always: Tensor | None = None,
    out: Tensor | None = None,
) -> str | None:
    """Why the kernel does not compute bounds; None if it does."""
    if filled.dtype != torch.int32 or not filled.numel():
        return f"it takes no {filled.dtype} filling of {filled.shape[1]} pages"
    if always is not None and always.dtype != torch.int64:
        return f"it takes no {always.dtype} page"
    if out is not None and out.dtype != torch.float32:
        return f"it gives no {out.dtype} scores"
    if any(x is not None and x.stride(-1) != 1 for x in (filled, out)):
        return "the filling or the scores are not contiguous in their last dimension"
    return split_module.refusal(q, low, high)


def page_scores(
    q: Tensor,
    low: Tensor,
    high: Tensor,
    filled: Tensor,
    scale: float,
    always: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """As defined."""
    (H, _, D), (G, P, _), q = q.shape, low.shape, q.contiguous()
    tile, early = split_module.tile(q, G, SIZE, WARPS, STAGES), starts_early(q.device)
    splits = min(split_module.splits(q.device, G, PROGRAMS), triton.cdiv(P, tile["TILE"]))
    scores = torch.empty(G, P, dtype=torch.float32, device=q.device) if out is None else out
    _score[G, splits](
        q, low, high, filled, scores, filled if always is None else always, P,
        *low.stride()[:2], *high.stride()[:2], filled.stride(0), scores.stride(0), scale,
        GROUP=H // G, D=D, ALWAYS=always is not None, EARLY=early, launch_pdl=early, **tile,
    )  # fmt: skip
    return scores


@triton.jit(do_not_specialize=["P"])
def _score(
    q, low, high, filled, scores, always, P, l_head, l_page, h_head, h_page, f_head, s_head, scale,
    GROUP: tl.constexpr, D: tl.constexpr, ALWAYS: tl.constexpr, EARLY: tl.constexpr,
    TILE: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_ROWS: tl.constexpr,
):  # fmt: skip
    if EARLY:
        gdc_wait()
        gdc_launch_dependents()
    head, split, splits = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    heads, far = tl.arange(0, BLOCK_ROWS), head.to(tl.int64)
    mine = (heads < GROUP)[:, None]
    own = rows_at(q + (head * GROUP + heads) * D, heads < GROUP, D, BLOCK_D)
    rising, falling = tl.maximum(own, 0.0).to(own.dtype), tl.minimum(own, 0.0).to(own.dtype)
    low, high = low + far * l_head, high + far * h_head
    filled, scores = filled + far * f_head, scores + far * s_head
    sure = tl.load(always) if ALWAYS else -1
    tiles = (P + TILE - 1) // TILE
    for tile in tl.range(split * tiles // splits, (split + 1) * tiles // splits):
        page = tile * TILE + tl.arange(0, TILE)
        inside = page < P
        used = tl.load(filled + page, mask=inside, other=0) > 0
        place = page.to(tl.int64)
        above = rows_at(high + place * h_page, inside, D, BLOCK_D)
        below = rows_at(low + place * l_page, inside, D, BLOCK_D)
        bound = tl.dot(rising, tl.trans(above), input_precision="ieee")
        bound = tl.dot(falling, tl.trans(below), bound, input_precision="ieee")
        best = tl.max(tl.where(mine, bound, -float("inf")), 0) * scale
        best = tl.where(used, best, -float("inf"))
        if ALWAYS:
            best = tl.where(page == sure, float("inf"), best)
        tl.store(scores + page, best, mask=inside)
