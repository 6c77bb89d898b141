"""Late interaction over embeddings: which passages of a document fit the question's tokens.

MaxSim of ColBERT (Khattab and Zaharia, SIGIR 2020, 3.3): each question token's best cosine in a
passage, summed over the question. Unlike ColBERT we standardise first: a token that everything
resembles tells as little as a word that occurs everywhere. Knows no method, no words and no files.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from longctx.core.contracts.memory import Rows
from longctx.core.kv.embeddings import fitting
from longctx.core.retrieve.passage_table import Passages
from longctx.kernels.door import maxsim_windows
from longctx.kernels.maxsim_windows_ref import UNIT


@dataclass(frozen=True)
class Maxima:
    """The best cosine of each question token with a token of each passage.

    With several documents, a question token keeps one column for all: its state differs by
    document, but it is the same token.

    Attributes:
        best: (P, T) float32 on any device.
    """

    best: Tensor

    @classmethod
    def joined(cls, parts: Sequence[Tensor]) -> "Maxima":
        """Joins several documents' maxima, (P_i, T) each, on the device of the first."""
        return cls(torch.cat([part.to(parts[0].device) for part in parts]))

    def scores(self, ranges: np.ndarray) -> np.ndarray:
        """Standardised MaxSim of ranges (R, 2) of passages, (R,) float64.

        Each question token's maxima are standardised over all ranges (minus the mean, divided by
        the deviation). Negative values count as 0; the rest is summed over the question.
        """
        best = _highest(self.best, ranges).double()
        if not best.numel():
            return np.zeros(len(best))
        deviation, mean = torch.std_mean(best, dim=0, correction=0)
        varies = best.amax(0) > best.amin(0)
        z = (best - mean) / torch.where(varies, deviation, 1.0) * varies
        return z.clamp_min_(0).sum(1).cpu().numpy()


def maxima(
    question: tuple[Tensor, Tensor],
    scored: Tensor,
    rows: Iterable[tuple[int, Rows]],
    passages: Passages,
) -> tuple[Tensor, int]:
    """The best cosine of the user's tokens with a token of each passage of one document.

    Args:
        question: int8 vectors (T, heads, D) and float16 scales (T, heads) of the question.
        scored: (T,) bool, the t tokens that are the user's own words.
        rows: of the document's embeddings, in order, in blocks of any size.
        passages: of the document.

    Returns:
        (P, t) float32 on the question's device, -inf where a passage has no rows; and how many rows
        there were.

    Raises:
        StateMismatch: the rows are not embeddings of these heads.
    """
    query = tuple(part[scored.to(part.device)] for part in question)
    device = query[0].device
    starts, ranges = _pieces(passages)
    best = torch.full((len(starts) - 1, len(query[0])), -torch.inf, device=device)
    count = 0
    for first, block in rows:
        vectors, scales = (part.to(device) for part in fitting(block, query[0]))
        count += len(vectors)
        low, high = _touched(starts, first, first + len(vectors))
        if low < high:
            inside = (starts[low : high + 1] - first).clamp(0, len(vectors)).to(device)
            found = maxsim_windows(vectors, scales, *query, starts=inside)
            best[low:high] = torch.maximum(best[low:high], found)
    return _highest(best, ranges), count


def _pieces(passages: Passages) -> tuple[Tensor, np.ndarray]:
    """The passages in pieces that the kernel takes.

    Returns:
        (n + 1,) int64, the first token of each piece, and the end; and the first and last piece of
        each passage, (P, 2) int64.
    """
    counts = -(-passages.lengths.astype(np.int64) // UNIT)
    last = np.cumsum(counts) - 1
    inner = np.arange(counts.sum()) - np.repeat(last - counts + 1, counts)
    starts = np.repeat(passages.tokens, counts) + UNIT * inner
    starts = np.append(starts, passages.first_tokens[-1:])
    return torch.from_numpy(starts), np.stack([last - counts + 1, last], axis=1)


def _highest(best: Tensor, ranges: np.ndarray) -> Tensor:
    """(R, T): the highest of rows (n, T) in each range (R, 2) of them."""
    first, last = torch.from_numpy(ranges).to(best.device).T
    found = best[first]
    for step in range(1, int((ranges[:, 1] - ranges[:, 0]).max(initial=0)) + 1):
        found = torch.maximum(found, best[torch.minimum(first + step, last)])
    return found


def _touched(starts: Tensor, first: int, end: int) -> tuple[int, int]:
    """The passages [low, high) that contain tokens [first, end)."""
    low = int(torch.searchsorted(starts, first, right=True)) - 1
    return max(0, low), min(int(torch.searchsorted(starts, end)), len(starts) - 1)
