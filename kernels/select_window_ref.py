"""From votes to the window that a chunk attends to: the definition, in PyTorch.

The most voted keys are chosen, each with its neighbours; the first tokens come before them, the
last after them (ReAttention, 2.1). All sizes are fixed and all counts are tensors, so that nothing
waits for a GPU; lists are padded.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from longctx.kernels.choice import operation


class Window(NamedTuple):
    """The tokens that a chunk attends to, in order.

    Attributes:
        tokens: (W,) int64 numbers, ascending; behind `total` of them the last one repeats.
        total: (1,) int64, how many there are.
    """

    tokens: Tensor
    total: Tensor


@operation
def select_window(
    votes: Tensor, best: Tensor, count: int, span: int, first: int, last: int, total: int | Tensor
) -> Window:
    """The tokens that a chunk attends to: the first, the most voted with neighbours, and the last.

    Args:
        votes: (N,) int32, N > 0, of the tokens between the first and the last; a token without
            votes is never chosen.
        best: (N,) float32, the highest score with which each was chosen; ties of votes go to the
            higher one, then to the earlier token.
        count: most tokens chosen by votes.
        span: tokens that each of them grows to: -span/2 .. +span/2 - 1.
        first, last: tokens at the start and at the end that are always included.
        total: tokens in all; (1,) int64 on the device where the host need not know it: then N may
            be more than there are, and no further ones have votes.

    Returns:
        Index (first + count * span + last,) int64, ascending, and how much of it is in use (1,);
        after that the last token repeats. The kernel copies nothing to the host.
    """
    if torch.is_tensor(total):
        total = int(total)
        votes, best = votes[: total - first - last], best[: total - first - last]
    chosen = most_voted(votes, best, count)
    return window(*grown(chosen, span, len(votes)), first, last, total)


def most_voted(votes: Tensor, best: Tensor, count: int) -> Tensor:
    """The keys with the most votes; ties go to the higher best score, then to the earlier key.

    Args:
        votes: (N,) int32; a key without votes is never taken.
        best: (N,) float32, the highest score with which each key was chosen.
        count: most keys.

    Returns:
        (count,) int64 ascending, padded with N.
    """
    n = len(votes)
    rank = (votes.long() << 32) + _ordered(best)
    rank = torch.where(votes > 0, rank, -1)
    cut = rank.topk(min(count, n)).values[-1]
    sure = rank > cut
    level = (rank == cut) & (votes > 0)
    chosen = sure | (level & (level.cumsum(0) <= count - sure.sum()))
    return _packed(torch.arange(n, device=votes.device), chosen, count, n)


def grown(keys: Tensor, span: int, n: int) -> tuple[Tensor, Tensor]:
    """Keys with their neighbours: -span/2 .. +span/2 - 1 of each, clamped to 0..n-1, merged.

    Args:
        keys: (K,) ascending, padded with n.
        span: tokens that a key grows to.
        n: keys in all.

    Returns:
        (K * span,) int64 ascending, padded with n, and their count (1,).
    """
    before, after = span // 2, span - span // 2 - 1
    reach = torch.arange(-before, after + 1, device=keys.device)
    tokens = keys[:, None] + reach  # (K, span)
    # Tokens that the previous key has already reached are not taken again.
    reached = torch.cat([keys.new_full((1,), -1), keys[:-1] + after])
    new = (tokens > reached[:, None]) & (tokens >= 0) & (tokens < n) & (keys < n)[:, None]
    flat, new = tokens.flatten(), new.flatten()
    return _packed(flat, new, len(flat), n), new.sum(0, keepdim=True)


def window(selected: Tensor, count: Tensor, first: int, last: int, total: int) -> Window:
    """[the first tokens | the selected ones | the last tokens] of `total` tokens.

    Args:
        selected: (K,) int64 numbers of middle tokens, counted from `first`, ascending, padded.
        count: (1,) how many are selected.
        first, last: tokens at the start and at the end that are always included.
        total: tokens in all.
    """
    slot = torch.arange(first + len(selected) + last, device=selected.device)
    middle = selected[(slot - first).clamp(0, len(selected) - 1)] + first
    local = (total - last - first - count) + slot
    index = torch.where(slot < first, slot, torch.where(slot < first + count, middle, local))
    return Window(index.clamp(max=total - 1), count + first + last)


def _packed(values: Tensor, wanted: Tensor, count: int, padding: int) -> Tensor:
    """The wanted values (at most `count`) in order at the front of (count,), then padding."""
    place = torch.where(wanted, wanted.cumsum(0) - 1, count)
    out = values.new_full((count + 1,), padding)
    return out.scatter_(0, place, values)[:count]


def _ordered(scores: Tensor) -> Tensor:
    """int64 in 0 .. 2**32 - 1, ordered like the float32 scores."""
    bits = (scores.float() + 0.0).contiguous().view(torch.int32)  # -0.0 is 0.0
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).long() + (1 << 31)
