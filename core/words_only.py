"""A search by words alone: the best windows of open documents, without a model or torch."""

from dataclasses import dataclass

import numpy as np

from longctx.core.lexical import PassageIndex
from longctx.core.store.document import Document
from longctx.core.unit_table import Units


@dataclass(frozen=True)
class Hit:
    """A window that has words of a question, or what a better one has left of it.

    Attributes:
        document: index of its document among those that were searched.
        source: index of its source in that document.
        token: its first token, counted over that document.
        tokens: how many it has.
        start, end: its bytes in the source; words that it has may end behind them.
        score: its BM25, above 0.
    """

    document: int
    source: int
    token: int
    tokens: int
    start: int
    end: int
    score: float


def best_windows(
    documents: tuple[Document, ...], index: PassageIndex, words: str, most: int
) -> list[Hit]:
    """The windows that fit a question best, the best first; ties go to the earlier one.

    No unit is given twice: of a window that shares one with a better window only the other is. So
    tokens come in the order of `PassageIndex.scores`.

    Args:
        documents: those of the index, in the same order.
        index: of their words.
        words: the question's.
        most: how many windows to give; fewer where fewer have a word of the question.

    Raises:
        StateMismatch: a document is not what was written.
    """
    scores, units = index.window_scores(words), index.units
    matching, given = np.flatnonzero(scores > 0), np.zeros(len(units), bool)
    hits = []
    for window in matching[np.argsort(-scores[matching], kind="stable")].tolist():
        if len(hits) == most:
            break
        pair = units.windows[window]
        new = pair[~given[pair]]
        if len(new):
            hits.append(_hit(documents, units, int(new[0]), int(new[-1]), float(scores[window])))
            given[pair] = True
    return hits


def _hit(documents: tuple[Document, ...], units: Units, first: int, last: int, score: float) -> Hit:
    document, number = int(units.documents[first]), int(units.sources[first])
    source = documents[document].manifest.sources[number]
    token = int(units.tokens[first] - units.first_tokens[document])
    tokens = int(units.tokens[last] + units.lengths[last] - units.tokens[first])
    start, end = int(units.starts[first]), source.size
    if token + tokens < source.first_token + source.tokens:
        end = int(units.starts[last + 1])
    return Hit(document, number, token, tokens, start, max(start, end), score)
