"""From votes to the window that a chunk attends to, in Triton.

Runs of keys are reduced to lists of their best, and these again, until one program can hold the
rest; it chooses among them and writes the window. Nothing is sorted: the fewest votes of a chosen
key, and between equal votes the lowest score, are found by bisection, and chosen keys stay in their
order. Nothing depends on the order of programs. `select_window_ref.py` is the definition.
"""

import torch
from torch import Tensor

from longctx.kernels.launch import tl, triton
from longctx.kernels.select_window_ref import Window

RUN, LAST = 16384, 8192  # entries of a program that reduces, and of the one that writes
WARPS = 16  # of either
MOST = 1024  # most keys that are chosen
GROWN = 1 << 15  # most tokens they grow to, count and span rounded up to powers of two
TILE = 4096  # entries of the window written at a time
LOWEST, HIGHEST = tl.constexpr(-(1 << 31)), tl.constexpr((1 << 31) - 1)


def refusal(
    votes: Tensor, best: Tensor, count: int, span: int, first: int, last: int, total: int | Tensor
) -> str | None:
    """Why the kernel does not compute this; None if it does."""
    if torch.is_tensor(total) and total.dtype != torch.int64:
        return f"it takes no {total.dtype} total"
    if (votes.dtype, best.dtype) != (torch.int32, torch.float32):
        return f"it takes no {votes.dtype} votes with {best.dtype} scores"
    if not (votes.is_contiguous() and best.is_contiguous()):
        return "votes or scores are not contiguous"
    if not 0 < len(votes) < 1 << 31 or count < 1 or span < 1:
        return f"it chooses no {count} of {len(votes)} keys, with spans of {span}"
    if count > MOST or _padded(count) * _padded(span) > GROWN:
        return f"{count} spans of {span} are too many"
    return None


def select_window(
    votes: Tensor, best: Tensor, count: int, span: int, first: int, last: int, total: int | Tensor
) -> Window:
    """As defined."""
    moved = torch.is_tensor(total)
    keys, n = _shortened(votes, best, count)
    index = torch.empty(first + count * span + last, dtype=torch.int64, device=votes.device)
    in_use = torch.empty(1, dtype=torch.int64, device=votes.device)
    _write_window[(1,)](
        votes, best, keys, index, in_use, n, len(votes), total,
        COUNT=count, SPAN=span, HEAD=first, TAIL=last, SLOTS=_padded(count), REACH=_padded(span),
        ENTRIES=LAST, TILE=TILE, MOVED=moved, num_warps=WARPS,
    )  # fmt: skip
    return Window(index, in_use)


def _shortened(votes: Tensor, best: Tensor, count: int) -> tuple[Tensor, int]:
    """Candidate keys that include the `count` best, and how many there are, at most LAST.

    (n + count's power of two,) int32, ascending with -1 between them; the end is left as scratch
    space.
    """
    slots, n, keys = _padded(count), len(votes), None
    while keys is None or n > LAST:
        runs = triton.cdiv(n, RUN)
        found = torch.empty((runs + 1) * slots, dtype=torch.int32, device=votes.device)
        _shorten[(runs,)](
            votes, best, found if keys is None else keys, found, n,
            COUNT=count, SLOTS=slots, ENTRIES=RUN, LISTED=keys is not None, num_warps=WARPS,
        )  # fmt: skip
        n, keys = runs * slots, found
    return keys, n


def _padded(count: int) -> int:
    return triton.next_power_of_2(count)


@triton.jit
def cut(values, least, wanted):
    """A number that at least `wanted` values reach and fewer exceed.

    It is `least` if no more than `wanted` values reach that.
    """
    low = tl.cast(least, tl.int64)
    enough = tl.sum((values >= least).to(tl.int32), 0)
    high = tl.where(enough <= wanted, low, tl.max(values, 0).to(tl.int64))
    while low < high:
        middle = low + ((high - low + 1) >> 1)
        count = tl.sum((values >= middle.to(tl.int32)).to(tl.int32), 0)
        # A number that exactly `wanted` values reach separates them: that is enough.
        high = tl.where(count == wanted, middle, tl.where(count > wanted, high, middle - 1))
        low = tl.where(count >= wanted, middle, low)
    return low.to(tl.int32)


