"""Attention of one token to a list of selected keys, rotated to their places, in Triton.

Each program reads a part of the list for a few key heads, once for all query heads of their groups;
nothing is gathered or rotated beforehand. The parts are merged by their log-sum-exps. Rotation,
logits and sums are in float32; as in the models' own attention, half-precision products use rotated
queries, keys and weights rounded to the inputs' dtype.
`selected_attention_ref.py` is the definition.
"""

import torch
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from longctx.kernels.launch import starts_early, tl, triton

PROGRAMS = 256  # most programs of a call, up to a factor of two: about two per multiprocessor
PACK = 1  # most key heads of a program, whose queries share the rows of a product
TILE, WARPS, STAGES = 32, 4, 5  # rows (keys of all its heads) of a step; index and keys ahead
RESIDENT = 4  # programs whose registers must fit a multiprocessor
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
LOG2E = tl.constexpr(1.4426950408889634)


def refusal(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    index: Tensor,
    total: Tensor,
    scale: float,
    cos: Tensor | None = None,
    sin: Tensor | None = None,
    key_scales: Tensor | None = None,
    gathered: bool = False,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> str | None:
    """Why the kernel does not compute this; None if it does. It supports no soft cap or sinks."""
    (_, T, D), R = q.shape, 0 if cos is None else cos.shape[-1]
    kinds = (torch.int8, torch.float16) if key_scales is not None else (q.dtype, torch.float16)
    given = (keys.dtype, torch.float16 if key_scales is None else key_scales.dtype)
    unknown = {"softcap": softcap, "sinks": sinks}
    if unknown := [name for name, value in unknown.items() if value is not None]:
        return f"it knows no {' and no '.join(unknown)}"
    if q.dtype not in DTYPES or given != kinds or values.dtype != q.dtype:
        return f"it takes no {q.dtype} queries with {keys.dtype} keys and {values.dtype} values"
    if index.dtype != torch.int64 or total.dtype not in (torch.int64, torch.int32):
        return f"it takes no {index.dtype} index and {total.dtype} total"
    if T != 1:
        return f"there are {T} queries of a head"
    if D > 256 or values.shape[-1] != D:
        return f"head dimension {max(D, values.shape[-1])} is over 256 or not that of the queries"
    if (cos is None) != (sin is None) or R % 2 or R > D:
        return f"it does not rotate {R} of {D} dimensions"
    if keys.stride(-1) != 1 or values.stride(-1) != 1:
        return "keys or values are not contiguous in their last dimension"
    if q.device.type == "cpu" and q.dtype == torch.bfloat16:
        return "Triton's interpreter multiplies no bfloat16"
    return None


def selected_attention(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    index: Tensor,
    total: Tensor,
    scale: float,
    cos: Tensor | None = None,
    sin: Tensor | None = None,
    key_scales: Tensor | None = None,
    gathered: bool = False,
    softcap: None = None,
    sinks: None = None,
) -> Tensor:
    """As defined."""
    (H, _, D), G, S = q.shape, keys.shape[1], len(index)
    R = 0 if cos is None else cos.shape[-1]
    tile = _tile(q, G, R)
    blocks, tokens = G // tile["PACK"], tile["TILE"] // tile["PACK"]
    steps = triton.next_power_of_2(triton.cdiv(S, tokens * max(1, PROGRAMS // blocks)))
    splits = triton.cdiv(S, tokens * steps)
    q = q.contiguous()
    cos, sin = (q if x is None else x.contiguous() for x in (cos, sin))
    scales = q if key_scales is None else key_scales
    early = starts_early(q.device)
    # Outputs (splits, H, D), followed by log-sum-exps (splits, H).
    parts = torch.empty(splits * H * (D + 1), dtype=torch.float32, device=q.device)
    _attend[blocks, splits](
        q, keys, values, index.contiguous(), total, cos, sin, scales, parts,
        S, *keys.stride()[:2], *values.stride()[:2], *scales.stride()[:2], scale * LOG2E.value,
        GROUP=H // G, D=D, R=R, STEPS=steps, SCALED=key_scales is not None, GATHERED=gathered,
        EARLY=early, launch_pdl=early, **tile,
    )  # fmt: skip
    out = torch.empty_like(q)
    BLOCK_D = min(32, triton.next_power_of_2(D))
    _merge[H, triton.cdiv(D, BLOCK_D)](
        parts, out, splits, D, BLOCK_P=triton.next_power_of_2(splits), BLOCK_D=BLOCK_D,
        EARLY=early, launch_pdl=early,
    )  # fmt: skip
    return out


def _tile(q: Tensor, G: int, R: int) -> dict[str, int]:
    """Sizes that fit registers for the dtype and head dimension of q, R dimensions rotated."""
    D, group = q.shape[-1], len(q) // G
    small = triton.next_power_of_2(D) <= 128 and q.dtype != torch.float32
    pack = PACK
    while G % pack or pack * group > 16:
        if pack == 1:
            break
        pack //= 2
    return {
        "PACK": pack,
        "TILE": TILE if small else 32,
        "BLOCK_D": max(16, triton.next_power_of_2(D)),
        "BLOCK_HALF": max(16, triton.next_power_of_2(max(1, R // 2))),
        "BLOCK_REST": max(16, triton.next_power_of_2(max(1, D - R))),
        "BLOCK_ROWS": max(16, triton.next_power_of_2(pack * group)),
        "num_warps": WARPS if small else 8,
        "num_stages": STAGES if small else 2,
        "maxnreg": min(255, 65536 // (RESIDENT * WARPS * 32)) if small else 255,
    }


@triton.jit
def _columns(places, first, count: tl.constexpr, BLOCK: tl.constexpr, live=None):
    """`count` columns from `first` on of the rows at `places`; zeros where rows are not live."""
    columns = tl.arange(0, BLOCK)[None, :]
    spots = places[:, None] + first + columns
    if live is None and count == BLOCK:
        return tl.load(spots)
    mask = columns < count
    if live is not None:
        mask = mask & live[:, None]
    return tl.load(spots, mask=mask, other=0)


@triton.jit
def _repeated(x, COUNT: tl.constexpr):
    """Each row of x, repeated COUNT times."""
    if COUNT == 1:
        return x
    shape: tl.constexpr = (x.shape[0], COUNT, x.shape[1])
    return tl.reshape(tl.broadcast_to(x[:, None, :], shape), (x.shape[0] * COUNT, x.shape[1]))


@triton.jit
def _rotated(x, cos, sin, at, R: tl.constexpr, COUNT: tl.constexpr, BLOCK: tl.constexpr, live=None):
    """Halves of the first R columns of rows x, in float32, `COUNT` rows rotated to each of `at`."""
    HALF: tl.constexpr = R // 2
    turn = at.to(tl.int64) * R
    c = _repeated(_columns(cos + turn, 0, HALF, BLOCK), COUNT).to(tl.float32)
    s = _repeated(_columns(sin + turn, 0, HALF, BLOCK), COUNT).to(tl.float32)
    low = _columns(x, 0, HALF, BLOCK, live).to(tl.float32)
    high = _columns(x, HALF, HALF, BLOCK, live).to(tl.float32)
    return low * c - high * s, high * c + low * s


@triton.jit
def _dots(x, y, sums, dtype: tl.constexpr):
    """sums + the dot products of rows (x, y), of x and y in `dtype`, summed in float32."""
    return tl.dot(x.to(dtype), tl.trans(y.to(dtype)), sums, input_precision="ieee")


@triton.jit
def _attend(
    q, keys, values, index, total, cos, sin, key_scales, parts,
    S, k_row, k_head, v_row, v_head, s_row, s_head, factor,
    GROUP: tl.constexpr, D: tl.constexpr, R: tl.constexpr, STEPS: tl.constexpr,
    SCALED: tl.constexpr, GATHERED: tl.constexpr, EARLY: tl.constexpr, PACK: tl.constexpr,
    TILE: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_HALF: tl.constexpr,
    BLOCK_REST: tl.constexpr, BLOCK_ROWS: tl.constexpr,
):  # fmt: skip
    if EARLY:
        gdc_wait()
        gdc_launch_dependents()
    first, split = tl.program_id(0) * PACK, tl.program_id(1)
    dtype: tl.constexpr = q.dtype.element_ty
    TOKENS: tl.constexpr = TILE // PACK
    heads, count = tl.arange(0, BLOCK_ROWS), tl.minimum(tl.load(total), S).to(tl.int32)
    mine = heads < GROUP * PACK
    own = q + (first * GROUP + heads) * D
    last = tl.maximum(count - 1, 0) + tl.arange(0, 1)
    q_low, q_high = _rotated(own, cos, sin, last, R, 1, BLOCK_HALF, mine) if R else (own, own)
    if R:
        q_low, q_high = q_low.to(dtype), q_high.to(dtype)
    q_rest = _columns(own, R, D - R, BLOCK_REST, mine) if R < D else own
    # A row of a tile is one token's key of one head; a query head counts those of its own head.
    token, head = tl.arange(0, TILE) // PACK, first + tl.arange(0, TILE) % PACK
    theirs = (first + heads // GROUP)[:, None] == head[None, :]
    key_heads, value_heads = keys + head.to(tl.int64) * k_head, values + head.to(tl.int64) * v_head
    highest = tl.full((BLOCK_ROWS,), -float("inf"), tl.float32)
    weight = tl.zeros((BLOCK_ROWS, TILE), tl.float32)
    out = tl.zeros((BLOCK_ROWS, BLOCK_D), tl.float32)
    for step in tl.range(STEPS):
        start = (split * STEPS + step) * TOKENS
        places = start + token
        live = places < count
        rows = tl.load(index + places, mask=places < S, other=0)  # does not wait for the count
        rows = tl.where(live, rows.to(tl.int32), 0).to(tl.int64)  # 32 bits compare faster
        key = key_heads + rows * k_row
        if GATHERED:
            value = value_heads + places.to(tl.int64) * v_row
        else:
            value = value_heads + rows * v_row
        v = _columns(value, 0, D, BLOCK_D, live)
        logits = tl.zeros((BLOCK_ROWS, TILE), tl.float32)
        if R:
            at = tl.minimum(start + tl.arange(0, TOKENS), S - 1)
            low, high = _rotated(key, cos, sin, at, R, PACK, BLOCK_HALF)
            logits = _dots(q_low, low, logits, dtype)
            logits = _dots(q_high, high, logits, dtype)
        if R < D:
            logits = _dots(q_rest, _columns(key, R, D - R, BLOCK_REST), logits, dtype)
        if SCALED:
            scale = tl.load(key_scales + rows * s_row + head * s_head, mask=live, other=0.0)
            logits *= scale.to(tl.float32)[None, :]
        logits = tl.where(theirs & live[None, :], logits * factor, -float("inf"))  # to base 2
        higher = tl.maximum(highest, tl.max(logits, 1))
        base = tl.where(higher == -float("inf"), 0.0, higher)  # no key of this part seen yet
        shrink, p = tl.exp2(highest - base), tl.exp2(logits - base[:, None])
        weight = weight * shrink[:, None] + p
        out = _dots(p, tl.trans(v), out * shrink[:, None], dtype)
        highest = higher
    # A part without keys has log-sum-exp -inf.
    norm = tl.sum(weight, 1)
    norm = tl.where(norm > 0, norm, 1.0)
    H = tl.num_programs(0) * PACK * GROUP
    rows = (split * H + first * GROUP + heads).to(tl.int64)
    columns = tl.arange(0, BLOCK_D)[None, :]
    spots = parts + rows[:, None] * D + columns
    tl.store(spots, out / norm[:, None], mask=mine[:, None] & (columns < D))
    lses = parts + tl.num_programs(1).to(tl.int64) * H * D
    tl.store(lses + rows, highest + tl.log2(norm), mask=mine)


@triton.jit(do_not_specialize=["splits"])
def _merge(
    parts, out, splits, D,
    BLOCK_P: tl.constexpr, BLOCK_D: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    if EARLY:
        gdc_wait()
        gdc_launch_dependents()
    h, H = tl.program_id(0), tl.num_programs(0)
    columns = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
    rows = tl.arange(0, BLOCK_P) * H + h
    live = tl.arange(0, BLOCK_P) < splits
    lse = tl.load(parts + splits * H * D + rows, mask=live, other=-float("inf"))
    spots = parts + rows[:, None] * D + columns[None, :]
    part = tl.load(spots, mask=live[:, None] & (columns < D)[None, :], other=0.0)
    share = tl.exp2(lse - tl.max(lse, 0))
    merged = tl.sum(part * share[:, None], 0) / tl.sum(share, 0)
    tl.store(out + h * D + columns, merged.to(out.dtype.element_ty), mask=columns < D)
