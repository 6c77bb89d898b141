"""Shared by the kernels whose programs attend to parts of a cache for one token.

Each program goes through a part of one key head's entries, once for all query heads of its group,
and stores its output and log-sum-exp; a second launch merges them. Logits are to base 2 and in
float32; as in the models' own attention, weights are rounded to the inputs' dtype before they
multiply the values. Independent of where entries are.
"""

import torch
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from longctx.kernels.launch import multiprocessors, starts_early, tl, triton

COLUMNS = 32  # dimensions of a head that a program merges
MERGED = 4096  # most numbers that it merges, or from which it computes weights
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
LOG2E = tl.constexpr(1.4426950408889634)


def refusal(q: Tensor, keys: Tensor, values: Tensor) -> str | None:
    """Why the kernels refuse queries (H, 1, D) on a cache (G, C, D); None if they do not."""
    (H, T, D), G = q.shape, len(keys)
    if q.dtype not in DTYPES or {keys.dtype, values.dtype} != {q.dtype}:
        return f"it takes no {q.dtype} queries with {keys.dtype} keys and {values.dtype} values"
    if T != 1 or H % G:
        return f"there are {T} queries of {H} heads, with {G} key heads"
    if D > 256 or values.shape[-1] != D:
        return f"head dimension {max(D, values.shape[-1])} is over 256 or not that of the queries"
    if keys.stride(-1) != 1 or values.stride(-1) != 1:
        return "keys or values are not contiguous in their last dimension"
    if q.device.type == "cpu" and q.dtype == torch.bfloat16:
        return "Triton's interpreter multiplies no bfloat16"
    return None


