"""Best int8 cosine of each question token with a token of each unit: definition.

Late interaction (ColBERT, Khattab and Zaharia, SIGIR 2020, section 3.3) before its sum: MaxSim of
one question token and one passage. A passage of two neighbouring units has the larger of their two
values.
"""

from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor

from longctx.kernels.choice import operation

UNIT = 64  # most tokens of a unit
ALONE, SHARED = 1024, 4096  # tokens at a time on a CPU: of a single thread, and of each of several
BLOCK = 1 << 15  # tokens at a time elsewhere
QUESTION = 64  # question tokens at a time


@operation
def maxsim_windows(
    vectors: Tensor, scales: Tensor, query: Tensor, query_scales: Tensor, starts: Tensor
) -> Tensor:
    """For each unit of tokens and each question token, the best int8 cosine, meaned over heads.

    Rows may come in shards of any size, whose ends may cut units. With `best` initially -inf, and
    for each shard of m rows from `first` on with tokens of units i to j:

        within = (starts[i : j + 1] - first).clamp(0, m)
        part = maxsim_windows(vectors, scales, query, query_scales, within)
        best[i:j] = torch.maximum(best[i:j], part)

    gives the same bits as one call with all rows. Units i to j may include some without a token in
    the shard.

    Args:
        vectors: int8 (n, heads, D), the tokens.
        scales: float16 (n, heads).
        query: int8 (T, heads, D), the question's tokens.
        query_scales: float16 (T, heads).
        starts: int64 (w + 1,) on the device of the vectors, ascending within 0..n; unit i is tokens
            starts[i] to starts[i + 1], at most 64.

    Returns:
        (w, T) float32; -inf where a unit is empty, nan where it is longer than 64 tokens. Equal
        units give equal bits, whatever is before and after them.
    """
    (_, heads, D), T = vectors.shape, len(query)
    best = torch.empty(len(starts) - 1, T, device=vectors.device)
    bounds = starts.tolist()
    words = query.float().transpose(0, 1)  # (heads, T, D)
    factors = query_scales.float().T[:, :, None]
    block = _block(bounds, vectors.device)
    # Allocating memory for each block would cost more than its sums.
    floats = torch.empty(block, heads, D, device=vectors.device)
    dots = torch.empty(block * heads * min(T, QUESTION), device=vectors.device)
    for i, j in _cuts(bounds, block):
        first, end = bounds[i], bounds[j]
        tokens = floats[: end - first].copy_(vectors[first:end])
        factor = scales[first:end].T.contiguous().float()[:, None]
        for t in range(0, T, QUESTION):
            asked = slice(t, t + QUESTION)
            cosines = _cosines(tokens, factor, words[:, asked], factors[:, asked], dots)
            best[i:j, asked] = _unit_max(cosines, starts[i : j + 1])
    best = best.div_(heads).add_(0.0)  # no -0.0
    return best.masked_fill_((starts.diff() > UNIT)[:, None], torch.nan)


def _block(bounds: list[int], device: torch.device) -> int:
    """Tokens at a time: as many as fit a CPU's caches, and at least the longest unit."""
    threads = torch.get_num_threads()
    block = (ALONE if threads == 1 else SHARED * threads) if device.type == "cpu" else BLOCK
    longest = max((end - start for start, end in pairwise(bounds)), default=0)
    return max(longest, min(block, bounds[-1] - bounds[0]))


def _cuts(bounds: list[int], block: int) -> Iterator[tuple[int, int]]:
    """Ranges [i, j) of units with at most `block` tokens together."""
    i = 0
    while i < len(bounds) - 1:
        j = bisect_right(bounds, bounds[i] + block) - 1
        yield i, j
        i = j


def _cosines(
    tokens: Tensor, scales: Tensor, words: Tensor, factors: Tensor, room: Tensor
) -> Tensor:
    """Sums over heads (T, n) of the cosines of question tokens with tokens, written to `room`."""
    shape = len(words), words.shape[1], len(tokens)
    # float32 holds these int32 dots exactly: |dot| <= 127 * 127 * D < 2**24 for D <= 1040
    each = room[: shape[0] * shape[1] * shape[2]].view(shape)
    torch.bmm(words, tokens.permute(1, 2, 0), out=each)
    total = each.mul_(scales).mul_(factors)[0]
    for h in range(1, len(each)):
        total += each[h]
    return total


def _unit_max(cosines: Tensor, starts: Tensor) -> Tensor:
    """Maximum (w, T) of cosines (T, n) over each unit; -inf where it is empty."""
    T, n = cosines.shape
    units = len(starts) - 1
    if n == UNIT * units and bool((starts.diff() == UNIT).all()):
        return cosines.view(T, units, UNIT).amax(2).T
    return torch.segment_reduce(cosines.T.contiguous(), "max", lengths=starts.diff(), unsafe=True)
