"""Which documents a question is asked of, beside bm25s."""

import random

import pytest
from bm25s import BM25
from small_passages import small_passages
from terms_by_hand import by_hand
from word_documents import write_texts

from longctx.core.retrieve import lexical
from longctx.core.retrieve.document_selection import best_documents, best_of_library
from longctx.core.retrieve.library_words import LibraryWords
from longctx.core.store.library import Library
from longctx.core.tokens.terms import query_terms

WORDS = [f"word{letter}" for letter in "abcdefghijkl"]
QUESTION = "wordc wordh wordi wordh"


@pytest.fixture
def library(tmp_path) -> Library:
    return Library.open(tmp_path / "library", create=True)


def texts_of(seed: int) -> list[str]:
    chance = random.Random(seed)
    return [" ".join(chance.choices(WORDS, k=size)) for size in (5, 64, 90, 300, 310, 400, 128, 7)]


def by_bm25s(texts: list[str], question: str) -> list[float]:
    """The score of each text's best passage of 64 words, as bm25s has it."""
    cut = []
    for text in texts:
        words = text.split()
        starts = range(0, len(words), 64)
        cut.append([" ".join(words[start : start + 64]) for start in starts])
    index = BM25(k1=lexical.K1, b=lexical.B, method="lucene")
    corpus = by_hand([passage for passages in cut for passage in passages])
    index.index(corpus, show_progress=False)
    wanted = [corpus.vocab[stem] for stem in query_terms(question) if stem in corpus.vocab]
    scores = iter(index.get_scores_from_ids(wanted).tolist())
    return [max(next(scores) for _ in passages) for passages in cut]


@pytest.mark.parametrize("seed", range(4))
def test_documents_rank_as_by_their_best_passage_of_bm25s(library, monkeypatch, seed):
    small_passages(monkeypatch, 64, whole=64)
    texts = texts_of(seed)
    documents = [write_texts(library, text, name=f"d{n}") for n, text in enumerate(texts)]
    scores = by_bm25s(texts, QUESTION)
    assert len({round(score, 4) for score in scores}) > 5
    ranked = sorted(range(len(texts)), key=lambda i: (-round(scores[i], 5), i))
    words = LibraryWords(library, library.facts())
    for count in range(1, 9):
        assert best_documents(iter(documents), QUESTION, count) == sorted(ranked[:count])
        assert best_of_library(words, QUESTION, count) == sorted(ranked[:count])


@pytest.mark.parametrize("question", ["seldom", "?", "what"])
def test_without_a_word_in_common_the_first_documents_are_asked(library, question):
    documents = [write_texts(library, "one two", name=f"d{number}") for number in range(3)]
    assert best_documents(documents, question, 2) == [0, 1]
    assert best_of_library(LibraryWords(library, library.facts()), question, 2) == [0, 1]
