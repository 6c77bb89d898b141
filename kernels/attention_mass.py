"""Attention received by each key from the last queries of a chunk, in Triton.

Each program owns a block of keys and goes through all queries of the heads that read them, so
nothing of size queries × keys is written, and no sum depends on the order of programs. Dot products
and sums are in float32. `attention_mass_ref.py` is the definition.
"""

import torch
from torch import Tensor

from longctx.kernels.launch import tl, triton

SPAN = 2048  # most keys whose log-sum-exp one program takes; the parts are merged afterwards
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)


def refusal(
    q: Tensor,
    k: Tensor,
    scale: float,
    lse: Tensor | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> str | None:
    """Why the kernel does not compute this; None if it does."""
    if q.dtype != k.dtype or q.dtype not in DTYPES:
        return f"it takes no {q.dtype} queries with {k.dtype} keys"
    if q.shape[-1] > 256:
        return f"head dimension {q.shape[-1]} is over 256"
    if q.device.type == "cpu" and q.dtype == torch.bfloat16:
        return "Triton's interpreter multiplies no bfloat16"
    return None


def attention_mass(
    q: Tensor,
    k: Tensor,
    scale: float,
    lse: Tensor | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """As defined; without `lse` a separate pass computes the log-sum-exps first."""
    (H, W, D), (G, S, _) = q.shape, k.shape
    R = H // G * W  # rows: the queries of all heads of a group
    q = q.contiguous()
    k = k if k.stride(-1) == 1 else k.contiguous()
    tile = {"R": R, **_tile(q)}
    tile["CAPS"] = softcap is not None
    sizes = (W, S, D, k.stride(0), k.stride(1), scale, softcap or 1.0)
    if lse is None:
        lse = _log_sum_exps(q, k, sizes, tile)
        if sinks is not None:
            lse = torch.logaddexp(lse.view(H, W), sinks[:, None].to(lse.dtype))
    lse = lse.to(torch.float32).contiguous()
    mass = torch.empty(G, S, dtype=torch.float32, device=q.device)
    _mass[triton.cdiv(S, tile["BLOCK_S"]), G](q, k, lse, mass, *sizes, **tile)
    return mass


def _tile(q: Tensor) -> dict[str, int]:
    """Sizes that fit shared memory and registers for the dtype and head dimension of q."""
    D = max(16, triton.next_power_of_2(q.shape[-1]))
    if q.dtype == torch.float32:  # no matrix units for exact float32: small tiles, many threads
        rows, keys, warps = 32, 32, 8
    else:
        rows, keys, warps = 64, 128 if D <= 128 else 64, 4
    return {"BLOCK_R": rows, "BLOCK_S": keys, "BLOCK_D": D, "num_warps": warps, "num_stages": 2}


def _log_sum_exps(q: Tensor, k: Tensor, sizes: tuple, tile: dict[str, int]) -> Tensor:
    """Log-sum-exps (G, R), float32, of each query's scaled logits over the keys that it sees."""
    (G, S, _), R = k.shape, tile["R"]
    span = min(SPAN, max(tile["BLOCK_S"], triton.next_power_of_2(S)))
    parts = torch.empty(triton.cdiv(S, span), G, R, dtype=torch.float32, device=q.device)
    grid = (triton.cdiv(R, tile["BLOCK_R"]), *parts.shape[:2])
    _partial_lse[grid](q, k, parts, *sizes, SPAN=span, **tile)
    return parts.logsumexp(dim=0)


@triton.jit
def _rows(base, first, count, stride, D, BLOCK: tl.constexpr, BLOCK_D: tl.constexpr):
    """Rows first..first+BLOCK of a matrix with `count` rows of D; zeros beyond both."""
    rows, columns = first + tl.arange(0, BLOCK), tl.arange(0, BLOCK_D)
    places = base + rows.to(tl.int64)[:, None] * stride + columns[None, :]
    return tl.load(places, mask=(rows < count)[:, None] & (columns < D)[None, :], other=0.0)


@triton.jit
def _logits(queries, tile, scale, cap, CAPS: tl.constexpr):
    """Scaled and bounded logits, to base 2."""
    logits = tl.dot(queries, tile, input_precision="ieee") * (scale if CAPS else scale * LOG2E)
    if CAPS:
        # tanh(y) = 1 - 2 / (exp(2 y) + 1)
        power = tl.exp2(tl.minimum(logits * (2.0 * LOG2E / cap), 64.0))
        logits = (cap - 2.0 * cap / (power + 1.0)) * LOG2E
    return logits


@triton.jit
def _mass(
    q, k, lse, mass, W, S, D, k_head, k_row, scale, cap, CAPS: tl.constexpr,
    R: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    first, g = tl.program_id(0) * BLOCK_S, tl.program_id(1).to(tl.int64)
    keys = first + tl.arange(0, BLOCK_S)
    tile = tl.trans(_rows(k + g * k_head, first, S, k_row, D, BLOCK_S, BLOCK_D))  # (D, S)
    total = tl.zeros((BLOCK_R, BLOCK_S), tl.float32)
    for start in tl.range(0, R, BLOCK_R):
        rows = start + tl.arange(0, BLOCK_R)
        queries = _rows(q + g * R * D, start, R, D, D, BLOCK_R, BLOCK_D)
        logits = _logits(queries, tile, scale, cap, CAPS)
        # Infinity gives the rows beyond R no weight.
        norm = tl.load(lse + g * R + rows, mask=rows < R, other=float("inf")) * LOG2E
        seen = keys[None, :] <= (S - W + rows % W)[:, None]
        total += tl.exp2(tl.where(seen, logits - norm[:, None], -float("inf")))
    tl.store(mass + g * S + keys, tl.sum(total, 0), mask=keys < S)


@triton.jit
def _partial_lse(
    q, k, parts, W, S, D, k_head, k_row, scale, cap, CAPS: tl.constexpr, SPAN: tl.constexpr,
    R: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    start, part, g = tl.program_id(0) * BLOCK_R, tl.program_id(1), tl.program_id(2).to(tl.int64)
    rows = start + tl.arange(0, BLOCK_R)
    last = S - W + rows % W  # the last key that each row sees
    queries = _rows(q + g * R * D, start, R, D, D, BLOCK_R, BLOCK_D)
    highest = tl.full((BLOCK_R,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK_R,), tl.float32)
    for step in tl.range(0, SPAN, BLOCK_S):
        first = part * SPAN + step
        keys = first + tl.arange(0, BLOCK_S)
        tile = tl.trans(_rows(k + g * k_head, first, S, k_row, D, BLOCK_S, BLOCK_D))
        logits = _logits(queries, tile, scale, cap, CAPS)
        logits = tl.where(keys[None, :] <= last[:, None], logits, -float("inf"))
        higher = tl.maximum(highest, tl.max(logits, 1))
        base = tl.where(higher == -float("inf"), 0.0, higher)  # no key of this part seen yet
        total = total * tl.exp2(highest - base) + tl.sum(tl.exp2(logits - base[:, None]), 1)
        highest = higher
    # A row that saw nothing has `highest` -inf, and so is its part of the log-sum-exp.
    summed = (highest + tl.log2(tl.where(total > 0, total, 1.0))) * LN2
    heads = tl.num_programs(2)
    tl.store(parts + (part * heads + g) * R + rows, summed, mask=rows < R)
