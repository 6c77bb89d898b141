"""Units and windows of documents, as arrays made from manifests; no file is read.

A unit is 64 tokens of one source; a source's last unit may be shorter. A window is two neighbouring
units of one source, so windows overlap by half; a source of one unit has one window of that unit.
BM25 and late interaction share them.
"""

from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate

import numpy as np

from longctx.core.store.manifest import Manifest

UNIT = 64  # tokens


@dataclass(frozen=True)
class Units:
    """The units of documents, one document after another, and the windows made of them.

    U units, W windows, D documents. Tokens and units are numbered through all documents.

    Attributes:
        documents: (U,) int32, index of each unit's document.
        sources: (U,) int32, index of its source in that document.
        tokens: (U,) int64, its first token.
        lengths: (U,) int32, its number of tokens.
        windows: (W, 2) int32, first and last unit of each window; equal in a window of one unit.
        first_tokens: (D + 1,) int64, first token of each document, and the end.
        first_units: (D + 1,) int64, likewise.
        starts: (U,) int64, first byte of each unit in its source; empty if not read.
    """

    documents: np.ndarray
    sources: np.ndarray
    tokens: np.ndarray
    lengths: np.ndarray
    windows: np.ndarray
    first_tokens: np.ndarray
    first_units: np.ndarray
    starts: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))

    @classmethod
    def of(cls, *manifests: Manifest) -> "Units":
        """The units of documents, from the sources in their manifests."""
        parts = [_of_one(manifest) for manifest in manifests]
        first_tokens = [*accumulate((manifest.tokens for manifest in manifests), initial=0)]
        counts = [len(sources) for sources, _, _ in parts]
        nothing = (np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int32))
        sources, tokens, lengths = map(np.concatenate, zip(nothing, *parts, strict=True))
        documents = np.repeat(np.arange(len(parts), dtype=np.int32), counts)
        return cls(
            documents,
            sources,
            tokens + np.repeat(first_tokens[:-1], counts).astype(np.int64),
            lengths,
            _windows(documents, sources),
            np.array(first_tokens, np.int64),
            np.array([*accumulate(counts, initial=0)], np.int64),
        )

    @classmethod
    def made(
        cls,
        documents: np.ndarray,
        sources: np.ndarray,
        lengths: np.ndarray,
        starts: np.ndarray,
        tokens: np.ndarray,
    ) -> "Units":
        """The units of documents, from what is kept of each unit.

        Args:
            documents, sources, lengths, starts: (U,) as the attributes, in order.
            tokens: (D,) of each document.
        """
        ends = np.cumsum(lengths, dtype=np.int64)
        counts = np.bincount(documents, minlength=len(tokens)) if len(tokens) else []
        documents, sources = documents.astype(np.int32), sources.astype(np.int32)
        return cls(
            documents,
            sources,
            ends - lengths,
            lengths.astype(np.int32),
            _windows(documents, sources),
            np.concatenate([[0], np.cumsum(tokens, dtype=np.int64)]),
            np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]),
            starts.astype(np.int64),
        )

    def __len__(self) -> int:
        return len(self.sources)

    @cached_property
    def of_unit(self) -> np.ndarray:
        """The windows of each unit, (U, 2) int32: the one it ends, and the one it begins.

        -1: there is none; a unit that is a window by itself has only the second.
        """
        found = np.full((len(self), 2), -1, np.int32)
        numbers = np.arange(len(self.windows), dtype=np.int32)
        found[self.windows[:, 1], 0] = numbers
        found[self.windows[:, 0], 1] = numbers
        found[found[:, 0] == found[:, 1], 0] = -1
        return found

    def sums(self, values: np.ndarray) -> np.ndarray:
        """The sum over each window, (W,), of one number for each unit, (U,)."""
        first, last = self.windows.T
        return values[first] + np.where(first == last, 0, values[last])

    @cached_property
    def ends(self) -> np.ndarray:
        """(U,) int64, the last unit of each unit's source."""
        last = np.append(self._is_first[1:], True)
        places = np.flatnonzero(last)
        return places[np.cumsum(last) - last]

    @cached_property
    def _is_first(self) -> np.ndarray:
        """(U,) bool, whether a unit is the first of its source."""
        before = np.stack([self.documents, self.sources])
        return np.append(np.ones(min(1, len(self)), bool), (np.diff(before) != 0).any(axis=0))

    def spans(self, width: int) -> np.ndarray:
        """The stretches of `width` neighbouring units of one source, shifted by one.

        Returns:
            (S, 2) int64, first and last unit of each; a source of fewer units has one stretch of
            all of them. Stretches of width 2 are the windows.
        """
        if width not in self._spans:
            first = np.arange(len(self))
            last = np.minimum(first + width - 1, self.ends)
            kept = (last - first == width - 1) | self._is_first
            self._spans[width] = np.stack([first[kept], last[kept]]).T  # columns are read alone
        return self._spans[width]

    @cached_property
    def _spans(self) -> dict[int, np.ndarray]:
        """Stretches by width, filled when needed."""
        return {}

    def best(self, scores: np.ndarray) -> np.ndarray:
        """The better of the scores (W,) of each unit's windows, (U,)."""
        known = np.append(scores, np.array(-np.inf, scores.dtype))  # what -1 picks
        return known[self.of_unit].max(axis=1, initial=-np.inf)

    def best_of(self, scores: np.ndarray, spans: np.ndarray) -> np.ndarray:
        """The best score of the stretches containing each unit, (U,) float64.

        Args:
            scores: (S,) one for each stretch.
            spans: (S, 2) first and last unit of each.
        """
        best = np.full(len(self), -np.inf)
        first, last = spans.T
        for step in range(int((last - first).max(initial=0)) + 1):
            np.maximum.at(best, np.minimum(first + step, last), scores)
        return best


def _of_one(manifest: Manifest) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sources, first tokens in the document and lengths of its units."""
    firsts = np.array([source.first_token for source in manifest.sources], np.int64)
    tokens = np.array([source.tokens for source in manifest.sources], np.int64)
    counts = -(-tokens // UNIT)
    sources = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    before = np.cumsum(counts) - counts  # units of earlier sources
    inside = (np.arange(len(sources)) - before[sources]) * UNIT
    lengths = np.minimum(UNIT, tokens[sources] - inside).astype(np.int32)
    return sources, firsts[sources] + inside, lengths


def _windows(documents: np.ndarray, sources: np.ndarray) -> np.ndarray:
    """First and last unit of each window, in order."""
    same = np.ones(len(sources) + 1, bool)  # whether a unit continues the previous unit's source
    same[0] = same[-1] = False
    same[1:-1] = (np.diff(documents) == 0) & (np.diff(sources) == 0)
    alone = ~same[:-1] & ~same[1:]
    first = np.flatnonzero(alone | same[1:])
    return np.stack([first, np.where(alone[first], first, first + 1)], axis=1).astype(np.int32)
