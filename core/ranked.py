"""What a search gives of every window before anything is chosen: by what it is ranked, and why.

Values alone: every source of scores gives them, and hits are made from them (`core/finding.py`).
"""

from dataclasses import dataclass

import numpy as np

from longctx.core.unit_table import Units


@dataclass(frozen=True)
class Ranked:
    """The windows of the documents that were searched, with their scores for a query.

    Attributes:
        units: over all documents searched.
        windows: (W, 2) int32, first and last unit of each.
        scores: (W,) float64, what ranks.
        words: (W,) float64, BM25 of each; 0: it has no word of the query. None: words do not count.
        meaning: (W,) float64, standardised MaxSim, at least 0. None: there are no embeddings.
    """

    units: Units
    windows: np.ndarray
    scores: np.ndarray
    words: np.ndarray | None
    meaning: np.ndarray | None
