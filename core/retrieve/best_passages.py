"""From ranked windows to gathered passages: whole sentences, best first.

The published rules of methods take tokens (`top_tokens` in `core/ask/gather.py`); all other gather
sources take passages, here. Knows nothing of how windows were ranked, nor of models.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from longctx.core.contracts.memory import Scores
from longctx.core.passages.sentences import grown
from longctx.core.retrieve.ranked import Ranked
from longctx.core.store.document import Document

MISSES = 16  # windows in a row without room, after which the rest would change little

Run = tuple[int, int]  # tokens [first, end), numbered through all documents


@dataclass(frozen=True)
class Chosen:
    """What is gathered.

    Attributes:
        scores: of all N tokens.
        tokens: (n,) the gathered ones, ascending.
        ranked: the windows that they were chosen from; None: a method's own rule chose tokens.
        passages: the gathered tokens as passages, best first; None: a method's own rule chose them,
            or everything was taken.
    """

    scores: Scores
    tokens: Tensor
    ranked: Ranked | None = None
    passages: tuple[Run, ...] | None = None


@dataclass(frozen=True)
class Measure:
    """How much may be gathered, and how it is counted.

    Attributes:
        most: passages; None: as many as fit.
        size: tokens that a run of the documents' tokens takes where it will be read.
        between: tokens between two passages.
        whole: tokens that all documents take; None: as many as they have.
    """

    most: int | None = None
    size: Callable[[int, int], int] = lambda first, end: end - first
    between: int = 0
    whole: int | None = None


AS_STORED = Measure()


def best_passages(
    ranked: Ranked,
    documents: Sequence[Document],
    counts: Sequence[int],
    measure: Measure = AS_STORED,
) -> list[tuple[Run, ...] | None]:
    """The best windows, each grown to the ends of its sentences or lines.

    Windows are taken best first while they fit; those that touch or overlap become one passage,
    with the rank of the best. It ends where one more passage would begin beyond the most.

    Args:
        ranked: the windows.
        documents: open, those of the windows.
        counts: the most tokens to gather; each count is a separate selection.
        measure: how tokens are counted, and the most passages.

    Returns:
        For each count, runs of one source each, best first, which together with what is between
        them take at most `count` tokens; None: everything fits.
    """
    order = np.argsort(-ranked.scores, kind="stable")
    windows = _Grown(ranked, documents)
    whole = windows.total if measure.whole is None else measure.whole
    return [None if n >= whole else _taken(windows, order, n, measure) for n in counts]


def best_apart(ranked: Ranked, documents: Sequence[Document], most: int) -> list[tuple[int, Run]]:
    """The best windows of which no two overlap, each grown to the ends of its sentences or lines.

    Args:
        ranked: the windows.
        documents: open, those of the windows.
        most: windows.

    Returns:
        The number of each window with its tokens [first, end), best first. Grown ones may overlap.
    """
    windows, taken = _Grown(ranked, documents), np.zeros(len(ranked.units), bool)
    found: list[tuple[int, Run]] = []
    for window in np.argsort(-ranked.scores, kind="stable").tolist():
        first, last = ranked.windows[window].tolist()
        if len(found) == most:
            break
        if not taken[first : last + 1].any():
            taken[first : last + 1] = True
            found.append((window, windows[window]))
    return found


def gathered(scores: Scores, ranked: Ranked, passages: tuple[Run, ...] | None) -> Chosen:
    """What is gathered: the tokens of passages, or all where there are none."""
    taken = np.full(int(ranked.units.first_tokens[-1]), passages is None)
    for first, end in passages or ():
        taken[first:end] = True
    return Chosen(scores, torch.from_numpy(np.flatnonzero(taken)), ranked, passages)


def token_scores(ranked: Ranked) -> Scores:
    """Each token's score: that of the best window containing it, (N,) float64."""
    units = ranked.units
    of_units = units.best_of(ranked.scores, ranked.windows)
    best = torch.from_numpy(np.repeat(of_units, units.lengths))
    return Scores(best, best)


