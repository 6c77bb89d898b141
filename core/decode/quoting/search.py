"""The likeliest stretch of a text under a model: a best-first search over its tokens.

A stretch begins and ends at places that the text allows. Its score is the log-probability of its
tokens and of the answer's end after them, under the model's full distribution: nothing is
renormalised over what the text allows, so scores of a stretch and of any other answer compare.
Log-probabilities are at most 0, so a score only falls as tokens are added: once no open beginning
is better than the best complete stretch, that one is the likeliest of all. A stretch that can be
spelled in several ways has the score of its likeliest spelling. Knows nothing of models.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

import torch
from torch import Tensor

from longctx.core.common.interrupts import check
from longctx.core.passages.quotable import Quotable
from longctx.core.tokens.spelling import Spelling

Path = tuple[int, ...]
Reads = Callable[[Path], Tensor]


@dataclass(frozen=True)
class Stretch:
    """A complete answer.

    Attributes:
        path: its tokens.
        spans: where it stands in the text, in bytes, ascending.
        score: log-probability of its tokens and its end.
        end: that of its end alone.
    """

    path: Path
    spans: tuple[tuple[int, int], ...]
    score: float
    end: float


@dataclass(order=True)
class _Open:
    """The beginning of stretches: ordered by its negated log-probability, then by age."""

    cost: float
    age: int
    path: Path = field(compare=False)
    places: list[int] = field(compare=False)


class Search:
    """One search.

    Args:
        text: what may be quoted.
        spelling: the tokens by their bytes.
        read: gives the log-probabilities (vocabulary,) of the token after a path; each call is a
            pass through the model, except for the empty path.
        ends: token ids that end an answer.
        longest: the most tokens of a stretch.
        floor: a score that a stretch must exceed.

    Attributes:
        complete: the complete stretches seen, in the order in which they were read.
        passes: paths read so far.
    """

    def __init__(
        self,
        text: Quotable,
        spelling: Spelling,
        read: Reads,
        ends: Sequence[int],
        longest: int,
        floor: float = -math.inf,
    ):
        self._text, self._spelling, self._read = text, spelling, read
        self._ends, self._longest, self._floor = list(ends), longest, floor
        self._open: list[_Open] = []
        self.complete: list[Stretch] = []
        self.passes = self._age = 0
        self._expand(_Open(0.0, 0, (), text.begins))

    @property
    def best(self) -> Stretch | None:
        """The best complete stretch above the floor; of equal ones the first."""
        best = max(self.complete, key=lambda one: one.score, default=None)
        return best if best is not None and best.score > self._floor else None

    @property
    def exact(self) -> bool:
        """Whether no open beginning can become better than the best stretch, or the floor."""
        return not self._open or -self._open[0].cost <= self._least

    def run(self, passes: int) -> Stretch | None:
        """Searches until the likeliest stretch is certain, or for so many passes.

        Where none is complete by then, the likeliest beginning is followed to an end, so that
        there is an answer: that takes at most `longest` passes more.

        Returns:
            The best stretch; None: none is better than the floor.
        """
        while not self.exact and self.passes < passes:
            self.step()
        if not self.complete and not self.exact:
            self._follow(heappop(self._open))
        return self.best

    def step(self) -> bool:
        """Reads the likeliest open beginning; returns whether there was one."""
        if self._open:
            self._expand(heappop(self._open))
            return True
        return False

    @property
    def _least(self) -> float:
        best = self.best
        return self._floor if best is None else best.score

    def _follow(self, node: _Open) -> None:
        while not self.complete:
            begun = self._age
            self._expand(node)
            new = [one for one in self._open if one.age > begun]
            if not new:
                return
            node = min(new)
            self._open.remove(node)

    def _expand(self, node: _Open) -> None:
        """Reads a beginning: completes it where it may end, and opens what may follow."""
        check()
        scores = self._read(node.path)
        self.passes += bool(node.path)
        self._complete(node, scores)
        if len(node.path) == self._longest:
            return
        continued = self._spelling.continuing if node.path else self._spelling.beginning
        followers = continued(self._text.data, node.places)
        if not followers:
            return
        numbers = torch.tensor([*followers], device=scores.device)
        least = self._least
        for (number, places), score in zip(
            followers.items(), scores[numbers].tolist(), strict=True
        ):
            if score - node.cost > least:
                self._age += 1
                path = (*node.path, number)
                heappush(self._open, _Open(node.cost - score, self._age, path, places))

    def _complete(self, node: _Open, scores: Tensor) -> None:
        ends = [place for place in node.places if place in self._text.ends]
        # No stretch begins with a space: if the tokens do, it stands before it.
        size = len(self._spelling.spelled(node.path).removeprefix(b" "))
        if not size or not ends:
            return
        end = float(scores[self._ends].logsumexp(0))
        spans = tuple((place - size, place) for place in ends)
        self.complete.append(Stretch(node.path, spans, end - node.cost, end))
