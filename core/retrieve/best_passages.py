"""From ranked passages to gathered ones, best first.

The published rules of methods take tokens (`top_tokens` in `core/ask/gather.py`); all other gather
sources take passages, here. Knows nothing of how passages were ranked, nor of models.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from longctx.core.contracts.memory import Scores
from longctx.core.retrieve.passage_table import Passages
from longctx.core.retrieve.ranked import Ranked

MISSES = 16  # passages in a row without room, after which the rest would change little

Run = tuple[int, int]  # tokens [first, end), numbered through all documents


@dataclass(frozen=True)
class Chosen:
    """What is gathered.

    Attributes:
        scores: of all N tokens.
        tokens: (n,) the gathered ones, ascending.
        ranked: the passages that they were chosen from; None: a method's rule chose tokens.
    """

    scores: Scores
    tokens: Tensor
    ranked: Ranked | None = None


@dataclass(frozen=True)
class Measure:
    """How much may be gathered, and how it is counted.

    Attributes:
        most: passages; None: as many as fit.
        size: tokens that a run of the documents' tokens takes where it will be read.
        whole: tokens that all documents take; None: as many as they have.
    """

    most: int | None = None
    size: Callable[[int, int], int] = lambda first, end: end - first
    whole: int | None = None


AS_STORED = Measure()


def best_passages(
    ranked: Ranked, counts: Sequence[int], measure: Measure = AS_STORED
) -> list[tuple[Run, ...] | None]:
    """The best passages that fit.

    They are taken best first while they fit; neighbours become one run, with the rank of the best.
    It ends where one more run would begin beyond the most.

    Args:
        ranked: the passages.
        counts: the most tokens to gather; each count is a separate selection.
        measure: how tokens are counted, and the most runs.

    Returns:
        For each count, runs of one source each, best first, which together take at most `count`
        tokens; None: everything fits.
    """
    order = np.argsort(-ranked.scores, kind="stable")
    total = int(ranked.passages.first_tokens[-1])
    whole = total if measure.whole is None else measure.whole
    return [None if n >= whole else _taken(ranked.passages, order, n, measure) for n in counts]


def run_of(passages: Passages, number: int) -> Run:
    """The tokens [first, end) of a passage."""
    first = int(passages.tokens[number])
    return first, first + int(passages.lengths[number])


def gathered(scores: Scores, ranked: Ranked, passages: tuple[Run, ...] | None) -> Chosen:
    """What is gathered: the tokens of passages, or all where there are none."""
    taken = np.full(int(ranked.passages.first_tokens[-1]), passages is None)
    for first, end in passages or ():
        taken[first:end] = True
    return Chosen(scores, torch.from_numpy(np.flatnonzero(taken)), ranked)


def token_scores(ranked: Ranked) -> Scores:
    """Each token's score: that of its passage, (N,) float64."""
    scores = torch.from_numpy(np.repeat(ranked.scores, ranked.passages.lengths))
    return Scores(scores, scores)


class _Taken(NamedTuple):
    """A run in the making; its rank is that of its best passage."""

    first: int
    end: int
    source: tuple[int, int]
    size: int
    rank: int


class _Runs:
    """The runs taken so far, in the order of the documents.

    Attributes:
        used: tokens that they take.
    """

    def __init__(self, measure: Measure):
        self._measure, self._held = measure, list[_Taken]()
        self.used = 0

    def __len__(self) -> int:
        return len(self._held)

    def is_one_more(self, first: int, end: int, source: tuple[int, int]) -> bool:
        """Whether tokens [first, end) would be a run beyond the most."""
        low, high = self._touched(first, end, source)
        return low == high and len(self) == self._measure.most

    def add(self, first: int, end: int, source: tuple[int, int], rank: int, most: int) -> bool:
        """Takes tokens [first, end) if all then take at most `most`; returns whether they do."""
        low, high = self._touched(first, end, source)
        old = self._held[low:high]
        for run in old:
            first, end, rank = min(first, run.first), max(end, run.end), min(rank, run.rank)
        new = _Taken(first, end, source, self._measure.size(first, end), rank)
        held = [*self._held[:low], new, *self._held[high:]]
        used = self.used + new.size - sum(run.size for run in old)
        if used > most:
            return False
        self._held, self.used = held, used
        return True

    def _touched(self, first: int, end: int, source: tuple[int, int]) -> tuple[int, int]:
        """The runs [low, high) of a source that touch [first, end)."""
        low = high = bisect_left(self._held, (first, end))
        while low and self._held[low - 1].source == source and self._held[low - 1].end >= first:
            low -= 1
        while high < len(self._held) and self._held[high].source == source:
            if self._held[high].first > end:
                break
            high += 1
        return low, high

    def best_first(self) -> Iterator[Run]:
        """Their tokens."""
        for run in sorted(self._held, key=lambda run: run.rank):
            yield run.first, run.end


def _taken(passages: Passages, order: np.ndarray, count: int, measure: Measure) -> tuple[Run, ...]:
    """The runs of the passages taken, best first."""
    taken, missed = _Runs(measure), 0
    for rank, number in enumerate(order.tolist()):
        first, end = run_of(passages, number)
        source = int(passages.documents[number]), int(passages.sources[number])
        if not taken and measure.size(first, end) > count:  # not even the best fits
            first, end = _cut(first, end, count, measure)
        if taken.is_one_more(first, end, source):
            break
        missed = 0 if taken.add(first, end, source, rank, count) else missed + 1
        if missed > MISSES or taken.used == count:
            break
    return tuple(taken.best_first())


def _cut(first: int, end: int, count: int, measure: Measure) -> Run:
    """The beginning of a passage, of `count` tokens at most where its first token leaves room."""
    while end - first > 1 and (size := measure.size(first, end)) > count:
        end = first + max(1, min(end - first - 1, (end - first) * count // size))
    return first, end
