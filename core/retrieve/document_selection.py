"""Document selection: which of many documents to ask, by the words of their windows.

A document's score is that of its best window, by the BM25 that a search ranks windows with
(`lexical`); a word's rarity counts the windows of all documents. Of a few documents the word
indexes are read one after another, and only the counts of the question's words kept; of thousands,
`library_words.py` has them in one index. Both give the same scores. Independent of models and
methods.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from longctx.core.retrieve.lexical import WINDOW, PassageIndex, weighed
from longctx.core.retrieve.library_words import LibraryWords
from longctx.core.store.document import Document
from longctx.core.tokens.stems import asked


@dataclass(frozen=True)
class _Counted:
    """A document's windows: their words (W,), and how often each has each stem (S, W)."""

    held: np.ndarray
    times: np.ndarray


def best_documents(documents: Iterable[Document], words: str, count: int) -> list[int]:
    """The documents with the best-matching windows.

    Args:
        documents: opened one after another; only the counts of each are kept.
        words: of the question; without any that count, the first documents are chosen.
        count: how many to choose.

    Returns:
        Their indices, ascending; ties go to the earlier.

    Raises:
        StateMismatch: a document's text or tokens are damaged.
    """
    stems = Counter(asked(words))
    counted = [_counted(document, [*stems]) for document in documents]
    windows = sum(len(each.held) for each in counted)
    mean = sum(float(each.held.sum()) for each in counted) / max(1, windows)
    none = np.zeros(len(stems), np.int64)
    having = sum(((each.times > 0).sum(axis=1) for each in counted), none)
    scores = []
    for each in counted:
        found = np.zeros(len(each.held))
        for number, times in enumerate(stems.values()):
            with_it = int(having[number])
            found += weighed(each.times[number], each.held, mean, with_it, windows, times)
        scores.append(float(found.astype(np.float32).max(initial=0)))
    return _best(np.array(scores), count)


def best_of_library(words: LibraryWords, question: str, count: int) -> list[int]:
    """As `best_documents`, of all documents of an index, without opening any.

    Returns:
        Indices in `words.documents`.

    Raises:
        StateMismatch: a document that has to be read again is damaged.
    """
    windows = words.window_scores(question)
    owners = words.units.documents[words.units.windows[:, 0]]
    scores = np.zeros(len(words.documents), np.float32)
    np.maximum.at(scores, owners, windows)
    return _best(scores, count)


def _best(scores: np.ndarray, count: int) -> list[int]:
    return sorted(np.argsort(-scores, kind="stable")[:count].tolist())


def _counted(document: Document, stems: list[str]) -> _Counted:
    index = PassageIndex(document)
    times = [index.counts(stem, WINDOW) for stem in stems]
    held = index.held(WINDOW)
    return _Counted(held, np.array(times).reshape(len(stems), len(held)))
