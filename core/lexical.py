"""BM25 by the words of documents: over windows of two units, from the word index that is stored.

Where none is stored, or a part of it is damaged, that part is counted anew, in memory. Knows
nothing of models and methods, and imports torch only where scores are asked for as tensors.
"""

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from longctx.core.errors import StateMismatch
from longctx.core.stems import stems
from longctx.core.store.document import Document
from longctx.core.unit_table import Units
from longctx.core.word_tables import Table, count_tables, read_table, word_tables

if TYPE_CHECKING:
    from longctx.core.memory import Scores

K1, B = 1.5, 0.75  # how much repeated words count, and the window's length


class PassageIndex:
    """BM25 over documents' windows: English stop words left out, words cut to their stems.

    A window is two neighbouring units of a source (`core/unit_table.py`), 128 tokens shifted by 64.
    The words are read, or counted, when they are first needed, and kept: some milliseconds, or a
    second, for a million tokens. Of several documents, a word is as rare as it is in all of them.

    Args:
        documents: open; their units and tokens are counted on from one to the next.

    Attributes:
        damaged: what is wrong with stored files of the index that were counted anew, one text each;
            empty before words were needed.
    """

    stems = staticmethod(stems)

    def __init__(self, *documents: Document):
        self._documents = documents
        self.damaged: list[str] = []

    @cached_property
    def units(self) -> Units:
        """The units and windows of the documents, with their first bytes.

        Raises:
            StateMismatch: a document's text or tokens are not what was written.
        """
        units = Units.of(*(document.manifest for document in self._documents))
        starts = [table["bytes"] for _, table in self._tables]
        return replace(units, starts=np.concatenate([np.empty(0, np.int64), *starts]))

    def window_scores(self, words: str) -> np.ndarray:
        """Lucene's BM25 of each window, (windows,) float32.

        Args:
            words: of the question; one that stands in it twice counts twice, those that no window
                has do not count, none gives zeros.

        Raises:
            StateMismatch: as `units`.
        """
        found = self._found(words)
        scores = np.zeros(len(self._window_words), np.float32)
        if len(found.windows):
            mean = self._window_words.mean()
            least = K1 * (1 - B + B * self._window_words[found.windows] / mean)
            each = found.weights[found.terms] * found.counts / (found.counts + least)
            scores += np.bincount(found.windows, each, len(scores))
        return scores

    def word_weights(self, words: str) -> dict[str, float]:
        """Of each stem of a question how rare it is, ln(1 + (W - n + .5) / (n + .5)).

        n of the W windows have it; stems that none has are left out.

        Raises:
            StateMismatch: as `units`.
        """
        found = self._found(words)
        return dict(zip(found.stems, self._rarity(found.having).tolist(), strict=True))

    def scores(self, words: str) -> "Scores":
        """The better score of each token's windows, (N,) float32; raw and pooled ones are the same.

        Args:
            words: as of `window_scores`.

        Raises:
            StateMismatch: as `units`.
        """
        import torch

        from longctx.core.memory import Scores

        best = self.units.best(self.window_scores(words))
        spread = torch.from_numpy(np.repeat(best, self.units.lengths))
        return Scores(spread, spread)

    def _rarity(self, having: np.ndarray) -> np.ndarray:
        """The weight of words that so many windows have."""
        return np.log(1 + (len(self._window_words) - having + 0.5) / (having + 0.5))

    @cached_property
    def _tables(self) -> list[tuple[int, Table]]:
        """The tables of all documents, each with its first unit."""
        found, first = [], 0
        for document in self._documents:
            for table in _tables(document, self.damaged):
                found.append((first, table))
                first += len(table["sources"])
        return found

    @cached_property
    def _terms(self) -> list[bytes]:
        """Of each table its stems, each between two newlines."""
        return [b"\n" + table["terms"].tobytes() for _, table in self._tables]

    @cached_property
    def _window_words(self) -> np.ndarray:
        """Words of each window, (windows,) int64."""
        lengths = [table["lengths"] for _, table in self._tables]
        return self.units.sums(np.concatenate([np.empty(0, np.int64), *lengths]))

    def _postings(self, stem: str) -> tuple[np.ndarray, np.ndarray]:
        """The units that have a stem, ascending, and how often."""
        units, counts = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        wanted = b"\n%s\n" % stem.encode()
        for (first, table), terms in zip(self._tables, self._terms, strict=True):
            place = terms.find(wanted)
            if place >= 0:
                number = terms.count(b"\n", 0, place)
                some = slice(*table["heads"][number : number + 2].tolist())
                units.append(table["units"][some] + np.int64(first))
                counts.append(table["counts"][some])
        return np.concatenate(units), np.concatenate(counts)

    def _found(self, words: str) -> "_Found":
        """Where the stems of a question are, by windows."""
        times = Counter(stem for _, _, stem in stems(words))
        posted = {stem: self._postings(stem) for stem in times}
        known = [stem for stem, (units, _) in posted.items() if len(units)]
        empty = np.empty(0, np.int64)
        units = np.concatenate([empty, *(posted[stem][0] for stem in known)])
        counts = np.concatenate([empty, *(posted[stem][1] for stem in known)])
        terms = np.repeat(np.arange(len(known)), [len(posted[stem][0]) for stem in known])
        of_unit, total = self.units.of_unit[units].astype(np.int64), len(self._window_words)
        both = (terms * total + of_unit.T)[of_unit.T >= 0]
        places, inverse = np.unique(both, return_inverse=True)
        counted = np.bincount(inverse, np.tile(counts, (2, 1))[of_unit.T >= 0], len(places))
        terms, windows = np.divmod(places, max(1, total))
        having = np.bincount(terms, minlength=len(known))
        weights = self._rarity(having) * [times[stem] for stem in known]
        return _Found(known, having, weights, terms, windows, counted)


@dataclass(frozen=True)
class _Found:
    """The n known stems of a question, and the f windows that have them, stem by stem.

    Attributes:
        stems: n of them.
        having: (n,) int64, windows that have each.
        weights: (n,) float64, rarity times how often it stands in the question.
        terms: (f,) int64, which of the stems.
        windows: (f,) int64, in which window.
        counts: (f,) float64, how often.
    """

    stems: list[str]
    having: np.ndarray
    weights: np.ndarray
    terms: np.ndarray
    windows: np.ndarray
    counts: np.ndarray


def _tables(document: Document, damaged: list[str]) -> list[Table]:
    """The tables of a document: those that are stored, the others counted; to `damaged` why."""
    if not document.word_files:
        return list(word_tables(document))
    units, found = Units.of(document.manifest), []
    for number in range(count_tables(units)):
        try:
            found.append(read_table(document, units, number))
        except StateMismatch as exc:
            damaged.append(f"{exc.what}: {exc.why}" if exc.why else exc.what)
            found.append(next(word_tables(document, number)))
    return found
