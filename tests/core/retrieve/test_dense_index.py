"""Cosines of a question with stored vectors: which passages they find, and when there are none."""

import numpy as np
import pytest
from small_documents import HEADER, flip
from small_passages import small_passages
from word_documents import write_words

from longctx.core.common.errors import LongctxError
from longctx.core.dense.question import question_vector
from longctx.core.dense.texts import encoded
from longctx.core.dense.weights import FINGERPRINT
from longctx.core.retrieve.dense_index import DenseIndex, no_vectors
from longctx.core.retrieve.gather_by import Sought, load
from longctx.core.retrieve.lexical import PassageIndex
from longctx.core.retrieve.vector_tables import vector_tables
from longctx.core.retrieve.word_tables import passage_texts, word_tables
from longctx.core.store.document import Document
from longctx.core.store.library import Library

LINES = [
    *(f"Sack {i} of flour went to the mill on Monday and was weighed twice." for i in range(8)),
    "The chart lay hidden below the stairs until the cook came upon it.",
    *(f"Sack {i} of barley went to the mill on Friday and was weighed twice." for i in range(8)),
]
QUESTION = "Who discovered the map?"


@pytest.fixture
def library(tmp_path, monkeypatch) -> Library:
    small_passages(monkeypatch, 16, 64)
    return Library.open(tmp_path / "library", create=True)


def put(library: Library, name: str, encoder: str = FINGERPRINT) -> Document:
    return write_words(library, "\n".join(LINES), name, {**HEADER, "encoder": encoder})


def index(*documents: Document) -> DenseIndex:
    return DenseIndex(documents, PassageIndex(*documents))


def test_cosines_are_those_of_the_passages_texts(library):
    document = put(library, "book")
    dense = index(document)
    found = dense.cosines(QUESTION)
    count = document.word_files
    assert count > 1
    texts = [text for number in range(count) for text in passage_texts(document, number)]
    wanted = encoded(texts, "cpu").numpy() @ question_vector(QUESTION)
    assert found.shape == (len(PassageIndex(document).passages),) == wanted.shape
    assert np.allclose(found, wanted, atol=0.01)
    assert "chart" in texts[found.argmax()]
    assert dense.without == []
    assert dense.cosines(" ").tolist() == [0.0] * len(found)


def test_several_documents_follow_one_another(library):
    one, two = put(library, "one"), put(library, "two")
    both = index(one, two).cosines(QUESTION)
    assert both.tolist() == [*index(one).cosines(QUESTION), *index(two).cosines(QUESTION)]


def test_hybrid_finds_what_shares_no_word_with_the_question(library):
    document = put(library, "book")
    words, dense = PassageIndex(document), index(document)
    sought = Sought(QUESTION, words, lambda: dense.cosines(QUESTION))
    texts = [text for n in range(document.word_files) for text in passage_texts(document, n)]
    assert not load("bm25").rank(sought).words.any()
    for name in ("hybrid", "dense"):
        best = load(name).rank(sought).scores.argsort()[-2:]
        assert any("chart" in texts[number] for number in best), name


@pytest.mark.parametrize("how", ["none", "another", "damaged", "gone"])
def test_without_usable_vectors_there_are_no_cosines(library, how):
    whole = put(library, "whole")
    other = put(library, "other", {"none": "", "another": "another-1"}.get(how, FINGERPRINT))
    file = library.path / "documents" / "other" / "vectors-00001.safetensors"
    if how == "damaged":
        flip(file, -3)
    elif how == "gone":
        file.unlink()
    dense = index(whole, library.document("other") if file.exists() or how == "gone" else other)
    assert dense.missing == dense.without == ["other"]
    assert dense.cosines(QUESTION) is None
    error = no_vectors("dense", dense.missing)
    assert isinstance(error, LongctxError)
    assert "other" in str(error)
    assert "--gather-by bm25" in str(error)


def test_nothing_is_amiss_where_none_were_wanted(library):
    dense = index(put(library, "plain", ""))
    assert (dense.missing, dense.without) == (["plain"], [])


def test_no_passages_have_no_cosines():
    assert index().cosines(QUESTION) is None
    assert index().without == []


def test_tables_begin_where_asked(library):
    document = put(library, "book")
    every = [*vector_tables(document)]
    [last] = vector_tables(document, document.word_files - 1)
    assert last["vectors"].tobytes() == every[-1]["vectors"].tobytes()
    assert [len(t["scales"]) for t in every] == [
        len(document.words(n)["tokens"]) for n in range(document.word_files)
    ]
    assert len([*word_tables(document)]) == len(every)
