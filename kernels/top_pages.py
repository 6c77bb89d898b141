"""The best pages of a cache, and the stamps of those that scored enough, in Triton.

Nothing is sorted: the limit between the best and the others is found by repeatedly cutting their
range into four, and chosen pages stay in order. `top_pages_ref.py` is the definition.
"""

import torch
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from longctx.kernels.launch import starts_early, tl, triton
from longctx.kernels.top_pages_ref import Stamps

RUN, LONGEST = 2048, 8192  # pages of a program that finds its best: the usual and the most
LIST, LAST = 4096, 8192  # pages of the program that decides: runs grow to stay below; the most
MOST = 1024  # most pages that are found
STAMPED = 65536  # most pages of a head whose stamps are renewed
EACH = 256  # pages per warp of these programs, up to 32 warps
SMALL = tl.constexpr(512)  # pages of which three counts fit 32 bits
LOWEST, BEYOND = tl.constexpr(-(1 << 31)), tl.constexpr(1 << 31)


def refusal(scores: Tensor, count: int, out: Tensor | None = None) -> str | None:
    """Why the kernel does not find the best pages; None if it does."""
    P = scores.shape[1]
    if scores.dtype != torch.float32 or scores.stride(-1) != 1:
        return f"scores are {scores.dtype}, or not contiguous in their last dimension"
    if out is not None and (out.dtype != torch.int64 or out.stride(-1) != 1):
        return f"pages are {out.dtype}, or not contiguous in their last dimension"
    count = min(count, P)
    run = _run(P, count) if count > 0 else 1
    if not 0 < count <= MOST or (run < P and triton.cdiv(P, run) * count > LAST):
        return f"it finds no {count} of {P} pages"
    return None


def top_pages(scores: Tensor, count: int, out: Tensor | None = None) -> Tensor:
    """As defined."""
    (G, P), device = scores.shape, scores.device
    count = min(count, P)
    run = _run(P, count)
    runs, each = triton.cdiv(P, run), min(count, run)
    if out is None:
        out = torch.empty(G, count, dtype=torch.int64, device=device)
    if runs > 1:  # each finds its best, and a second program decides
        found = torch.empty(G, runs * each, dtype=torch.int64, device=device)
        _find(scores, found, P, each, run, runs)
        scores, P = found, runs * each
    _find(scores, out, P, count, triton.next_power_of_2(P), 1)
    return out


def _run(P: int, count: int) -> int:
    """Pages of a run; at least P if there is only one run."""
    run = RUN
    while run < P and run < LONGEST and triton.cdiv(P, run) * count > LIST:
        run *= 2
    return run


def _find(scores: Tensor, best: Tensor, P: int, count: int, block: int, runs: int) -> None:
    """The best of P scores, or of a list of scores with their pages, in each of `runs` runs."""
    early = starts_early(scores.device)
    _top[len(scores), runs](
        scores, best, P, count, scores.stride(0), best.stride(0),
        LISTED=scores.dtype == torch.int64, LIST=runs > 1, BLOCK=block,
        EARLY=early, launch_pdl=early, num_warps=_warps(block),
    )  # fmt: skip