@triton.jit
def _chosen(count, best, key, COUNT: tl.constexpr):
    """Which keys are the best ones with votes, and how many of these precede each."""
    limit = cut(count, 1, COUNT)
    sure, level = count > limit, count == limit
    real = tl.load(best + key, mask=level, other=0.0)
    bits = tl.where(real == 0.0, 0, real.to(tl.int32, bitcast=True))  # -0.0 is 0.0
    score = tl.where(level, tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits), LOWEST)
    least = tl.min(tl.where(level, score, HIGHEST), 0)
    limit = cut(score, least, COUNT - tl.sum(sure.to(tl.int32), 0))
    sure, level = sure | (score > limit), level & (score == limit)
    left = COUNT - tl.sum(sure.to(tl.int32), 0)  # for ties, of which the first are taken
    both = sure.to(tl.int32) + (level.to(tl.int32) << 16)
    before = tl.cumsum(both, 0) - both
    equal = before >> 16
    return sure | (level & (equal < left)), (before & 0xFFFF) + tl.minimum(equal, left)


# Not specialised to the number of keys, which changes with every call.
@triton.jit(do_not_specialize=["n"])
def _shorten(
    votes, best, keys, found, n,
    COUNT: tl.constexpr, SLOTS: tl.constexpr, ENTRIES: tl.constexpr, LISTED: tl.constexpr,
):  # fmt: skip
    key = tl.program_id(0) * ENTRIES + tl.arange(0, ENTRIES)
    live = key < n
    if LISTED:
        key = tl.load(keys + key, mask=live, other=-1)
        live = key >= 0
    count = tl.load(votes + key, mask=live, other=0)
    voted = tl.sum((count > 0).to(tl.int32), 0)
    found += tl.program_id(0) * SLOTS
    slot = tl.arange(0, SLOTS)
    tl.store(found + slot, -1, mask=slot >= tl.minimum(voted, COUNT))
    if voted > 0:  # few runs have votes when one token is decoded
        chosen, at = _chosen(count, best, key, COUNT)
        tl.store(found + at, key, mask=chosen)


@triton.jit(do_not_specialize=["n", "N", "total"])
def _write_window(
    votes, best, keys, index, in_use, n, N, total,
    COUNT: tl.constexpr, SPAN: tl.constexpr, HEAD: tl.constexpr, TAIL: tl.constexpr,
    SLOTS: tl.constexpr, REACH: tl.constexpr, ENTRIES: tl.constexpr, TILE: tl.constexpr,
    MOVED: tl.constexpr,
):  # fmt: skip
    if MOVED:
        total = tl.load(total).to(tl.int32)
        N = total - HEAD - TAIL
    place = tl.arange(0, ENTRIES)
    key = tl.load(keys + place, mask=place < n, other=-1)
    count = tl.load(votes + key, mask=key >= 0, other=0)
    chosen, at = _chosen(count, best, key, COUNT)
    # The chosen keys, ascending, move from the registers of many threads to one row.
    room = keys + n
    tl.store(room + at, key, mask=chosen)
    tl.debug_barrier()
    slot = tl.arange(0, SLOTS)
    used = slot < tl.sum(chosen.to(tl.int32), 0)
    key = tl.load(room + slot, mask=used, other=0)
    before = tl.load(room + slot - 1, mask=used & (slot > 0), other=0)

    after: tl.constexpr = SPAN - SPAN // 2 - 1
    reached = tl.where(slot > 0, before + after, -1)  # by the span before
    start = tl.maximum(tl.maximum(key - SPAN // 2, reached + 1), 0)
    new = tl.minimum(key + after, N - 1) - start + 1
    new = tl.where(used, tl.maximum(new, 0), 0)
    offset, selected = tl.cumsum(new, 0) - new, tl.sum(new, 0)
    along = tl.arange(0, REACH)[None, :]
    token = tl.minimum(HEAD + start[:, None] + along, total - 1)
    tl.store(index + HEAD + offset[:, None] + along, token.to(tl.int64), mask=along < new[:, None])

    width: tl.constexpr = HEAD + COUNT * SPAN + TAIL
    for done in tl.range(0, width, TILE):
        spot = done + tl.arange(0, TILE)
        local = total - TAIL - HEAD - selected + spot
        outer = tl.minimum(tl.where(spot < HEAD, spot, local), total - 1)
        outside = (spot < HEAD) | (spot >= HEAD + selected)
        tl.store(index + spot, outer.to(tl.int64), mask=outside & (spot < width))
    tl.store(in_use, (HEAD + selected + TAIL).to(tl.int64))
