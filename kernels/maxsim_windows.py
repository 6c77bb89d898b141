"""Best int8 cosine of each question token with a token of each unit, in Triton.

Tokens are read once for up to 64 question tokens. Dot products are exact int32, and the float
operations of `maxsim_windows_ref.py` run in the same order, unfused, so that values are equal too.
"""

import torch
from torch import Tensor

from longctx.kernels import similarity_max
from longctx.kernels.launch import tl, triton
from longctx.kernels.similarity_max import counts, scaled_dots

UNIT = 64  # most tokens of a unit


def refusal(
    vectors: Tensor, scales: Tensor, query: Tensor, query_scales: Tensor, starts: Tensor
) -> str | None:
    """Why the kernel does not compute this; None if it does."""
    if starts.dtype != torch.int64:
        return f"it takes no starts of {starts.dtype}"
    return similarity_max.refusal(vectors, scales, query, query_scales)


def maxsim_windows(
    vectors: Tensor, scales: Tensor, query: Tensor, query_scales: Tensor, starts: Tensor
) -> Tensor:
    """As defined, with the values of the definition on a CPU."""
    (n, heads, D), T, units = vectors.shape, len(query), len(starts) - 1
    best = torch.empty(units, T, dtype=torch.float32, device=vectors.device)
    if not units:
        return best
    tile = _tile(D, T)
    tensors = (x.contiguous() for x in (vectors, scales, query, query_scales, starts))
    _unit_cosines[(triton.cdiv(units, tile["UNITS"]),)](
        *tensors, best, n, units, T,
        HEADS=heads, D=D, ROUNDS=triton.cdiv(T, tile["BLOCK_T"]), UNIT=UNIT, **tile,
        enable_fp_fusion=False,  # a fused multiply-add would not give the reference's values
    )  # fmt: skip
    return best


def _tile(D: int, T: int) -> dict[str, int]:
    """Sizes for heads of D entries and T question tokens, which fit registers and shared memory."""
    BLOCK_D, words = max(32, triton.next_power_of_2(D)), max(16, triton.next_power_of_2(T))
    BLOCK_T = min(64 if BLOCK_D <= 256 else 16, words)
    return {
        "BLOCK_D": BLOCK_D,
        "BLOCK_T": BLOCK_T,
        # Of a program, which reads the question once for all of them. With many words one is
        # enough: it takes as many registers as leave room for three programs.
        "UNITS": 2 if BLOCK_D <= 128 and BLOCK_T < 64 else 1,
        "COUNTING": BLOCK_T == 64 and counts(D),
        "num_warps": 4,
        "num_stages": 3 if BLOCK_D <= 256 else 2 if BLOCK_D <= 512 else 1,
    }


@triton.jit
def _unit_cosines(
    vectors, scales, query, query_scales, starts, best, n, units, T,
    HEADS: tl.constexpr, D: tl.constexpr, ROUNDS: tl.constexpr, COUNTING: tl.constexpr,
    UNITS: tl.constexpr, UNIT: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    first = tl.program_id(0).to(tl.int64) * UNITS
    rows, columns = tl.arange(0, UNITS * UNIT), tl.arange(0, BLOCK_D)
    inside = columns < D
    # Row r is token r % UNIT of unit r // UNIT; the last rows of a short unit are unused.
    unit = tl.minimum(first + rows // UNIT, units - 1)
    token = tl.load(starts + unit) + rows % UNIT
    live = token < tl.minimum(tl.load(starts + unit + 1), n)
    found = first + tl.arange(0, UNITS)
    here = found < units
    begin = tl.load(starts + found, mask=here, other=0)
    too_long = tl.load(starts + found + 1, mask=here, other=0) - begin > UNIT
    for start in tl.range(0, ROUNDS * BLOCK_T, BLOCK_T):
        asked = start + tl.arange(0, BLOCK_T)
        total = tl.zeros((UNITS * UNIT, BLOCK_T), tl.float32)
        for h in tl.range(HEADS):
            tokens = vectors + (token[:, None] * HEADS + h) * D + columns[None, :]
            words = query + (asked[:, None] * HEADS + h) * D + columns[None, :]
            row = tl.load(tokens, mask=live[:, None] & inside[None, :], other=0)
            word = tl.load(words, mask=(asked < T)[:, None] & inside[None, :], other=0)
            scale = tl.load(scales + token * HEADS + h, mask=live, other=0.0)
            factor = tl.load(query_scales + asked * HEADS + h, mask=asked < T, other=0.0)
            total += scaled_dots(row, word, scale, COUNTING) * factor.to(tl.float32)[None, :]
        total = tl.where(live[:, None], total, -float("inf"))
        highest = tl.max(tl.reshape(total, (UNITS, UNIT, BLOCK_T)), 1)
        mean = tl.div_rn(highest, tl.full((UNITS, BLOCK_T), HEADS, tl.float32))
        mean = tl.where(too_long[:, None], float("nan"), mean)
        places = best + found[:, None] * T + asked[None, :]
        tl.store(places, mean, mask=here[:, None] & (asked < T)[None, :])
