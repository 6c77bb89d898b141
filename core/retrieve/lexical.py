"""BM25 over windows of two units, from the stored word index.

Missing or damaged parts of the index are counted again, in memory. Knows nothing of models and
methods, and does not import torch.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from math import log1p

import numpy as np

from longctx.core.common.errors import StateMismatch
from longctx.core.retrieve.unit_table import Units
from longctx.core.retrieve.word_tables import Table, count_tables, read_table, word_tables
from longctx.core.store.document import Document
from longctx.core.tokens.stems import asked, stems

K1, B = 1.5, 0.75  # how much repeated words and the window's length count
WINDOW, STRETCH = 2, 8  # units of a window, and of the stretch around one
LATEST = 64  # stems whose occurrences are kept
_LEAST, _NUMBERS = 8, 1 << 23  # of so many stems always; beyond, this many sums of all together
_RARE = 16  # a stem that so few of the units have is looked up by them, else by sums of all units
BEYOND = 1000  # imagined stretches of other texts without a word: rare in a page may be usual


class _Occurrences:
    """How often a stem occurs in units, to be added up over stretches.

    Args:
        units: (n,) those that have it.
        counts: (n,) how often each has it.
        number: of all units.
    """

    def __init__(self, units: np.ndarray, counts: np.ndarray, number: int):
        self._units, self._counts, self._sums = units, counts, None
        if len(units) * _RARE > number:
            found = np.zeros(number)
            found[units] = counts
            self._sums = _until(found)

    def within(self, spans: np.ndarray) -> np.ndarray:
        """How often each stretch (S, 2) of units has it, (S,) float64; both columns ascend."""
        if self._sums is not None:
            return _between(self._sums, spans)
        # A unit is in neighbouring stretches, from the first that ends with it or later.
        low = np.searchsorted(spans[:, 1], self._units)
        number = np.searchsorted(spans[:, 0], self._units, side="right") - low
        before = np.cumsum(number) - number
        stretches = np.arange(number.sum()) + np.repeat(low - before, number)
        found = np.bincount(stretches, np.repeat(self._counts, number), len(spans))
        return found.astype(np.float64, copy=False)  # without any it would be of integers


class PassageIndex:
    """BM25 over documents' windows, without English stop words, and with words reduced to stems.

    A window is two neighbouring units of a source (`core/retrieve/unit_table.py`), 128 tokens
    shifted by 64. The words are read or counted when first needed, and kept: for a million tokens
    reading takes some milliseconds, counting a second. Rarity counts the windows of all documents.

    Args:
        documents: open; units and tokens are numbered through all of them.

    Attributes:
        damaged: what is wrong with each stored index file that was counted again; empty until words
            are needed.
        counted_again: names of those files' documents.
    """

    stems = staticmethod(stems)

    def __init__(self, *documents: Document):
        self._documents = documents
        self.damaged: list[str] = []
        self.counted_again: list[str] = []
        self._found: dict[str, _Occurrences] = {}  # of stems, see `counts_in`

    @cached_property
    def units(self) -> Units:
        """The units and windows of the documents, with their first bytes.

        Raises:
            StateMismatch: a document's text or tokens are damaged.
        """
        units = Units.of(*(document.manifest for document in self._documents))
        starts = [table["bytes"] for _, table in self._tables]
        return replace(units, starts=np.concatenate([np.empty(0, np.int64), *starts]))

    def window_scores(self, words: str, width: int = WINDOW) -> np.ndarray:
        """Lucene's BM25 of each window, (windows,) float32.

        Args:
            words: of the question; a word given twice counts twice, a word in no window does not
                count, and without words all scores are 0.
            width: units of a window; see `Units.spans`.

        Raises:
            StateMismatch: as `units`.
        """
        spans, held = self.units.spans(width), self.held(width)
        mean = float(held.mean()) if len(held) else 0.0
        scores = np.zeros(len(spans))
        for stem, times in Counter(asked(words)).items():
            found = self.counts_in(stem, spans)
            having = np.flatnonzero(found)
            scores[having] += weighed(
                found[having], held[having], mean, len(having), len(spans), times
            )
        return scores.astype(np.float32)

    def held(self, width: int) -> np.ndarray:
        """The words of each stretch of `width` units, (S,) float64.

        Raises:
            StateMismatch: as `units`.
        """
        return _between(self._words_until, self.units.spans(width))

    def counts(self, stem: str, width: int) -> np.ndarray:
        """How often each stretch of `width` units has a stem, (S,) float64.

        Raises:
            StateMismatch: as `units`.
        """
        return self.counts_in(stem, self.units.spans(width))

    def counts_in(self, stem: str, spans: np.ndarray) -> np.ndarray:
        """The same for any stretches (S, 2) of units, (S,) float64; both columns ascend.

        A question's stems are needed at two widths and for `found`, so the latest are kept.
        """
        if stem not in self._found:
            units, counts = self._postings(stem)
            if not len(units):
                return np.zeros(len(spans))
            if len(self._found) >= max(_LEAST, min(LATEST, _NUMBERS // max(1, len(self.units)))):
                self._found.clear()
            self._found[stem] = _Occurrences(units, counts, len(self.units))
        return self._found[stem].within(spans)

    def word_weights(self, words: str) -> dict[str, float]:
        """The rarity of each stem of a question, ln(1 + (W - n + .5) / (n + .5)).

        n of the W windows have it; stems in no window are left out.

        Raises:
            StateMismatch: as `units`.
        """
        spans = self.units.spans(WINDOW)
        counts = {stem: self.counts_in(stem, spans) for stem in asked(words)}
        having = {stem: int(np.count_nonzero(found)) for stem, found in counts.items()}
        return {stem: _rarity(count, len(spans)) for stem, count in having.items() if count}

    def shared(
        self, words: str, width: int = STRETCH, within: tuple[int, int] | None = None
    ) -> float | None:
        """The greatest share of the weight of a question's words that occurs together.

        Args:
            words: of the question.
            width: units of the stretches searched.
            within: units [first, end) that count; None: all.

        Returns:
            From 0 to 1, each stem of the question counted once; None where there are none.

        Raises:
            StateMismatch: as `units`.
        """
        spans = self.units.spans(width)
        if within is not None:
            spans = spans[(spans[:, 0] >= within[0]) & (spans[:, 1] < within[1])]
        held, total = np.zeros(len(spans)), 0.0
        for stem in set(asked(words)):
            has = self.counts_in(stem, spans) > 0
            weight = _rarity(int(np.count_nonzero(has)), len(spans) + BEYOND)
            held, total = held + weight * has, total + weight
        return float(held.max(initial=0) / total) if total else None

    def reach(self, first: np.ndarray, words: int) -> np.ndarray:
        """The last unit that a text can touch which begins in each of some units.

        Args:
            first: (n,) units, in each of which such a text begins.
            words: the most words that begin in the units between its first and its last one.

        Returns:
            (n,) units, each in the source of its first one.
        """
        behind = self._words_until[first + 1] + words
        last = np.searchsorted(self._words_until, behind, side="right") - 1
        return np.minimum(last, self.units.ends[first])

    def terms_with(self, letters: Iterable[str]) -> set[str]:
        """The stems that have one of some letters, of all documents."""
        return {
            term
            for letter in letters
            for terms in self._vocabularies()
            for term in _lines_with(letter.encode(), terms)
        }

    def _vocabularies(self) -> Iterable[bytes]:
        """Stems, each between two newlines, all in one or more parts."""
        return self._terms

    @cached_property
    def _tables(self) -> list[tuple[int, Table]]:
        """The tables of all documents, each with its first unit."""
        found, first = [], 0
        for document in self._documents:
            before = len(self.damaged)
            for table in tables_of(document, self.damaged):
                found.append((first, table))
                first += len(table["sources"])
            if len(self.damaged) > before:
                self.counted_again.append(document.manifest.name)
        return found

    @cached_property
    def _terms(self) -> list[bytes]:
        """The stems of each table, each between two newlines."""
        return [b"\n" + table["terms"].tobytes() for _, table in self._tables]

    @cached_property
    def _unit_words(self) -> np.ndarray:
        """Words of each unit, (units,) float64."""
        lengths = [table["lengths"] for _, table in self._tables]
        return np.concatenate([np.empty(0), *lengths])

    @cached_property
    def _words_until(self) -> np.ndarray:
        """Words before each unit, and of all, (units + 1,) float64."""
        return _until(self._unit_words)

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


def weighed(
    found: np.ndarray, held: np.ndarray, mean: float, having: int, total: int, times: int
) -> np.ndarray:
    """What a stem adds to the scores of windows, (n,) float64.

    Args:
        found: how often each has it.
        held: the words of each.
        mean: words of a window, on average.
        having, total: how many windows have it, of how many.
        times: how often the question has it.
    """
    least = K1 * (1 - B + B * held / max(1.0, mean))
    return times * _rarity(having, total) * found / (found + least)


def _rarity(having: int, total: int) -> float:
    """The weight of a word that `having` of `total` windows have."""
    return log1p((total - having + 0.5) / (having + 0.5))


def _until(values: np.ndarray) -> np.ndarray:
    """Running sums: of the numbers before each unit, and of all, (U + 1,)."""
    sums = np.zeros(len(values) + 1)
    np.cumsum(values, out=sums[1:])
    return sums


def _between(until: np.ndarray, spans: np.ndarray) -> np.ndarray:
    """The sums over stretches (S, 2) of units, from running sums, (S,)."""
    return until[spans[:, 1] + 1] - until[spans[:, 0]]


def _lines_with(part: bytes, lines: bytes) -> Iterator[str]:
    """Those of some lines, each between two newlines, that have a part."""
    place = lines.find(part)
    while place >= 0:
        end = lines.index(b"\n", place)
        yield lines[lines.rindex(b"\n", 0, place) + 1 : end].decode()
        place = lines.find(part, end)


def tables_of(document: Document, damaged: list[str]) -> list[Table]:
    """The tables of a document, stored or else counted; the reasons are added to `damaged`."""
    if not document.word_files:
        return list(word_tables(document))
    units, found = Units.of(document.manifest), []
    for number in range(count_tables(units)):
        try:
            found.append(read_table(document, units, number))
        except StateMismatch as exc:
            damaged.append(exc.reason)
            found.append(next(word_tables(document, number)))
    return found
