"""Batches of searching: stretches of one or several groups, and questions that must find theirs.

Most batches are of one group, so that the wrong windows are of the same document; half of their
stretches are those that a search with the model itself takes for right.
"""

import random
from collections import Counter, defaultdict
from dataclasses import dataclass

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from longctx.profiles.recipe.tuning.batches import MIX, READ_ONLY
from longctx.profiles.recipe.tuning.packed import Packed, pack
from longctx.profiles.recipe.tuning.passages import Window
from longctx.profiles.recipe.tuning.shelf import STEP, WIDTH, Maker, Shelf

STRETCH, COUNT = 2048, 16  # tokens of a stretch, stretches of a batch
WINDOWS = STRETCH // STEP - 1
QUERIES, WORDS, BEFORE = 96, 48, 64  # of a batch; most tokens of a question; tokens before it
DROPPED = 24  # queries that are a sentence without some of its words
HELD = 24  # tokens of the evidence that a right window has, or all of it
ONE = 0.7  # share of batches of one group
SIZE = COUNT * (STRETCH + 4) + QUERIES * 120 + 8
MOST = COUNT + QUERIES + 16


@dataclass(frozen=True)
class Searching:
    """Stretches and queries.

    Attributes:
        packed: the stretches, then the queries, each after the prompt's prefix.
        texts: (COUNT, STRETCH) tokens of `packed` that are the stretches'.
        queries: (QUERIES, WORDS) tokens of `packed` that are a query's words.
        words: (QUERIES, WORDS) bool, which of them there are.
        right, unsure: (QUERIES, COUNT, WINDOWS) bool: windows with the evidence; windows with so
            little of it that they count neither as right nor as wrong.
    """

    packed: Packed
    texts: Tensor
    queries: Tensor
    words: Tensor
    right: Tensor
    unsure: Tensor


@dataclass(frozen=True)
class _Query:
    ids: np.ndarray  # the question's template up to the last word
    words: tuple[int, int]
    spans: list[tuple[int, int]]  # tokens of all documents


