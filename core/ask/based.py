"""What an answer, or a search, is based on: documents, their passages, and the scores of these."""

import math
from dataclasses import dataclass

import numpy as np

from longctx.core.ask.answer import Found
from longctx.core.ask.answering import Answering, Question
from longctx.core.ask.gather import gathered_spans
from longctx.core.ask.gathering import Gatherer
from longctx.core.ask.place import placed
from longctx.core.passages.matching import Query
from longctx.core.retrieve.best_passages import Chosen
from longctx.core.retrieve.lexical import PassageIndex
from longctx.core.retrieve.ranked import Ranked, by_tokens
from longctx.core.store.document import Document


@dataclass(frozen=True)
class Looked:
    """The result of a search before passages are chosen.

    Attributes:
        found: what is reported, without passages.
        documents: the documents searched. They stay open until others are asked.
        index: their passages, and their words.
        ranked: their passages with scores, higher is better.
    """

    found: Found
    documents: tuple[Document, ...]
    index: PassageIndex
    ranked: Ranked


@dataclass(frozen=True)
class Based:
    """What an answer was gathered from.

    Attributes:
        documents: those asked, in order. They stay open until others are asked.
        ranked: their passages with the scores by which they were chosen, higher is better; None:
            nothing was compared, since everything was put before the model.
    """

    documents: tuple[Document, ...]
    ranked: Ranked | None


def based(way: Answering, chosen: Chosen) -> Based:
    """What was gathered from, for tokens that a way chose."""
    ranked = chosen.ranked
    if ranked is None and len(chosen.scores.raw):
        ranked = ranked_by_tokens(way, chosen)
    return Based(way.documents, ranked)


def ranked_by_tokens(way: Answering, chosen: Chosen) -> Ranked:
    """The passages with the scores of their best tokens, where a method's own rule chose."""
    return by_tokens(way.index.passages, _of_candidates(way, chosen))


def read_cited(way: Answering, chosen: Chosen) -> None:
    """Reads the text that an answer will cite; StateMismatch if it is damaged."""
    for document, *span in gathered_spans(way.documents, chosen.tokens, chosen.scores.raw):
        document.text(*span)
        placed(document, *span)


def query_of(way: Answering, question: Question) -> Query:
    """A question's own words, with the weights that they have in the documents asked."""
    words = question.own or question.words
    weights = way.index.word_weights(words)
    return Query(words, weights, languages=way.index.languages)


def _of_candidates(way: Answering, chosen: Chosen) -> np.ndarray:
    """Each token's own score, (N,) float64; `-inf` where nothing attended to it."""
    raw = chosen.scores.raw.double()
    if not isinstance(way, Gatherer):
        raw = raw.masked_fill(chosen.scores.pooled < 0, -math.inf)
    return raw.numpy()
