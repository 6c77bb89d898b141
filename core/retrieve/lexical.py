"""BM25 over passages, from the stored word index.

Missing or damaged parts of the index are counted again, in memory. Knows nothing of models and
methods, and does not import torch.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import accumulate
from math import log1p

import numpy as np

from longctx.core.common.errors import StateMismatch
from longctx.core.retrieve.passage_table import Passages
from longctx.core.retrieve.word_tables import Table, count_tables, read_table, word_tables
from longctx.core.store.document import Document
from longctx.core.tokens.normal_form import kinds
from longctx.core.tokens.terms import query_words

K1, B = 1.2, 0.6  # how much repeated words and a passage's length count
TOGETHER = 4  # passages in which the words of a question have to occur together
LATEST = 64  # stems whose occurrences are kept
_LEAST, _NUMBERS = 8, 1 << 23  # of so many stems always; beyond, this many sums of all together
_RARE = 16  # a stem that so few passages have is looked up by them, else by sums of all passages
BEYOND = 1000  # imagined passages of other texts without a word: rare in a page may be usual


class _Occurrences:
    """How often a stem occurs in passages, to be added up over ranges of them.

    Args:
        passages: (n,) those that have it.
        counts: (n,) how often each has it.
        number: of all passages.
    """

    def __init__(self, passages: np.ndarray, counts: np.ndarray, number: int):
        self._passages, self._counts, self._sums = passages, counts, None
        if len(passages) * _RARE > number:
            found = np.zeros(number)
            found[passages] = counts
            self._sums = _until(found)

    def within(self, ranges: np.ndarray) -> np.ndarray:
        """How often each range (R, 2) of passages has it, (R,) float64; both columns ascend."""
        if self._sums is not None:
            return _between(self._sums, ranges)
        # A passage is in neighbouring ranges, from the first that ends with it or later.
        low = np.searchsorted(ranges[:, 1], self._passages)
        number = np.searchsorted(ranges[:, 0], self._passages, side="right") - low
        before = np.cumsum(number) - number
        places = np.arange(number.sum()) + np.repeat(low - before, number)
        found = np.bincount(places, np.repeat(self._counts, number), len(ranges))
        return found.astype(np.float64, copy=False)  # without any it would be of integers


class PassageIndex:
    """BM25 over documents' passages, by the terms of `core/tokens/terms.py`.

    The words are read or counted when first needed, and kept: for a million tokens reading takes
    some milliseconds, counting a second. Rarity counts the passages of all documents.

    Args:
        documents: open; passages and tokens are numbered through all of them.

    Attributes:
        damaged: what is wrong with each stored index file that was counted again; empty until words
            are needed.
        counted_again: names of those files' documents.
    """

    def __init__(self, *documents: Document):
        self._documents = documents
        self.damaged: list[str] = []
        self.counted_again: list[str] = []
        self._found: dict[tuple[str, ...], _Occurrences] = {}  # of words, see `counts_in`

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages of the documents, each once; at least one."""
        return tuple(dict.fromkeys(each.manifest.language for each in self._documents)) or ("",)

    def asked(self, words: str) -> list[tuple[str, ...]]:
        """What to look up for a question: each word's terms, one for each language of documents.

        One character of a script without spaces stands for all terms that have it.
        """
        return [self.looked_up(word) for word in query_words(words, self.languages)]

    def looked_up(self, word: tuple[str, ...]) -> tuple[str, ...]:
        """The terms of a word, or those that have a character of a script without spaces."""
        if len(word) != 1 or kinds(word[0]).strip("m") != "u":
            return word
        return tuple(sorted(self.terms_with(word))) or word

    @cached_property
    def passages(self) -> Passages:
        """The passages of the documents.

        Raises:
            StateMismatch: a document's text or tokens are damaged.
        """
        totals = np.array([document.manifest.tokens for document in self._documents], np.int64)
        tables = [(number, table) for number, tables in self._tables for table in tables]
        documents = [np.full(len(table["tokens"]), number) for number, table in tables]
        before = np.cumsum(totals) - totals
        tokens = [table["tokens"] + before[number] for number, table in tables]
        nothing = np.empty(0, np.int64)
        first = np.concatenate([nothing, *tokens])
        return Passages.made(
            np.concatenate([nothing, *documents]),
            np.concatenate([nothing, *(table["sources"] for _, table in tables)]),
            np.diff(np.append(first, totals.sum())),
            np.concatenate([nothing, *(table["bytes"] for _, table in tables)]),
            totals,
        )

    def passages_of(self, document: Document) -> Passages:
        """The passages of one of the documents, numbered from 0."""
        return self.passages.of_document(self._documents.index(document))

    def scores_in(self, words: str, ranges: np.ndarray, b: float = B) -> np.ndarray:
        """Lucene's BM25 of ranges (R, 2) of passages, (R,) float64; both columns ascend.

        A word's rarity is that among passages, however long the ranges are.
        """
        alone, held = self.passages.alone(), self.held(ranges)
        mean = float(held.mean()) if len(held) else 0.0
        scores = np.zeros(len(ranges))
        for word, times in Counter(self.asked(words)).items():
            found = self.counts_in(word, ranges)
            having = np.flatnonzero(found)
            rarity = _rarity(int(np.count_nonzero(self.counts_in(word, alone))), len(alone))
            scores[having] += times * rarity * _often(found[having], held[having], mean, b)
        return scores

    def held(self, ranges: np.ndarray) -> np.ndarray:
        """The words of ranges (R, 2) of passages, (R,) float64.

        Raises:
            StateMismatch: as `passages`.
        """
        return _between(self._words_until, ranges)

    def counts_in(self, word: tuple[str, ...], ranges: np.ndarray) -> np.ndarray:
        """How often each range (R, 2) of passages has a word's terms, (R,) float64.

        Both columns of the ranges ascend. A question's words are needed several times, so the
        latest are kept.

        Raises:
            StateMismatch: as `passages`.
        """
        if word not in self._found:
            passages, counts = _merged([self._postings(term) for term in word])
            if not len(passages):
                return np.zeros(len(ranges))
            if len(self._found) >= max(_LEAST, min(LATEST, _NUMBERS // max(1, len(self.passages)))):
                self._found.clear()
            self._found[word] = _Occurrences(passages, counts, len(self.passages))
        return self._found[word].within(ranges)

    def word_weights(self, words: str) -> dict[str, float]:
        """The rarity of each term of a question, ln(1 + (P - n + .5) / (n + .5)).

        n of the P passages have its word; words in no passage are left out.

        Raises:
            StateMismatch: as `passages`.
        """
        alone = self.passages.alone()
        counts = {word: self.counts_in(word, alone) for word in self.asked(words)}
        having = {word: int(np.count_nonzero(found)) for word, found in counts.items()}
        some = {word: _rarity(count, len(alone)) for word, count in having.items() if count}
        return {term: weight for word, weight in some.items() for term in word}

    def shared(self, words: str, within: tuple[int, int] | None = None) -> float | None:
        """The greatest share of the weight of a question's words that occurs together.

        Args:
            words: of the question.
            within: passages [first, end) that count; None: all.

        Returns:
            From 0 to 1, each stem of the question counted once; None where there are none.

        Raises:
            StateMismatch: as `passages`.
        """
        runs = self.passages.runs(TOGETHER)
        if within is not None:
            runs = runs[(runs[:, 0] >= within[0]) & (runs[:, 1] < within[1])]
        held, total = np.zeros(len(runs)), 0.0
        for word in set(self.asked(words)):
            has = self.counts_in(word, runs) > 0
            weight = _rarity(int(np.count_nonzero(has)), len(runs) + BEYOND)
            held, total = held + weight * has, total + weight
        return float(held.max(initial=0) / total) if total else None

    def reach(self, first: np.ndarray, words: int) -> np.ndarray:
        """The last passage that a text can touch which begins in each of some passages.

        Args:
            first: (n,) passages, in each of which such a text begins.
            words: the most words that begin in the passages between its first and its last one.

        Returns:
            (n,) passages, each in the source of its first one.
        """
        behind = self._words_until[first + 1] + words
        last = np.searchsorted(self._words_until, behind, side="right") - 1
        return np.minimum(last, self.passages.last[first])

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
    def _tables(self) -> list[tuple[int, list[Table]]]:
        """The tables of each document, with its number."""
        found = []
        for number, document in enumerate(self._documents):
            before = len(self.damaged)
            found.append((number, tables_of(document, self.damaged)))
            if len(self.damaged) > before:
                self.counted_again.append(document.manifest.name)
        return found

    @cached_property
    def _all_tables(self) -> list[tuple[int, Table]]:
        """All tables in order, each with its first passage."""
        every = [table for _, tables in self._tables for table in tables]
        firsts = accumulate((len(table["tokens"]) for table in every), initial=0)
        return [*zip(firsts, every, strict=False)]

    @cached_property
    def _terms(self) -> list[bytes]:
        """The stems of each table, each between two newlines."""
        return [b"\n" + table["terms"].tobytes() for _, table in self._all_tables]

    @cached_property
    def _passage_words(self) -> np.ndarray:
        """Words of each passage, (P,) float64."""
        lengths = [table["lengths"] for _, table in self._all_tables]
        return np.concatenate([np.empty(0), *lengths])

    @cached_property
    def _words_until(self) -> np.ndarray:
        """Words before each passage, and of all, (P + 1,) float64."""
        return _until(self._passage_words)

    def _postings(self, stem: str) -> tuple[np.ndarray, np.ndarray]:
        """The passages that have a stem, ascending, and how often."""
        passages, counts = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        wanted = b"\n%s\n" % stem.encode()
        for (first, table), terms in zip(self._all_tables, self._terms, strict=True):
            place = terms.find(wanted)
            if place >= 0:
                number = terms.count(b"\n", 0, place)
                some = slice(*table["heads"][number : number + 2].tolist())
                passages.append(table["passages"][some] + np.int64(first))
                counts.append(table["counts"][some])
        return np.concatenate(passages), np.concatenate(counts)


def weighed(
    found: np.ndarray, held: np.ndarray, mean: float, having: int, total: int, times: int
) -> np.ndarray:
    """What a stem adds to the scores of passages, (n,) float64.

    Args:
        found: how often each has it.
        held: the words of each.
        mean: words of a passage, on average.
        having, total: how many passages have it, of how many.
        times: how often the question has it.
    """
    return times * _rarity(having, total) * _often(found, held, mean)


def _often(found: np.ndarray, held: np.ndarray, mean: float, b: float = B) -> np.ndarray:
    """How much a stem counts that texts (n,) of `held` words have so often, 0 to 1."""
    return found / (found + K1 * (1 - b + b * held / max(1.0, mean)))


def _merged(found: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """The postings of several terms as those of one: ascending units, and how often."""
    if len(found) == 1:
        return found[0]
    units, counts = map(np.concatenate, zip(*found, strict=True))
    units, places = np.unique(units, return_inverse=True)
    return units, np.bincount(places, counts, len(units)).astype(np.int64)


def _rarity(having: int, total: int) -> float:
    """The weight of a word that `having` of `total` passages have."""
    return log1p((total - having + 0.5) / (having + 0.5))


def _until(values: np.ndarray) -> np.ndarray:
    """Running sums: of the numbers before each passage, and of all, (P + 1,)."""
    sums = np.zeros(len(values) + 1)
    np.cumsum(values, out=sums[1:])
    return sums


def _between(until: np.ndarray, ranges: np.ndarray) -> np.ndarray:
    """The sums over ranges (R, 2) of passages, from running sums, (R,)."""
    return until[ranges[:, 1] + 1] - until[ranges[:, 0]]


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
    found = []
    for number in range(count_tables(document.manifest)):
        try:
            found.append(read_table(document, number))
        except StateMismatch as exc:
            damaged.append(exc.reason)
            found.append(next(word_tables(document, number)))
    return found
