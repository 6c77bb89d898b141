"""The exact top-k keys of every query by plain q·k, and their votes: the definition, in PyTorch.

It also runs on a CPU: keys are scanned in blocks, and nothing of size queries × keys is ever held.
Ties always go to the earlier key.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from longctx.kernels.choice import operation

RUN = 128  # consecutive keys of which one maximum is taken
KEYS = 8192  # scanned at once; a multiple of RUN
BLOCK_LOGITS = 1 << 22  # q·k at once, few enough to stay in a CPU's cache


class Top(NamedTuple):
    """The best keys of every query, and the votes of all keys.

    Attributes:
        scores: (H, T, n) q·k, descending; float32, or float64 for float64 inputs.
        keys: (H, T, n) int64, their numbers.
        votes: (N,) int32, how often each key was chosen over all heads and queries.
        best: (N,) in the dtype of scores, the highest score with which each key was chosen; -inf
            if it never was.
    """

    scores: Tensor
    keys: Tensor
    votes: Tensor
    best: Tensor


@operation
def topk_scan(
    q: Tensor, keys: Tensor, k: int, scales: Tensor | None = None, count: Tensor | None = None
) -> Top:
    """Each query's k best keys by plain q·k, exactly, and how often each key is among them.

    No scale, no position, no mask. `merge` and `count_votes` combine ranges of keys that were
    scanned separately.

    Args:
        q: position-free queries (H, T, D).
        keys: position-free keys (N, G, D) of q's dtype, or int8 with scales; query head h reads
            key head h // (H/G). The last dimension is contiguous.
        k: keys to find for each query; n = min(k, N) are found.
        scales: (N, G) float16; a key is its int8 entries times its scale. None: keys are floats.
        count: (1,) int64 on the device, how many of the first keys there are, k or more; the host
            need not know it. None: all N.

    Returns:
        The best keys, the earlier first on ties, and their votes. Products of half-precision inputs
        are float32.
    """
    room = len(keys)
    if count is not None:
        there = slice(int(count))
        keys, scales = keys[there], None if scales is None else scales[there]
    (H, T, D), (N, G, _) = q.shape, keys.shape
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    grouped = q.reshape(G, H // G * T, D)
    rows = max(1, BLOCK_LOGITS // (G * max(1, min(N, KEYS))))
    scores = q.new_empty(*grouped.shape[:2], min(k, N), dtype=wide)
    index = torch.empty_like(scores, dtype=torch.int64)
    for start in range(0, grouped.shape[1], rows):
        part = slice(start, start + rows)
        scores[:, part], index[:, part] = _scan(grouped[:, part].to(wide), keys, k, scales)
    found = scores.view(H, T, -1), index.view(H, T, -1)
    return Top(*found, *count_votes(*found, room))


def count_votes(scores: Tensor, index: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Counts how often each of n keys was chosen, and finds its best score.

    Args:
        scores: of the chosen keys, any shape.
        index: the chosen keys, of that shape.
        n: keys in all.

    Returns:
        `votes` and `best` of `Top`.
    """
    votes = torch.bincount(index.flatten(), minlength=n).int()
    never = scores.new_full((n,), -torch.inf)
    return votes, never.scatter_reduce(0, index.flatten(), scores.flatten(), "amax")


def merge(
    first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor], k: int
) -> tuple[Tensor, Tensor]:
    """The k best of the best keys of two ranges.

    Args:
        first: scores and index (..., n) of the earlier range, as in `Top`.
        second: the same of the later range; its index has the same origin as first's.
        k: keys to keep.

    Returns:
        Scores and index (..., min(k, both)).
    """
    scores = torch.cat([first[0], second[0]], dim=-1)
    index = torch.cat([first[1], second[1]], dim=-1)
    scores, places = _best(scores, k)
    return scores, index.gather(-1, places)


def _scan(q: Tensor, keys: Tensor, k: int, scales: Tensor | None) -> tuple[Tensor, Tensor]:
    """Scores and index (G, R, min(k, N)) of the best keys of queries (G, R, D)."""
    best = q.new_empty(*q.shape[:2], 0), q.new_empty(*q.shape[:2], 0).long()
    for start in range(0, len(keys), KEYS):
        block = keys[start : start + KEYS].to(q.dtype)
        if scales is not None:  # exact in float32: 7 bits by 11
            block.mul_(scales[start : start + KEYS, :, None].to(q.dtype))
        scores, index = _best_of_runs(torch.matmul(q, block.permute(1, 2, 0)), k)
        best = merge(best, (scores, index + start), k)
    return best


def _best_of_runs(logits: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Scores and places (G, R, min(k, n)) of the best of n consecutive keys; logits (G, R, n).

    They are in the k runs with the largest maxima, ties going to the earlier run: a key of another
    run is beaten by the maxima of k runs, each of them larger, or equal and earlier.
    """
    n = logits.shape[-1]
    if n % RUN:
        logits = F.pad(logits, (0, -n % RUN), value=-torch.inf)
    runs = logits.unflatten(-1, (-1, RUN))
    _, chosen = _best(runs.amax(dim=-1), k)
    chosen = chosen.sort(dim=-1).values  # so that the earlier key comes first
    scores = runs.gather(-2, chosen[..., None].expand(-1, -1, -1, RUN)).flatten(-2)
    scores, places = _best(scores, min(k, n))
    return scores, chosen.gather(-1, places // RUN) * RUN + places % RUN


def _best(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Values and places of the k largest entries, descending; ties go to the first.

    `topk` and `sort` leave the order of ties open, or sort everything; the maximum along a
    dimension is documented to be the first.
    """
    scores, found = scores.clone(), []
    for _ in range(min(k, scores.shape[-1])):
        found.append(scores.max(dim=-1, keepdim=True))
        scores.scatter_(-1, found[-1].indices, -torch.inf)
    if not found:
        return scores[..., :0], scores[..., :0].long()
    values, places = zip(*found, strict=True)
    return torch.cat(values, dim=-1), torch.cat(places, dim=-1)