class _Grown:
    """The windows as ranges of tokens that begin and end with sentences; each is looked up once."""

    def __init__(self, ranked: Ranked, documents: Sequence[Document]):
        self._units, self._windows, self._documents = ranked.units, ranked.windows, documents
        self._known: dict[int, Run] = {}

    @property
    def total(self) -> int:
        """Tokens of all documents."""
        return int(self._units.first_tokens[-1])

    def bare(self, window: int) -> Run:
        """Tokens [first, end) of a window before it is grown."""
        first, last = self._windows[window]
        return int(self._units.tokens[first]), int(
            self._units.tokens[last] + self._units.lengths[last]
        )

    def source(self, window: int) -> tuple[int, int]:
        """A window's document and source."""
        unit = self._windows[window, 0]
        return int(self._units.documents[unit]), int(self._units.sources[unit])

    def __getitem__(self, window: int) -> Run:
        if window not in self._known:
            first, end = self.bare(window)
            number = int(self._units.documents[self._windows[window, 0]])
            offset = int(self._units.first_tokens[number])
            low, high = grown(self._documents[number], first - offset, end - offset)
            self._known[window] = low + offset, high + offset
        return self._known[window]


class _Passage(NamedTuple):
    """A passage in the making; its rank is that of its best window."""

    first: int
    end: int
    source: tuple[int, int]
    size: int
    rank: int


class _Passages:
    """The passages taken so far, in the order of the documents.

    Attributes:
        used: tokens that they take, with what is between them.
    """

    def __init__(self, measure: Measure):
        self._measure, self._held = measure, list[_Passage]()
        self.used = 0

    def __len__(self) -> int:
        return len(self._held)

    def is_one_more(self, first: int, end: int, source: tuple[int, int]) -> bool:
        """Whether tokens [first, end) would be a passage beyond the most."""
        low, high = self._touched(first, end, source)
        return low == high and len(self) == self._measure.most

    def add(self, first: int, end: int, source: tuple[int, int], rank: int, most: int) -> bool:
        """Takes tokens [first, end) if all then take at most `most`; returns whether they do."""
        low, high = self._touched(first, end, source)
        old = self._held[low:high]
        for passage in old:
            first, end = min(first, passage.first), max(end, passage.end)
            rank = min(rank, passage.rank)
        new = _Passage(first, end, source, self._measure.size(first, end), rank)
        held = [*self._held[:low], new, *self._held[high:]]
        gaps = self._measure.between * (1 - len(old) if self._held else 0)
        used = self.used + gaps + new.size - sum(passage.size for passage in old)
        if used > most:
            return False
        self._held, self.used = held, used
        return True

    def _touched(self, first: int, end: int, source: tuple[int, int]) -> tuple[int, int]:
        """The passages [low, high) of a source that touch or overlap [first, end)."""
        low = high = bisect_left(self._held, (first, end))
        while low and self._held[low - 1].source == source and self._held[low - 1].end >= first:
            low -= 1
        while high < len(self._held) and self._held[high].source == source:
            if self._held[high].first > end:
                break
            high += 1
        return low, high

    def best_first(self) -> Iterator[Run]:
        """The runs of their tokens."""
        for passage in sorted(self._held, key=lambda passage: passage.rank):
            yield passage.first, passage.end


def _taken(windows: _Grown, order: np.ndarray, count: int, measure: Measure) -> tuple[Run, ...]:
    """The passages of the windows taken, best first."""
    taken, missed = _Passages(measure), 0
    for rank, window in enumerate(order.tolist()):
        (first, end), source = windows[window], windows.source(window)
        if not taken and measure.size(first, end) > count:  # not even the best fits when grown
            first, end = _cut(*windows.bare(window), count, measure)
        if taken.is_one_more(first, end, source):
            break
        missed = 0 if taken.add(first, end, source, rank, count) else missed + 1
        if missed > MISSES or taken.used == count:
            break
    return tuple(taken.best_first())


def _cut(first: int, end: int, count: int, measure: Measure) -> Run:
    """The beginning of a window, of `count` tokens at most where its first token leaves room."""
    while end - first > 1 and (size := measure.size(first, end)) > count:
        end = first + max(1, min(end - first - 1, (end - first) * count // size))
    return first, end
