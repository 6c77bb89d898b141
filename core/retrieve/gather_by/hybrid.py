"""Hybrid: words and embeddings together.

Standardised MaxSim and BM25 are added as z-scores over all windows, at two scales: windows of 128
tokens, and stretches of 512, of which the best one around a window counts. A passage with the
answer is more often among others on its subject than alone. Scales and sum were chosen on the
development questions (docs/benchmarks/accuracy.md, "Gather recall").
"""

import numpy as np

from longctx.core.retrieve import gather_by
from longctx.core.retrieve.lexical import STRETCH, WINDOW
from longctx.core.retrieve.ranked import Ranked


class GatherSource(gather_by.GatherSource):
    """Ranks windows by both."""

    embeddings = "used"

    def rank(self, sought: gather_by.Sought) -> Ranked:
        """Ranks windows by both; by words alone where there are no embeddings."""
        units = sought.index.units
        words = sought.index.window_scores(sought.words)
        maxima = sought.maxima() if sought.maxima else None
        meaning = maxima.scores(WINDOW) if maxima else None
        windows, stretches = units.spans(WINDOW), units.spans(STRETCH)
        around = _both(
            sought.index.window_scores(sought.words, STRETCH), maxima and maxima.scores(STRETCH)
        )
        best = _best(around, stretches, len(units))
        near = z_scores(best[windows].mean(axis=1))
        return Ranked(units, windows, _both(words, meaning) + near, words, meaning)


def _both(words: np.ndarray, meaning: np.ndarray | None) -> np.ndarray:
    """The sum of z-scores, itself standardised."""
    return z_scores(z_scores(words) + (0 if meaning is None else z_scores(meaning)))


def z_scores(values: np.ndarray) -> np.ndarray:
    """Distances (n,) from the mean in standard deviations; zeros where nothing varies."""
    if not len(values) or values.min() == values.max():
        return np.zeros(len(values))
    values = values.astype(np.float64)
    return (values - values.mean()) / values.std()


def _best(scores: np.ndarray, stretches: np.ndarray, units: int) -> np.ndarray:
    """The best score of the stretches containing each unit, (U,)."""
    best = np.full(units, -np.inf)
    first, last = stretches.T
    for step in range(int((last - first).max(initial=0)) + 1):
        np.maximum.at(best, np.minimum(first + step, last), scores)
    return best
