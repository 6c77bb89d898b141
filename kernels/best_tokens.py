"""The tokens that attention went to, best first, in Triton.

Runs of tokens are reduced to lists of their best, and these again, until one list is left; then
each token's rank is counted. Nothing is sorted: the smallest weights of a chosen token are found by
bisection, and chosen tokens stay in their order. Nothing depends on the order of programs.
`best_tokens_ref.py` is the definition.
"""

import torch
from torch import Tensor

from longctx.kernels.launch import tl, triton
from longctx.kernels.select_window import cut

RUN, MOST = 16384, 8192  # tokens of a program, and the most of them that it keeps
POOLED = 63  # most neighbours
EACH, WARPS = 512, 16  # tokens per warp, up to so many warps
OWN, OTHERS = 64, 64  # tokens that a program ranks, and how many it compares them with at a time
UNUSED, NONE = tl.constexpr(-1), tl.constexpr(-2)  # weights of unused and of missing tokens


def refusal(weights: Tensor, count: Tensor, budget: int, pool: int) -> str | None:
    """Why the kernel does not compute this; None if it does."""
    if weights.dtype != torch.float32 or weights.stride(-1) != 1:
        return f"weights are {weights.dtype}, or not contiguous in their last dimension"
    if count.dtype not in (torch.int64, torch.int32):
        return f"it takes no {count.dtype} count"
    if not 0 < min(budget, weights.shape[1]) <= MOST or weights.shape[1] >= 1 << 30:
        return f"it chooses no {budget} of {weights.shape[1]} tokens"
    return f"a pool of {pool} is too wide" if pool > POOLED else None


def best_tokens(weights: Tensor, count: Tensor, budget: int, pool: int) -> Tensor:
    """As defined."""
    G, N = weights.shape
    K = min(budget, N)
    keys = torch.empty(G, K, dtype=torch.int64, device=weights.device)
    tokens, n = keys, N  # at first all, and no list
    while tokens is keys or n > K:
        block = min(RUN, triton.next_power_of_2(n))
        runs = triton.cdiv(n, block)
        found = torch.empty(G, runs * K, dtype=torch.int32, device=weights.device)
        _shorten[G, runs](
            weights, tokens, found, keys, count, n, N, weights.stride(0),
            K=K, POOL=pool, BLOCK=block, LISTED=tokens is not keys, LAST=runs == 1,
            num_warps=max(1, min(WARPS, block // EACH)),
        )  # fmt: skip
        tokens, n = found, runs * K
    best = torch.empty_like(keys)
    _place[G, triton.cdiv(K, OWN)](tokens, keys, best, K=K, OWN=OWN, OTHERS=OTHERS)
    return best


@triton.jit
def _bits(weights, token, used):
    """Weights as integers of the same order; UNUSED where not in use."""
    real = tl.load(weights + token, mask=used, other=0.0)
    bits = tl.where(real == 0.0, 0, real.to(tl.int32, bitcast=True))  # -0.0 is 0.0
    return tl.where(used, tl.maximum(bits, 0), UNUSED)


@triton.jit
def _pooled(weights, token, used, n, POOL: tl.constexpr):
    """The largest weight among each token's neighbours."""
    best = _bits(weights, token, used)
    for step in tl.static_range(POOL // 2):
        for sign in tl.static_range(-1, 2, 2):
            near = token + sign * (step + 1)
            best = tl.maximum(best, _bits(weights, near, used & (near >= 0) & (near < n)))
    return best


@triton.jit
def _reached(values, wanted):
    """Which values exceed the limit that `cut` finds, and which equal it; none if missing."""
    limit = cut(values, UNUSED, wanted)
    return values > limit, values == limit


# Not specialised to the number of tokens, which may be anything.
@triton.jit(do_not_specialize=["n", "N", "by_head"])
def _shorten(
    weights, tokens, found, keys, count, n, N, by_head,
    K: tl.constexpr, POOL: tl.constexpr, BLOCK: tl.constexpr, LISTED: tl.constexpr,
    LAST: tl.constexpr,
):  # fmt: skip
    """The K best of each run of all `n` tokens, or of a list of them; padded with -1."""
    head, run, runs = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    slot = tl.arange(0, BLOCK)
    token = run * BLOCK + slot
    live = token < n
    if LISTED:
        token = tl.load(tokens + head * n + token, mask=live, other=-1)
        live = token >= 0
    weights += head * by_head
    in_use = tl.minimum(tl.load(count), N).to(tl.int32)
    used = live & (token < in_use)
    pooled = tl.where(live, _pooled(weights, token, used, in_use, POOL), NONE)
    sure, level = _reached(pooled, K)
    own = tl.where(level, _bits(weights, token, used & level), NONE)
    more, level = _reached(own, K - tl.sum(sure.to(tl.int32), 0))
    sure = sure | more
    left = K - tl.sum(sure.to(tl.int32), 0)  # for ties, of which the first are taken
    both = sure.to(tl.int32) + (level.to(tl.int32) << 16)
    before = tl.cumsum(both, 0) - both
    equal = before >> 16
    at, chosen = (before & 0xFFFF) + tl.minimum(equal, left), sure | (level & (equal < left))
    found += (head * runs + run) * K
    tl.store(found + at, token, mask=chosen)
    tl.store(found + slot, -1, mask=(slot < K) & (slot >= tl.sum(live.to(tl.int32), 0)))
    if LAST:
        own = _bits(weights, token, used & chosen)
        key = (pooled.to(tl.int64) << 32) + (own.to(tl.int64) + 1)
        tl.store(keys + head * K + at, key, mask=chosen)


@triton.jit
def _place(tokens, keys, best, K: tl.constexpr, OWN: tl.constexpr, OTHERS: tl.constexpr):
    """Ranks each token after those with larger keys and earlier ones with an equal key."""
    row = tl.program_id(0).to(tl.int64) * K
    slot = tl.program_id(1) * OWN + tl.arange(0, OWN)
    mine = slot < K
    key = tl.load(keys + row + slot, mask=mine, other=0)[:, None]
    ahead = tl.zeros([OWN], tl.int32)
    for start in tl.range(0, K, OTHERS):
        other = start + tl.arange(0, OTHERS)
        there = other < K
        that = tl.load(keys + row + other, mask=there, other=-(1 << 62))[None, :]
        first = (that > key) | ((that == key) & (other[None, :] < slot[:, None]))
        ahead += tl.sum(first.to(tl.int32), 1)
    token = tl.load(tokens + row + slot, mask=mine, other=0)
    tl.store(best + row + ahead, token.to(tl.int64), mask=mine)
