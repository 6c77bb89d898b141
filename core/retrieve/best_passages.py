"""From ranked windows to gathered passages: whole sentences, best first.

The published rules of methods take tokens (`top_tokens` in `core/ask/gather.py`); all other gather
sources take passages, here. Knows nothing of how windows were ranked.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from longctx.core.contracts.memory import Scores
from longctx.core.passages.sentences import grown
from longctx.core.retrieve.ranked import Ranked
from longctx.core.store.document import Document

MISSES = 16  # windows in a row without room, after which the rest would change little


@dataclass(frozen=True)
class Chosen:
    """What is gathered.

    Attributes:
        scores: of all N tokens.
        tokens: (n,) the gathered ones, ascending.
        ranked: the windows that they were chosen from; None: a method's own rule chose tokens.
    """

    scores: Scores
    tokens: Tensor
    ranked: Ranked | None = None


def best_passages(
    ranked: Ranked, documents: Sequence[Document], counts: Sequence[int]
) -> list[Tensor]:
    """The tokens of the best windows, each grown to the ends of its sentences or lines.

    Windows are taken best first while they fit; adjacent ones become one passage.

    Args:
        ranked: the windows.
        documents: open, those of the windows.
        counts: the most tokens to gather; each count is a separate selection.

    Returns:
        (at most count,) token indices for each count, ascending, numbered through all documents.
    """
    order = np.argsort(-ranked.scores, kind="stable")
    sizes = _Grown(ranked, documents)
    return [torch.from_numpy(np.flatnonzero(_taken(sizes, order, count))) for count in counts]


def token_scores(ranked: Ranked) -> Scores:
    """Each token's score: that of the best window containing it, (N,) float64."""
    units = ranked.units
    best = torch.from_numpy(np.repeat(units.best(ranked.scores), units.lengths))
    return Scores(best, best)


class _Grown:
    """The windows as ranges of tokens that begin and end with sentences; each is looked up once."""

    def __init__(self, ranked: Ranked, documents: Sequence[Document]):
        self._units, self._windows, self._documents = ranked.units, ranked.windows, documents
        self._known: dict[int, tuple[int, int]] = {}

    @property
    def total(self) -> int:
        """Tokens of all documents."""
        return int(self._units.first_tokens[-1])

    def bare(self, window: int) -> tuple[int, int]:
        """Tokens [first, end) of a window before it is grown."""
        first, last = self._windows[window]
        return int(self._units.tokens[first]), int(
            self._units.tokens[last] + self._units.lengths[last]
        )

    def __getitem__(self, window: int) -> tuple[int, int]:
        if window not in self._known:
            first, end = self.bare(window)
            number = int(self._units.documents[self._windows[window, 0]])
            offset = int(self._units.first_tokens[number])
            low, high = grown(self._documents[number], first - offset, end - offset)
            self._known[window] = low + offset, high + offset
        return self._known[window]


def _taken(windows: _Grown, order: np.ndarray, count: int) -> np.ndarray:
    """(N,) bool, the tokens of the windows taken."""
    taken = np.zeros(windows.total, bool)
    if count >= windows.total:
        return ~taken
    left, missed = count, 0
    for window in order.tolist():
        first, end = windows[window]
        if left == count and end - first > left:  # not even the best window fits when grown
            first, end = windows.bare(window)
            end = min(end, first + left)
        new = end - first - int(np.count_nonzero(taken[first:end]))
        if new <= left:
            taken[first:end] = True
            left, missed = left - new, 0
        else:
            missed += 1
        if missed > MISSES or not left:
            break
    return taken
