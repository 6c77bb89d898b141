"""The scores of every window, by words and by meaning, before any is chosen.

Every gather source returns this; `core/retrieve/finding.py` makes hits of it.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from longctx.core.retrieve.unit_table import Units

if TYPE_CHECKING:
    from longctx.core.retrieve.lexical import PassageIndex


@dataclass(frozen=True)
class Ranked:
    """The windows of the documents that were searched, with their scores for a query.

    Attributes:
        units: over all documents searched.
        windows: (W, 2) int32, first and last unit of each.
        scores: (W,) float64, to rank by.
        words: (W,) float64, BM25 of each; 0: it shares no word with the query. None: words are
            not used.
        meaning: (W,) float64, standardised MaxSim, at least 0. None: there are no embeddings.
    """

    units: Units
    windows: np.ndarray
    scores: np.ndarray
    words: np.ndarray | None
    meaning: np.ndarray | None


def by_tokens(units: Units, scores: np.ndarray) -> Ranked:
    """The windows, each with the score of its best token.

    Args:
        units: over all documents searched.
        scores: (N,) float64, of their tokens; `-inf` where one is not a candidate.
    """
    of_units = np.maximum.reduceat(scores, units.tokens) if len(units) else np.empty(0)
    best = of_units[units.windows].max(axis=1, initial=-np.inf)
    return Ranked(units, units.windows, best, None, None)


def by_words(index: "PassageIndex", query: str) -> Ranked:
    """The windows of an index, ranked by their words alone.

    Raises:
        StateMismatch: a document's text or tokens are damaged.
    """
    scores = index.window_scores(query).astype(np.float64)
    return Ranked(index.units, index.units.windows, scores, scores, None)


def z_scores(values: np.ndarray) -> np.ndarray:
    """Distances (n,) from the mean in standard deviations; zeros where nothing varies."""
    if not len(values) or values.min() == values.max():
        return np.zeros(len(values))
    values = values.astype(np.float64)
    return (values - values.mean()) / values.std()
