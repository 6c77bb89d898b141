"""Attention of a chunk with a sliding window, a soft cap or sinks, in Triton.

Each program owns a block of queries of one head and goes through the keys in their reach once;
only blocks at the edges of the band are masked. Products and sums are in float32.
`band_attention_ref.py` is the definition.
"""

import torch
from torch import Tensor

from longctx.kernels.launch import tl, triton

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
FEWEST = 16  # queries, below which the definition is as good
LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)


def refusal(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    window: int,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> str | None:
    """Why the kernel does not compute this; None if it does."""
    if q.dtype not in DTYPES or {k.dtype, v.dtype} != {q.dtype}:
        return f"it takes no {q.dtype} queries with {k.dtype} keys"
    if q.shape[-1] > 256 or v.shape[-1] != q.shape[-1]:
        return f"head dimension {q.shape[-1]} is over 256, or values have another"
    if q.shape[1] < FEWEST:
        return f"there are {q.shape[1]} queries"
    if any(x.stride(-1) != 1 for x in (q, k, v)):
        return "heads are not contiguous in their last dimension"
    if q.device.type == "cpu" and q.dtype == torch.bfloat16:
        return "Triton's interpreter multiplies no bfloat16"
    return None


def band_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    window: int,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """As defined; the output lies in memory as (T, H, D)."""
    (H, T, D), (G, S, _) = q.shape, k.shape
    out = torch.empty(T, H, D, dtype=q.dtype, device=q.device).transpose(0, 1)
    lse = torch.empty(H, T, dtype=torch.float32, device=q.device)
    tile = _tile(q)
    strides = [x.stride(at) for x in (q, k, v, out) for at in (0, 1)]
    _attend[triton.cdiv(T, tile["BLOCK_M"]), H](
        q, k, v, out, lse, q if sinks is None else sinks.contiguous(), T, S, window, *strides,
        scale, softcap or 1.0, GROUP=H // G, D=D,
        CAPS=softcap is not None, SINKS=sinks is not None, **tile,
    )  # fmt: skip
    return out, lse


def _tile(q: Tensor) -> dict[str, int]:
    """Sizes that fit shared memory and registers for the dtype and head dimension of q."""
    D = max(16, triton.next_power_of_2(q.shape[-1]))
    if q.dtype == torch.float32:  # no matrix units for exact float32: small tiles, many threads
        queries, keys, warps, stages = 32, 32, 8, 2
    elif D > 128:
        queries, keys, warps, stages = 128, 64, 8, 2
    else:
        queries, keys, warps, stages = 128, 64, 8 if D == 128 else 4, 3
    return {
        "BLOCK_M": queries, "BLOCK_N": keys, "BLOCK_D": D, "num_warps": warps, "num_stages": stages
    }  # fmt: skip


@triton.jit
def _span(
    queries, k, v, k_row, v_row, acc, highest, total, place, first, last, S, window, scale, cap,
    D: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
    CAPS: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Attends a block of queries to the keys first..last, masked where MASKED."""
    column = tl.arange(0, BLOCK_D)[None, :]
    for start in tl.range(first, last, BLOCK_N):
        key = start + tl.arange(0, BLOCK_N)
        inside = (key < S)[:, None] & (column < D)
        at = key.to(tl.int64)[:, None]
        tile = tl.load(k + at * k_row + column, mask=inside, other=0.0)
        logits = tl.dot(queries, tl.trans(tile), input_precision="ieee") * scale
        if CAPS:
            # tanh(y) = 1 - 2 / (exp(2 y) + 1)
            power = tl.exp2(tl.minimum(logits * (2.0 * LOG2E / cap), 64.0))
            logits = cap - 2.0 * cap / (power + 1.0)
        logits = logits * LOG2E  # to base 2
        if MASKED:
            seen = (key[None, :] <= place[:, None]) & (key[None, :] > place[:, None] - window)
            logits = tl.where(seen, logits, -float("inf"))
        higher = tl.maximum(highest, tl.max(logits, 1))
        base = tl.where(higher == -float("inf"), 0.0, higher)
        weights = tl.exp2(logits - base[:, None])
        shrunk = tl.exp2(highest - base)
        total = total * shrunk + tl.sum(weights, 1)
        tile = tl.load(v + at * v_row + column, mask=inside, other=0.0)
        acc = acc * shrunk[:, None]
        acc = tl.dot(weights.to(tile.dtype), tile, acc, input_precision="ieee")
        highest = higher
    return acc, highest, total


@triton.jit(do_not_specialize=["window"])
def _attend(
    q, k, v, out, lse, sinks, T, S, window, q_head, q_row, k_head, k_row, v_head, v_row,
    out_head, out_row, scale, cap,
    GROUP: tl.constexpr, D: tl.constexpr, CAPS: tl.constexpr, SINKS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    # The last queries see most: their programs begin first.
    block, head = tl.num_programs(0) - 1 - tl.program_id(0), tl.program_id(1).to(tl.int64)
    row, column = block * BLOCK_M + tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D)[None, :]
    begin = S - T + block * BLOCK_M  # position of the first query
    place = begin + tl.arange(0, BLOCK_M)
    inside = (row < T)[:, None] & (column < D)
    where = row.to(tl.int64)[:, None]
    queries = tl.load(q + head * q_head + where * q_row + column, mask=inside, other=0.0)
    k += head // GROUP * k_head
    v += head // GROUP * v_head
    # Keys from `first` to `last` are seen by some query, from `left` to `right` by all.
    last = tl.cdiv(tl.minimum(S, begin + BLOCK_M), BLOCK_N) * BLOCK_N
    first = tl.maximum(0, begin - window + 1) // BLOCK_N * BLOCK_N
    left = tl.cdiv(tl.maximum(0, begin + BLOCK_M - window), BLOCK_N) * BLOCK_N
    left = tl.minimum(tl.maximum(left, first), last)
    right = tl.maximum((begin + 1) // BLOCK_N * BLOCK_N, left)
    acc = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    highest = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    acc, highest, total = _span(
        queries, k, v, k_row, v_row, acc, highest, total, place, first, left, S, window, scale,
        cap, D, BLOCK_N, BLOCK_D, CAPS, True,
    )  # fmt: skip
    acc, highest, total = _span(
        queries, k, v, k_row, v_row, acc, highest, total, place, left, right, S, window, scale,
        cap, D, BLOCK_N, BLOCK_D, CAPS, False,
    )  # fmt: skip
    acc, highest, total = _span(
        queries, k, v, k_row, v_row, acc, highest, total, place, right, last, S, window, scale,
        cap, D, BLOCK_N, BLOCK_D, CAPS, True,
    )  # fmt: skip
    if SINKS:
        sink = tl.load(sinks + head).to(tl.float32) * LOG2E
        higher = tl.maximum(highest, sink)
        shrunk = tl.exp2(highest - higher)
        total = total * shrunk + tl.exp2(sink - higher)
        acc = acc * shrunk[:, None]
        highest = higher
    total = tl.where(total > 0, total, 1.0)  # rows beyond T
    acc = acc / total[:, None]
    tl.store(out + head * out_head + where * out_row + column, acc.to(out.dtype.element_ty), inside)
    tl.store(lse + head * T + row, (highest + tl.log2(total)) * LN2, mask=row < T)