def _warps(block: int) -> int:
    return max(1, min(32, block // EACH))


def stamp_refusal(scores: Tensor, stamps: Stamps) -> str | None:
    """Why the kernel does not renew stamps; None if it does."""
    if scores.dtype != torch.float32 or scores.stride(-1) != 1:
        return f"scores are {scores.dtype}, or not contiguous in their last dimension"
    if not scores.numel() or scores.shape[1] > STAMPED:
        return f"it stamps no {scores.shape[1]} pages of {len(scores)} heads"
    if not all(x.is_contiguous() for x in stamps[:3]):
        return "stamps or their order are not contiguous"
    if any(x.dtype != torch.int64 for x in stamps[:3]):
        return "stamps or their order are not int64"
    return None


def stamp(scores: Tensor, stamps: Stamps) -> Tensor:
    """As defined."""
    N, P = scores.shape
    early, block = starts_early(scores.device), triton.next_power_of_2(P)
    _stamp[(N,)](
        scores, *stamps[:3], P, scores.stride(0), stamps.alpha or 0.0,
        SHARES=stamps.alpha is not None, BLOCK=block,
        EARLY=early, launch_pdl=early, num_warps=_warps(block),
    )  # fmt: skip
    return stamps.stamps


@triton.jit
def _ordered(x):
    """Integers ordered like the floats; all are above LOWEST."""
    bits = tl.where(x == 0.0, 0, x.to(tl.int32, bitcast=True))  # -0.0 is 0.0
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


@triton.jit
def _reaching(values, a, b, c):
    """How many values reach each of three ascending numbers."""
    # Counted as one integer, for which one sum suffices.
    BITS: tl.constexpr = 10 if values.shape[0] <= SMALL else 21
    kind: tl.constexpr = tl.int32 if values.shape[0] <= SMALL else tl.int64
    first = (values >= a.to(tl.int32)).to(kind)
    second = (values >= b.to(tl.int32)).to(kind)
    third = (values >= c.to(tl.int32)).to(kind)
    counts = tl.sum(first | (second << BITS) | (third << (2 * BITS)), 0)
    most: tl.constexpr = (1 << BITS) - 1
    return counts & most, (counts >> BITS) & most, counts >> (2 * BITS)


@triton.jit
def _cut(values, wanted):
    """The limit between the `wanted` largest values and the others.

    Returns:
        A limit, and a number: values above the limit are among the largest, and that many of those
        equal to it, or all if there are fewer. LOWEST is not a value; there must be at least
        `wanted` others.
    """
    low, high = tl.cast(LOWEST, tl.int64), tl.cast(BEYOND, tl.int64)
    above = tl.cast(0, tl.int32)  # how many reach `high`, fewer than `wanted`
    while high - low > 1:
        step = (high - low + 3) >> 2
        a = low + step
        b = tl.minimum(a + step, high - 1)
        c = tl.minimum(b + step, high - 1)
        in_a, in_b, in_c = _reaching(values, a, b, c)
        in_a, in_b, in_c = in_a.to(tl.int32), in_b.to(tl.int32), in_c.to(tl.int32)
        up = tl.where(in_b >= wanted, c, tl.where(in_a >= wanted, b, a))
        over = tl.where(in_b >= wanted, in_c, tl.where(in_a >= wanted, in_b, in_a))
        high, above = tl.where(in_c >= wanted, high, up), tl.where(in_c >= wanted, above, over)
        low = tl.where(in_a >= wanted, a, low)
        low = tl.where(in_c >= wanted, c, tl.where(in_b >= wanted, b, low))
        # A number that exactly `wanted` values reach separates them: that is enough.
        done = (in_a == wanted) | (in_b == wanted) | (in_c == wanted)
        at = tl.where(in_c == wanted, c, tl.where(in_b == wanted, b, a))
        low, above = tl.where(done, at, low), tl.where(done, 0, above)
        high = tl.where(done, at + 1, high)
    return low.to(tl.int32), wanted - above


@triton.jit(do_not_specialize=["n", "count"])
def _top(
    scores, best, n, count, by_head, by_best,
    LISTED: tl.constexpr, LIST: tl.constexpr, BLOCK: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    if EARLY:
        gdc_wait()
        gdc_launch_dependents()
    head, run = tl.program_id(0).to(tl.int64), tl.program_id(1)
    slot = tl.arange(0, BLOCK)
    place = run * BLOCK + slot
    scores, best = scores + head * by_head, best + head * by_best + run * count
    if LISTED:  # a score and its page in one
        pair = tl.load(scores + place, mask=place < n, other=LOWEST << 32)
        value, page = (pair >> 32).to(tl.int32), pair & 0x7FFFFFFF
    else:
        score = tl.load(scores + place, mask=place < n, other=0.0)
        value, page = tl.where(place < n, _ordered(score), LOWEST), place.to(tl.int64)
    wanted = tl.minimum(count, n - run * BLOCK)
    limit, left = _cut(value, wanted)
    sure, level = value > limit, value == limit  # of ties the first are taken
    both = sure.to(tl.int32) + (level.to(tl.int32) << 12)
    before = tl.cumsum(both, 0) - both
    equal = before >> 12
    at = (before & 0xFFF) + tl.minimum(equal, left)
    chosen = sure | (level & (equal < left))
    if LIST:
        page |= value.to(tl.int64) << 32
        none = tl.full((BLOCK,), LOWEST << 32, tl.int64)
        tl.store(best + slot, none, mask=(slot < count) & (slot >= wanted))
    tl.store(best + at, page, mask=chosen)


@triton.jit
def _better_half(score, order, used):
    """Which of the pages in use are the better half, rounded up; ties by their order."""
    value = tl.where(used, _ordered(score), LOWEST)
    limit, left = _cut(value, (tl.sum(used.to(tl.int32), 0) + 1) // 2)
    level = used & (value == limit)
    worth = used & (value >= limit)
    if tl.sum(level.to(tl.int32), 0) > left:
        turn = -tl.load(order, mask=level, other=0).to(tl.int32)
        last, _ = _cut(tl.where(level, turn, LOWEST), left)  # no two are equal
        worth = worth & ((turn >= last) | (value > limit))
    return worth


@triton.jit(do_not_specialize=["P"])
def _stamp(
    scores, stamps, order, now, P, by_row, alpha,
    SHARES: tl.constexpr, BLOCK: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    if EARLY:
        gdc_wait()
        gdc_launch_dependents()
    row, page = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    score = tl.load(scores + row * by_row + page, mask=page < P, other=-float("inf"))
    used = score > -float("inf")
    if SHARES:
        top = tl.max(score, 0)
        share = tl.exp(score - tl.where(top == -float("inf"), 0.0, top))
        total = tl.sum(share, 0)
        worth = used & (tl.div_rn(share, tl.where(total > 0, total, 1.0)) >= alpha)
    else:
        worth = _better_half(score, order + row * P + page, used)
    tl.store(stamps + row * P + page, tl.load(now), mask=worth)
