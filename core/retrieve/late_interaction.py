"""Late interaction over embeddings: which windows of a document fit the question's tokens.

MaxSim of ColBERT (Khattab and Zaharia, SIGIR 2020, 3.3): each question token's best cosine in a
stretch, summed over the question. Unlike ColBERT we standardise first: a token that everything
resembles tells as little as a word that occurs everywhere. Knows no method, no words and no files.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from longctx.core.contracts.memory import Rows
from longctx.core.kv.embeddings import fitting
from longctx.core.retrieve.unit_table import Units
from longctx.kernels.door import maxsim_windows


@dataclass(frozen=True)
class Maxima:
    """The best cosine of each question token with a token of each unit.

    With several documents, a question token keeps one column for all: its state differs by
    document, but it is the same token.

    Attributes:
        units: of the documents, one after another.
        best: (U, T) float32 on any device.
    """

    units: Units
    best: Tensor

    @classmethod
    def joined(cls, units: Units, parts: Sequence[Tensor]) -> "Maxima":
        """Joins several documents' maxima, (U_i, T) each, on the device of the first."""
        return cls(units, torch.cat([part.to(parts[0].device) for part in parts]))

    def scores(self, width: int) -> np.ndarray:
        """Standardised MaxSim of each stretch of `width` units, (S,) float64; see `Units.spans`.

        Each question token's maxima are standardised over all stretches (minus the mean, divided by
        the deviation). Negative values count as 0; the rest is summed over the question.
        """
        kept = torch.from_numpy(self.units.spans(width)[:, 0]).to(self.best.device)
        best = self._stretched(width)[kept].double()
        if not best.numel():
            return np.zeros(len(best))
        deviation, mean = torch.std_mean(best, dim=0, correction=0)
        varies = best.amax(0) > best.amin(0)
        z = (best - mean) / torch.where(varies, deviation, 1.0) * varies
        return z.clamp_min_(0).sum(1).cpu().numpy()

    def _stretched(self, width: int) -> Tensor:
        """(U, T): the maxima over each unit and those after it, within its source."""
        best, reached = self.best, 1
        ends = torch.from_numpy(self.units.ends).to(best.device)
        places = torch.arange(len(best), device=best.device)
        while reached < width:
            step = min(reached, width - reached)
            best = torch.maximum(best, best[torch.minimum(places + step, ends)])
            reached += step
        return best


def maxima(
    question: tuple[Tensor, Tensor], scored: Tensor, rows: Iterable[tuple[int, Rows]], units: Units
) -> tuple[Tensor, int]:
    """The best cosine of the user's tokens with a token of each unit of one document.

    Args:
        question: int8 vectors (T, heads, D) and float16 scales (T, heads) of the question.
        scored: (T,) bool, the t tokens that are the user's own words.
        rows: of the document's embeddings, in order, in blocks of any size.
        units: of the document.

    Returns:
        (U, t) float32 on the question's device, -inf where a unit has no rows; and how many rows
        there were.

    Raises:
        StateMismatch: the rows are not embeddings of these heads.
    """
    query = tuple(part[scored.to(part.device)] for part in question)
    device = query[0].device
    starts = torch.from_numpy(np.append(units.tokens, units.first_tokens[-1:]))
    best = torch.full((len(units), len(query[0])), -torch.inf, device=device)
    count = 0
    for first, block in rows:
        vectors, scales = (part.to(device) for part in fitting(block, query[0]))
        count += len(vectors)
        low, high = _touched(starts, first, first + len(vectors))
        if low < high:
            inside = (starts[low : high + 1] - first).clamp(0, len(vectors)).to(device)
            found = maxsim_windows(vectors, scales, *query, starts=inside)
            best[low:high] = torch.maximum(best[low:high], found)
    return best, count


def _touched(starts: Tensor, first: int, end: int) -> tuple[int, int]:
    """The units [low, high) that contain tokens [first, end)."""
    low = int(torch.searchsorted(starts, first, right=True)) - 1
    return max(0, low), min(int(torch.searchsorted(starts, end)), len(starts) - 1)
