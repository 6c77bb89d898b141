"""Document selection: which of many documents to ask, by the words of their passages.

A document's score is that of its best passage, by the BM25 that a search ranks passages with
(`lexical`); a word's rarity counts the passages of all documents. Of a few documents the word
indexes are read one after another, and only the counts of the question's words kept; of thousands,
`library_words.py` has them in one index. Both give the same scores. Independent of models and
methods.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from longctx.core.retrieve.lexical import PassageIndex, weighed
from longctx.core.retrieve.library_words import LibraryWords
from longctx.core.store.document import Document
from longctx.core.tokens.terms import query_forms


@dataclass(frozen=True)
class _Counted:
    """A document's passages: their terms (P,), and by each word of the question in normal form how
    often the question has it, and each passage (P,)."""

    held: np.ndarray
    times: dict[str, tuple[int, np.ndarray]]


def best_documents(documents: Iterable[Document], words: str, count: int) -> list[int]:
    """The documents with the best-matching passages.

    Args:
        documents: opened one after another; only the counts of each are kept.
        words: of the question; without any that count, the first documents are chosen.
        count: how many to choose.

    Returns:
        Their indices, ascending; ties go to the earlier.

    Raises:
        StateMismatch: a document's text or tokens are damaged.
    """
    counted = [_counted(document, words) for document in documents]
    total = sum(len(each.held) for each in counted)
    mean = sum(float(each.held.sum()) for each in counted) / max(1, total)
    having: Counter[str] = Counter()
    for each in counted:
        having.update({form: int((found > 0).sum()) for form, (_, found) in each.times.items()})
    scores = []
    for each in counted:
        found = np.zeros(len(each.held))
        for form, (asked, times) in each.times.items():
            found += weighed(times, each.held, mean, having[form], total, asked)
        scores.append(float(found.max(initial=0)))
    return _best(np.array(scores), count)


def best_of_library(words: LibraryWords, question: str, count: int) -> list[int]:
    """As `best_documents`, of all documents of an index, without opening any.

    Returns:
        Indices in `words.documents`.

    Raises:
        StateMismatch: a document that has to be read again is damaged.
    """
    passages = words.passages
    scores = np.zeros(len(words.documents))
    np.maximum.at(scores, passages.documents, words.scores_in(question, passages.alone()))
    return _best(scores, count)


def _best(scores: np.ndarray, count: int) -> list[int]:
    return sorted(np.argsort(-scores, kind="stable")[:count].tolist())


def _counted(document: Document, words: str) -> _Counted:
    index = PassageIndex(document)
    alone = index.passages.alone()
    asked = Counter(query_forms(words, document.manifest.language))
    times = {
        form: (often, index.counts_in(index.looked_up((term,)), alone))
        for (form, term), often in asked.items()
    }
    return _Counted(index.held(alone), times)
