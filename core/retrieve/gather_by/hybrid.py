"""Hybrid: words and embeddings together.

Standardised MaxSim and BM25 are added as z-scores over all windows, at two scales: windows of 128
tokens, and stretches of 512, of which the best one around a window counts. A passage with the
answer is more often among others on its subject than alone. Scales and sum were chosen on the
development questions (docs/benchmarks/accuracy.md, "Gather recall").
"""

import numpy as np

from longctx.core.retrieve import gather_by
from longctx.core.retrieve.lexical import STRETCH
from longctx.core.retrieve.ranked import Ranked, z_scores


class GatherSource(gather_by.GatherSource):
    """Ranks windows by both."""

    embeddings = "used"

    def rank(self, sought: gather_by.Sought) -> Ranked:
        """Ranks windows by both; by words alone where there are no embeddings."""
        units, width = sought.index.units, sought.width
        words = sought.index.window_scores(sought.words, width)
        maxima = sought.maxima() if sought.maxima else None
        meaning = maxima.scores(width) if maxima else None
        windows, stretches = units.spans(width), units.spans(STRETCH)
        around = _both(
            sought.index.window_scores(sought.words, STRETCH),
            maxima.scores(STRETCH) if maxima else None,
        )
        near = z_scores(_means(units.best_of(around, stretches), windows))
        return Ranked(units, windows, _both(words, meaning) + near, words, meaning)


def _both(words: np.ndarray, meaning: np.ndarray | None) -> np.ndarray:
    """The sum of z-scores, itself standardised."""
    return z_scores(z_scores(words) + (0 if meaning is None else z_scores(meaning)))


def _means(values: np.ndarray, windows: np.ndarray) -> np.ndarray:
    """The mean over each window's units, (W,), of one number for each unit, (U,)."""
    first, last = windows.T
    total = np.zeros(len(windows))
    for step in range(int((last - first).max(initial=0)) + 1):
        total += np.where(first + step <= last, values[np.minimum(first + step, last)], 0)
    return total / (last - first + 1)