def splits(device: torch.device, heads: int, each: int) -> int:
    """Parts of every key head, so that a multiprocessor has at most `each` programs."""
    return max(1, multiprocessors(device) * each // heads)


def tile(q: Tensor, G: int, size: int, warps: int, stages: int) -> dict[str, int]:
    """Sizes for the dtype and head dimension of q; `size` is the bytes of a step's keys."""
    BLOCK_D = max(16, triton.next_power_of_2(q.shape[-1]))
    wide = q.dtype == torch.float32  # without matrix units, products take many registers
    return {
        "TILE": min(128, max(16, size // (BLOCK_D * q.itemsize))),
        "BLOCK_D": BLOCK_D,
        "BLOCK_ROWS": max(16, triton.next_power_of_2(len(q) // G)),
        "num_warps": max(8, warps) if wide else warps,
        "num_stages": 2 if wide else stages,
    }


def factors(scale: float, softcap: float | None) -> tuple[float, float]:
    """The factors of `logits_of` on products and on bounded logits."""
    if softcap is None:
        return scale * LOG2E.value, 0.0
    return 2 * scale / softcap * LOG2E.value, softcap * LOG2E.value


def empty_parts(q: Tensor, count: int) -> Tensor:
    """Room for outputs (count, H, D), followed by log-sum-exps (count, H)."""
    H, _, D = q.shape
    return torch.empty(count * H * (D + 1), dtype=torch.float32, device=q.device)


@triton.jit
def rows_at(places, live, D: tl.constexpr, BLOCK_D: tl.constexpr):
    """(rows, BLOCK_D) from `places` on; zeros where rows are not live and beyond D."""
    columns = tl.arange(0, BLOCK_D)[None, :]
    mask = live[:, None]
    if D < BLOCK_D:
        mask = mask & (columns < D)
    return tl.load(places[:, None] + columns, mask=mask, other=0.0)


@triton.jit
def logits_of(q, k, live, factor, bound, CAPPED: tl.constexpr):
    """(query heads, entries) to base 2; -inf where entries are not live."""
    logits = tl.dot(q, tl.trans(k), input_precision="ieee") * factor
    if CAPPED:
        small = tl.exp2(-tl.abs(logits))
        capped = bound * (1.0 - small) / (1.0 + small)  # the hyperbolic tangent of |logits| / 2
        logits = tl.where(logits < 0, -capped, capped)
    return tl.where(live[None, :], logits, -float("inf"))


@triton.jit
def attended(logits, v, highest, weight, out):
    """The running softmax and its values, with one more tile of entries."""
    higher = tl.maximum(highest, tl.max(logits, 1))
    base = tl.where(higher == -float("inf"), 0.0, higher)  # no entry of this part seen yet
    shrink, p = tl.exp2(highest - base), tl.exp2(logits - base[:, None])
    weight = weight * shrink[:, None] + p
    out = tl.dot(p.to(v.dtype), v, out * shrink[:, None], input_precision="ieee")
    return higher, weight, out


@triton.jit
def store_part(
    parts, highest, weight, out, split, count, H, first,
    GROUP: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_ROWS: tl.constexpr,
):  # fmt: skip
    """Stores a part for query heads from `first` on; without entries log-sum-exps are -inf."""
    heads, columns = tl.arange(0, BLOCK_ROWS), tl.arange(0, BLOCK_D)[None, :]
    norm = tl.sum(weight, 1)
    norm = tl.where(norm > 0, norm, 1.0)
    rows, mine = split * H + first + heads, heads < GROUP
    spots = parts + rows[:, None] * D + columns
    tl.store(spots, out / norm[:, None], mask=mine[:, None] & (columns < D))
    tl.store(parts + count * H * D + rows, highest + tl.log2(norm), mask=mine)


def merged(
    q: Tensor,
    parts: Tensor,
    count: int,
    sinks: Tensor | None,
    weights: Tensor | None = None,
    logits: Tensor | None = None,
    seen: Tensor | None = None,
    window: int = 0,
) -> Tensor:
    """The attention (H, 1, D) of all parts, and the weight that each entry received.

    Args:
        q: contiguous queries (H, 1, D), for the shape and dtype of the result.
        parts: (count * H * (D + 1),), see `empty_parts`.
        sinks: (H,) or None.
        weights: (G, C) float32, written to; None: the arguments after it are not needed.
        logits: (H, C) float32 to base 2, of the visible entries.
        seen: (1,) int, how many of the first entries are visible.
        window: how many of the last of these are.
    """
    out, early = torch.empty_like(q), starts_early(q.device)
    H, _, D = q.shape
    BLOCK_P = triton.next_power_of_2(count)
    BLOCK_D = max(1, min(COLUMNS, triton.next_power_of_2(D), MERGED // BLOCK_P))
    heads = H * triton.cdiv(D, BLOCK_D)  # programs of outputs; those of weights follow
    G, C = (H, 0) if weights is None else weights.shape
    BLOCK_H = triton.next_power_of_2(H // G)
    entries = max(1, MERGED // BLOCK_H)  # of a program of weights
    _merge[(heads + G * triton.cdiv(C, entries),)](
        parts, q if sinks is None else sinks.contiguous(), out, q if weights is None else weights,
        q if logits is None else logits, q if seen is None else seen,
        count, H, heads, C, 0 if weights is None else weights.stride(0), window,
        GROUP=H // G, BLOCK_H=BLOCK_H, D=D, BLOCK_P=BLOCK_P, BLOCK_D=BLOCK_D,
        SINKS=sinks is not None, KEPT=0 if weights is None else entries,
        EARLY=early, launch_pdl=early,
    )  # fmt: skip
    return out


@triton.jit
def _lse(
    lses, sinks, count, H, heads, mine,
    SINKS: tl.constexpr, BLOCK_P: tl.constexpr,
):  # fmt: skip
    """Log-sum-exps (BLOCK_P, heads) of the parts, and (heads,) of all parts and the sinks."""
    part = tl.arange(0, BLOCK_P)[:, None]
    other = tl.where(mine, -float("inf"), 0.0)[None, :]
    live = (part < count) & mine[None, :]
    lse = tl.load(lses + part * H + heads[None, :], mask=live, other=other)
    top = tl.max(lse, 0)
    if SINKS:
        sink = tl.load(sinks + heads, mask=mine, other=0.0).to(tl.float32) * LOG2E
        top = tl.maximum(top, sink)
        return lse, top + tl.log2(tl.sum(tl.exp2(lse - top[None, :]), 0) + tl.exp2(sink - top))
    return lse, top + tl.log2(tl.sum(tl.exp2(lse - top[None, :]), 0))


@triton.jit
def _merge_head(
    parts, lses, sinks, out, count, H, h, first,
    D: tl.constexpr, SINKS: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """The output of one query head, columns from `first` on."""
    columns = first + tl.arange(0, BLOCK_D)[None, :]
    part = tl.arange(0, BLOCK_P)[:, None]
    live = (part < count) & (columns < D)
    parted = tl.load(parts + (part * H + h) * D + columns, mask=live, other=0.0)
    heads = h + tl.arange(0, 1)
    lse, whole = _lse(lses, sinks, count, H, heads, heads < H, SINKS, BLOCK_P)
    sums = tl.sum(parted * tl.exp2(lse - whole[None, :]), 0, keep_dims=True)
    tl.store(out + h * D + columns, sums.to(out.dtype.element_ty), mask=columns < D)


@triton.jit
def _finish(
    lses, sinks, logits, weights, n, window, count, H, C, head, first,
    GROUP: tl.constexpr, BLOCK_H: tl.constexpr, SINKS: tl.constexpr, KEPT: tl.constexpr,
    BLOCK_P: tl.constexpr,
):  # fmt: skip
    """The weights of a key head's entries from `first` on."""
    own, entry = tl.arange(0, BLOCK_H), first + tl.arange(0, KEPT)
    seen, heads = (entry < n) & (entry >= n - window), head * GROUP + own
    spots = logits + heads.to(tl.int64)[:, None] * C + entry[None, :]
    mask = (own < GROUP)[:, None] & seen[None, :]
    logit = tl.load(spots, mask=mask, other=-float("inf"))
    _, whole = _lse(lses, sinks, count, H, heads, own < GROUP, SINKS, BLOCK_P)
    best = tl.max(tl.exp2(logit - whole[:, None]), 0)
    tl.store(weights + entry, best, mask=entry < C)


@triton.jit(do_not_specialize=["count", "heads", "C", "window"])
def _merge(
    parts, sinks, out, weights, logits, seen, count, H, heads, C, by_head, window,
    GROUP: tl.constexpr, BLOCK_H: tl.constexpr, D: tl.constexpr, SINKS: tl.constexpr,
    KEPT: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_D: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    if EARLY:
        gdc_wait()
        gdc_launch_dependents()
    me, lses = tl.program_id(0), parts + count * H * D
    if me < heads:
        first = me // H * BLOCK_D
        _merge_head(parts, lses, sinks, out, count, H, me % H, first, D, SINKS, BLOCK_P, BLOCK_D)
    elif KEPT:
        pieces = (C + KEPT - 1) // KEPT
        head, entry = (me - heads) // pieces, (me - heads) % pieces * KEPT
        n = tl.minimum(tl.load(seen), C).to(tl.int32)
        _finish(
            lses, sinks, logits, weights + head.to(tl.int64) * by_head, n, window, count, H, C,
            head, entry, GROUP, BLOCK_H, SINKS, KEPT, BLOCK_P,
        )  # fmt: skip