class Searches:
    """Makes batches of searching.

    Args:
        shelf: the documents.
        found: for some questions, the windows that a search finds best.
        maker: turns made-up queries into tokens.
        backend: the tokenizer.
        rng: decides everything.
    """

    def __init__(
        self,
        shelf: Shelf,
        found: dict[int, list[Window]],
        maker: Maker,
        backend: Tokenizer,
        rng: random.Random,
    ):
        self.shelf, self._found, self.rng = shelf, found, rng
        self._maker, self._backend = maker, backend
        self._asked: dict[int, list[int]] = defaultdict(list)
        for number, asked in enumerate(shelf.asked):
            if asked.known:
                self._asked[shelf.group_of(asked.document)].append(number)
        self._groups: dict[str, list[int]] = defaultdict(list)
        for group in self._asked:
            self._groups[shelf.kinds[shelf.groups[group]]].append(group)

    def batch(self) -> Searching:
        """A batch; its sizes are always the same."""
        starts, queries = self._stretches()
        queries = self.rng.sample(queries, min(len(queries), QUERIES - DROPPED))
        queries += self._dropped(starts, QUERIES - len(queries))
        return self._packed(starts, queries)

    def _stretches(self) -> tuple[list[int], list[_Query]]:
        """First tokens of stretches, and the questions that are answered in some of them."""
        starts: list[int] = []
        queries: list[_Query] = []
        limit = COUNT if self.rng.random() < ONE else COUNT // 4
        while len(starts) < COUNT:
            more, asked = self._of_group(self._group(), min(limit, COUNT - len(starts)))
            starts += more
            queries += asked
        return starts[:COUNT], queries

    def _group(self) -> int:
        kinds = [kind for kind in self._groups if kind in MIX and kind not in READ_ONLY]
        kind = self.rng.choices(kinds, [MIX[kind] for kind in kinds])[0]
        return self.rng.choice(self._groups[kind])

    def _of_group(self, group: int, count: int) -> tuple[list[int], list[_Query]]:
        """At most `count` stretches of a group; those beyond half are the hard ones."""
        first, end = self.shelf.firsts[self.shelf.groups[group : group + 2]].tolist()
        phase = self.rng.randrange(STEP) if end - first > 2 * STRETCH else 0
        starts = [*range(first + phase, max(first + phase + 1, end - STRETCH // 4), STRETCH)]
        by_start: dict[int, list[int]] = defaultdict(list)
        for number in self._asked[group]:
            asked = self.shelf.asked[number]
            base = self.shelf.firsts[asked.document]
            at = (base + asked.evidence[0][0] - first - phase) // STRETCH
            if 0 <= at < len(starts):
                by_start[starts[at]].append(number)
        own = self.rng.sample(starts, min(len(starts), max(1, count // 2)))
        votes: Counter[int] = Counter()
        for number in (number for start in own for number in by_start[start]):
            for document, window in self._found.get(number, [])[:6]:
                at = (self.shelf.firsts[document] + window * STEP - first - phase) // STRETCH
                if 0 <= at < len(starts):
                    votes[starts[at]] += 1
        rest = [start for start in starts if start not in own]
        self.rng.shuffle(rest)
        rest.sort(key=lambda start: -votes[start])
        chosen = [*own, *rest[: count - len(own)]]
        return chosen, [self._query(n) for start in chosen for n in by_start[start]]

    def _query(self, number: int) -> _Query:
        asked = self.shelf.asked[number]
        base = int(self.shelf.firsts[asked.document])
        start, end = asked.words
        end = min(end, start + WORDS)
        spans = [(base + a, base + b) for a, b in asked.evidence]
        return _Query(asked.question[:end], (start, end), spans)

    def _dropped(self, starts: list[int], count: int) -> list[_Query]:
        """Sentences of the stretches without some of their words, as queries for them."""
        made: list[_Query] = []
        for _ in range(4 * count):
            if len(made) == count:
                break
            low = self.rng.choice(starts) + self.rng.randrange(STRETCH - WIDTH)
            borders = low + np.flatnonzero(self.shelf.borders[low : low + 96])
            if len(borders) < 2 or borders[1] - borders[0] < 9:
                continue
            first, end = int(borders[0]), int(borders[1])
            text = self._backend.decode(self.shelf.ids[first:end].tolist())
            words, share = text.split(), self.rng.uniform(0.4, 0.8)
            words = [word for word in words if self.rng.random() < share][:22]
            if len(words) < 3:
                continue
            if self.rng.random() < 0.3:
                self.rng.shuffle(words)
            asked = " ".join(words).lower() if self.rng.random() < 0.3 else " ".join(words)
            ids, (start, stop) = self._maker.question(asked)
            stop = min(stop, start + WORDS)
            made.append(_Query(ids[:stop], (start, stop), [(first, end)]))
        return made

    def _packed(self, starts: list[int], queries: list[_Query]) -> Searching:
        shelf, prefix = self.shelf, self.shelf.prefix
        stretches = [shelf.ids[start : start + STRETCH] for start in starts]
        rows = [np.concatenate([prefix, ids]) for ids in stretches]
        for query in queries:
            at = self.rng.choice(starts) + self.rng.randrange(STRETCH - BEFORE)
            rows.append(np.concatenate([prefix, shelf.ids[at : at + BEFORE], query.ids]))
        packed = pack(rows, SIZE, MOST, STRETCH + len(prefix))
        bounds = packed.bounds.numpy().astype(np.int64)
        texts = np.zeros((COUNT, STRETCH), np.int64)
        for number, ids in enumerate(stretches):  # what is missing repeats the first token
            own = bounds[number] + len(prefix)
            texts[number] = own + np.where(np.arange(STRETCH) < len(ids), np.arange(STRETCH), 0)
        places = np.zeros((QUERIES, WORDS), np.int64)
        words = np.zeros((QUERIES, WORDS), bool)
        right = np.zeros((QUERIES, COUNT, WINDOWS), bool)
        touched = right.copy()
        for number, query in enumerate(queries):
            start, end = query.words
            first = bounds[COUNT + number + 1] - len(query.ids) + start
            places[number, : end - start] = np.arange(first, first + end - start)
            words[number, : end - start] = True
            for low, high in query.spans:
                _mark(right[number], touched[number], starts, low, high)
        tensors = (torch.from_numpy(a) for a in (texts, places, words, right, touched & ~right))
        return Searching(packed, *tensors)


def _mark(right: np.ndarray, touched: np.ndarray, starts: list[int], low: int, high: int) -> None:
    """Marks the windows that hold tokens [low, high), and those that have some of them."""
    first = np.array(starts)[:, None] + STEP * np.arange(WINDOWS)[None]
    shared = np.minimum(high, first + WIDTH) - np.maximum(low, first)
    right |= shared >= min(high - low, HELD)
    touched |= shared > 0
