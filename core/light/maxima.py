"""Late interaction in numpy: the best cosine of each question token in each passage of a document.

As `core/retrieve/late_interaction.py` and the kernel that it calls, with the same numbers: dot
products of int8 vectors are exact in float32.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from longctx.core.light.reading import Rows
from longctx.core.retrieve.passage_table import Passages

BLOCK = 1024  # tokens at a time; they stay in the processor's caches


@dataclass(frozen=True)
class Maxima:
    """As `Maxima` of late interaction.

    Attributes:
        best: (P, T) float32.
    """

    best: NDArray[np.float32]

    def scores(self, ranges: np.ndarray) -> np.ndarray:
        """Standardised MaxSim of ranges (R, 2) of passages, (R,) float64."""
        best = self._within(ranges).astype(np.float64)
        if not best.size:
            return np.zeros(len(best))
        varies = best.max(0) > best.min(0)
        z = (best - best.mean(0)) / np.where(varies, best.std(0), 1.0) * varies
        return np.maximum(z, 0).sum(1)

    def _within(self, ranges: np.ndarray) -> NDArray[np.float32]:
        """(R, T): the maxima over each range of passages."""
        first, last = ranges.T
        best = self.best[first]
        for step in range(1, int((last - first).max(initial=0)) + 1):
            best = np.maximum(best, self.best[np.minimum(first + step, last)])
        return best


def maxima(question: Rows, pieces: Iterable[Rows], passages: Passages) -> Maxima:
    """The maxima of one document.

    Args:
        question: of the tokens that are the user's own words, (T, heads, D).
        pieces: the document's embeddings in order, in pieces of any size; as many rows as tokens.
        passages: of the document.
    """
    best = np.full((len(passages), len(question.vectors)), -np.inf, np.float32)
    words = question.vectors.astype(np.float32).transpose(1, 0, 2)  # (heads, T, D)
    factors = question.scales.astype(np.float32).T[:, :, None]
    ends = np.append(passages.tokens[1:], passages.first_tokens[-1])
    first = 0
    for piece in pieces:
        for start in range(0, len(piece.vectors), BLOCK):
            rows = piece.chosen(slice(start, start + BLOCK))
            low = int(np.searchsorted(ends, first, side="right"))
            inside = np.maximum(passages.tokens[low:] - first, 0)
            inside = inside[: int(np.searchsorted(inside, len(rows.vectors)))]
            found = np.maximum.reduceat(_cosines(rows, words, factors), inside, axis=1).T
            high = low + len(inside)
            best[low:high] = np.maximum(best[low:high], found)
            first += len(rows.vectors)
    return Maxima(best / np.float32(words.shape[0]) + np.float32(0))  # no -0.0


def _cosines(
    rows: Rows, words: NDArray[np.float32], factors: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Sums over heads (T, n) of the cosines of question tokens with tokens."""
    each = words @ rows.vectors.astype(np.float32).transpose(1, 2, 0)  # (heads, T, n)
    each *= rows.scales.T.astype(np.float32)[:, None]
    each *= factors
    return each.sum(0)
