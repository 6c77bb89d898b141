"""The scores of every passage, by words and by meaning, before any is chosen.

Every gather source returns this; `core/retrieve/finding.py` makes hits of it.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from longctx.core.retrieve.passage_table import Passages

if TYPE_CHECKING:
    from longctx.core.retrieve.lexical import PassageIndex


NEIGHBOURS, BESIDE = 4, 0.75  # passages on each side whose words count too, and how much


@dataclass(frozen=True)
class Ranked:
    """The passages of the documents that were searched, with their scores for a query.

    Attributes:
        passages: of all documents searched.
        scores: (P,) float64, to rank by.
        words: (P,) float64, BM25 of each; 0: it shares no word with the query. None: words are not
            used.
        meaning: (P,) float64, how near each is in meaning: cosines, or standardised MaxSim. None:
            it is not used, or there is nothing to tell it by.
    """

    passages: Passages
    scores: np.ndarray
    words: np.ndarray | None
    meaning: np.ndarray | None


def by_tokens(passages: Passages, scores: np.ndarray) -> Ranked:
    """The passages, each with the score of its best token.

    Args:
        passages: of all documents searched.
        scores: (N,) float64, of their tokens; `-inf` where one is not a candidate.
    """
    best = np.maximum.reduceat(scores, passages.tokens) if len(passages) else np.empty(0)
    return Ranked(passages, best, None, None)


def by_words(index: "PassageIndex", query: str) -> Ranked:
    """The passages of an index, ranked by their words alone, and by those of their neighbours.

    An answer is more often among others on its subject than alone.

    Raises:
        StateMismatch: a document's text or tokens are damaged.
    """
    passages = index.passages
    alone = index.scores_in(query, passages.alone())
    around = index.scores_in(query, passages.around(NEIGHBOURS), b=0)  # fewer at a source's ends
    return Ranked(passages, alone + BESIDE * around, alone, None)


def means(values: np.ndarray, ranges: np.ndarray) -> np.ndarray:
    """The mean of some values (P,) in each range (R, 2), (R,) float64."""
    until = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])
    first, last = ranges.T
    return (until[last + 1] - until[first]) / (last + 1 - first)


def z_scores(values: np.ndarray) -> np.ndarray:
    """Distances (n,) from the mean in standard deviations; zeros where nothing varies."""
    if not len(values) or values.min() == values.max():
        return np.zeros(len(values))
    values = values.astype(np.float64)
    return (values - values.mean()) / values.std()
