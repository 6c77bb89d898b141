"""What gather sources rank, made by hand: units, the words in them, and maxima of a question."""

import numpy as np
import torch

from longctx.core.retrieve.gather_by import Sought
from longctx.core.retrieve.late_interaction import Maxima
from longctx.core.retrieve.unit_table import Units, _windows


def units_of(*sources: int) -> Units:
    """Units of one document whose sources have so many of them, 64 tokens each."""
    count = sum(sources)
    documents = np.zeros(count, np.int32)
    of = np.repeat(np.arange(len(sources), dtype=np.int32), sources)
    return Units(
        documents,
        of,
        np.arange(count, dtype=np.int64) * 64,
        np.full(count, 64, np.int32),
        _windows(documents, of),
        np.array([0, count * 64]),
        np.array([0, count]),
    )


class Index:
    """Stands for the words of documents: scores of units, of which a stretch has the sum."""

    def __init__(self, units: Units, values: list[float]):
        self.units, self._values = units, np.array(values, float)

    def window_scores(self, words: str, width: int = 2) -> np.ndarray:
        assert words in ("who?", "")
        scores = np.array([self._values[a : b + 1].sum() for a, b in self.units.spans(width)])
        return scores if words else 0 * scores


def sought(units: Units, words: list[float], maxima: torch.Tensor | None) -> Sought:
    """What is looked for by "who?"."""
    found = None if maxima is None else (lambda: Maxima(units, maxima))
    return Sought("who?", found, Index(units, words))
