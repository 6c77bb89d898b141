"""Late interaction in numpy: the best cosine of each question token in each unit of a document.

As `core/retrieve/late_interaction.py` and the kernel that it calls, with the same numbers: dot
products of int8 vectors are exact in float32.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from longctx.core.light.reading import Rows
from longctx.core.retrieve.unit_table import Units

BLOCK = 1024  # tokens at a time; they stay in the processor's caches


@dataclass(frozen=True)
class Maxima:
    """As `Maxima` of late interaction.

    Attributes:
        units: of the document.
        best: (U, T) float32.
    """

    units: Units
    best: NDArray[np.float32]

    def scores(self, width: int) -> np.ndarray:
        """Standardised MaxSim of each stretch of `width` units, (S,) float64."""
        kept = self.units.spans(width)[:, 0]
        best = self._stretched(width)[kept].astype(np.float64)
        if not best.size:
            return np.zeros(len(best))
        varies = best.max(0) > best.min(0)
        z = (best - best.mean(0)) / np.where(varies, best.std(0), 1.0) * varies
        return np.maximum(z, 0).sum(1)

    def _stretched(self, width: int) -> NDArray[np.float32]:
        """(U, T): the maxima over each unit and those after it, within its source."""
        best, reached = self.best, 1
        places = np.arange(len(best))
        while reached < width:
            step = min(reached, width - reached)
            best = np.maximum(best, best[np.minimum(places + step, self.units.ends)])
            reached += step
        return best


def maxima(question: Rows, pieces: Iterable[Rows], units: Units) -> Maxima:
    """The maxima of one document.

    Args:
        question: of the tokens that are the user's own words, (T, heads, D).
        pieces: the document's embeddings in order, in pieces of any size; as many rows as tokens.
        units: of the document.
    """
    best = np.full((len(units), len(question.vectors)), -np.inf, np.float32)
    words = question.vectors.astype(np.float32).transpose(1, 0, 2)  # (heads, T, D)
    factors = question.scales.astype(np.float32).T[:, :, None]
    ends = np.append(units.tokens[1:], units.first_tokens[-1])
    first = 0
    for piece in pieces:
        for start in range(0, len(piece.vectors), BLOCK):
            rows = piece.chosen(slice(start, start + BLOCK))
            low = int(np.searchsorted(ends, first, side="right"))
            inside = np.maximum(units.tokens[low:] - first, 0)
            inside = inside[: int(np.searchsorted(inside, len(rows.vectors)))]
            found = np.maximum.reduceat(_cosines(rows, words, factors), inside, axis=1).T
            high = low + len(inside)
            best[low:high] = np.maximum(best[low:high], found)
            first += len(rows.vectors)
    return Maxima(units, best / np.float32(words.shape[0]) + np.float32(0))  # no -0.0


def _cosines(
    rows: Rows, words: NDArray[np.float32], factors: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Sums over heads (T, n) of the cosines of question tokens with tokens."""
    each = words @ rows.vectors.astype(np.float32).transpose(1, 2, 0)  # (heads, T, n)
    each *= rows.scales.T.astype(np.float32)[:, None]
    each *= factors
    return each.sum(0)
