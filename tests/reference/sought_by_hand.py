"""What gather sources rank, made by hand: passages with words, cosines and maxima."""

import numpy as np
import torch

from longctx.core.retrieve.gather_by import Sought
from longctx.core.retrieve.late_interaction import Maxima
from longctx.core.retrieve.passage_table import Passages


class Index:
    """Stands for the words of documents: scores of passages, of which a range has the sum."""

    def __init__(self, passages: Passages, values: list[float]):
        self.passages, self._values = passages, np.array(values, float)

    def scores_in(self, words: str, ranges: np.ndarray, b: float = 0.6) -> np.ndarray:
        assert words in ("who?", "")
        scores = np.array([self._values[a : b + 1].sum() for a, b in ranges])
        return scores if words else 0 * scores


def sought(passages: Passages, words: list[float], maxima: torch.Tensor | None) -> Sought:
    """What is looked for by "who?"; the cosine of a passage is the highest of its maxima."""
    index = Index(passages, words)
    if maxima is None:
        return Sought("who?", index)
    cosines = np.array([max(row, default=0.0) for row in maxima.tolist()])
    return Sought("who?", index, lambda: cosines, lambda: Maxima(maxima))
