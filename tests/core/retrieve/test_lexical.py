"""BM25 over passages and over ranges of them, next to bm25s and the formula written out."""

import os
from itertools import product

import numpy as np
import pytest
from bm25s import BM25
from small_documents import flip
from small_passages import small_passages
from small_words import put_words, store_words
from terms_by_hand import by_hand
from word_documents import bytes_text, write_texts

from longctx.core.common.errors import StateMismatch
from longctx.core.retrieve import lexical, word_tables
from longctx.core.retrieve.lexical import PassageIndex
from longctx.core.retrieve.ranked import BESIDE, NEIGHBOURS, by_words
from longctx.core.store.confined import Confined
from longctx.core.store.document import Document
from longctx.core.store.library import Library
from longctx.core.tokens.terms import query_terms, terms

# Each line is a passage of three tokens.
TEXT = (
    "The boats were "
    "in the harbour "
    "a keeper watched "
    "boat after boat "
    "rain and rain "
    "and more rain "
    "it is as"
)
WORDS = [
    "boat",
    "harbour",
    "keeper",
    "rain",
    "watched",
    "lantern",
    "storm",
    "light",
    "night",
    "ship",
    "sails",
    "wind",
]


@pytest.fixture
def library(tmp_path) -> Library:
    return Library.open(tmp_path / "library", create=True)


@pytest.fixture
def small(monkeypatch) -> None:
    """Passages of 3 tokens, and tables of 30."""
    small_passages(monkeypatch, 3, 30, whole=3)


def scores_of(index: PassageIndex, words: str) -> np.ndarray:
    """Of each passage."""
    return index.scores_in(words, index.passages.alone())


def random_texts(seed: int, *sizes: int) -> list[str]:
    draw = np.random.default_rng(seed)
    return [" ".join(draw.choice([*WORDS, "the", "of"], size)) for size in sizes]


def texts_of(index: PassageIndex, *documents: Document) -> list[str]:
    """The text of each passage; they end between words here."""
    found, passages = [], index.passages
    owners = [*zip(passages.documents.tolist(), passages.sources.tolist(), strict=True)]
    for number, (document, source) in enumerate(owners):
        end = documents[document].manifest.sources[source].size
        if owners[number + 1 : number + 2] == [(document, source)]:
            end = int(passages.starts[number + 1])
        start = int(passages.starts[number])
        found.append(documents[document].text(source, start, end).decode())
    return found


def by_bm25s(texts: list[str], question: str) -> np.ndarray:
    index = BM25(k1=lexical.K1, b=lexical.B, method="lucene")
    index.index(by_hand(texts), show_progress=False)
    return index.get_scores_from_ids(index.get_tokens_ids(query_terms(question)))


QUESTIONS = [
    "Where is the boat?",
    "Keepers watching the RAIN",
    "boats, boats and more rain?",  # a word that stands twice counts twice
    "whale harbour",
    "wind lantern storm boats sail ships night light keeper rain harbour",
]


def by_formula(
    texts: list[str], ranges: list[tuple[int, int]], question: str, b: float = lexical.B
) -> list[float]:
    """BM25 of ranges of passages, with the rarity of words among passages."""
    words = [[term.text for term in terms(text)] for text in texts]
    joined = [[stem for own in words[first : last + 1] for stem in own] for first, last in ranges]
    mean = sum(map(len, joined)) / len(joined)
    scores = [0.0] * len(ranges)
    for stem in query_terms(question):
        having = sum(stem in own for own in words)
        rarity = np.log(1 + (len(words) - having + 0.5) / (having + 0.5))
        for number, own in enumerate(joined):
            count = own.count(stem)
            length = 1 - b + b * len(own) / mean
            scores[number] += rarity * count / (count + lexical.K1 * length)
    return scores


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("question", QUESTIONS)
def test_scores_of_passages_are_those_of_bm25s(library, question):
    document = write_texts(library, TEXT, *random_texts(1, 100, 2, 3, 4, 61))
    index = PassageIndex(document)
    texts = texts_of(index, document)
    assert texts[:2] == ["The boats were", " in the harbour"]
    scores = scores_of(index, question)
    assert (scores.dtype, scores.shape) == (np.float64, (len(texts),))
    assert scores.max() > 0.2
    assert np.allclose(scores, by_bm25s(texts, question), atol=1e-5)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("count", [0, 1, NEIGHBOURS])
def test_scores_with_neighbours_are_those_of_the_formula(library, question, count):
    documents = [
        write_texts(library, TEXT, *random_texts(1, 20, 2, 3), name="a"),
        write_texts(library, *random_texts(6, 31), name="b"),
    ]
    index = PassageIndex(*documents)
    texts, passages = texts_of(index, *documents), index.passages
    owners = [*zip(passages.documents.tolist(), passages.sources.tolist(), strict=True)]
    ranges = []
    for number, owner in enumerate(owners):
        near = range(max(0, number - count), min(len(owners), number + count + 1))
        own = [other for other in near if owners[other] == owner]
        ranges.append((own[0], own[-1]))
    assert passages.around(count).tolist() == [[*each] for each in ranges]
    scores = index.scores_in(question, passages.around(count))
    assert scores.max() > 0.1
    assert np.allclose(scores, by_formula(texts, ranges, question))
    if count == NEIGHBOURS:
        alone = by_formula(texts, [(n, n) for n in range(len(texts))], question)
        found = by_words(index, question)
        around = by_formula(texts, ranges, question, b=0)
        assert np.allclose(found.scores, np.add(alone, np.multiply(BESIDE, around)))
        assert np.allclose(found.words, alone)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("question", QUESTIONS)
def test_of_several_documents_words_are_as_rare_as_in_all(library, question):
    texts = random_texts(2, 50, 7, 90), [TEXT], ["..."]
    documents = [write_texts(library, *some, name=f"d{i}") for i, some in enumerate(texts)]
    index = PassageIndex(*documents)
    scores = scores_of(index, question)
    assert np.allclose(scores, by_bm25s(texts_of(index, *documents), question), atol=1e-5)
    alone = scores_of(PassageIndex(documents[1]), question)
    assert not np.allclose(scores[-8:-1], alone)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("common", [True, False])
def test_stems_of_many_passages_and_of_few_are_counted_alike(library, monkeypatch, common):
    monkeypatch.setattr(lexical, "_RARE", 1 << 20 if common else 0)
    texts = random_texts(1, 90, 2, 31)
    documents = [
        write_texts(library, *texts[:2], name="a"),
        write_texts(library, texts[2], name="b"),
    ]
    index = PassageIndex(*documents)
    passages = [text.split() for text in texts_of(index, *documents)]
    for word, width in product(("boat", "ship", "wind", "nothing"), (1, 2, 8)):
        runs = index.passages.runs(width)
        counts = [passage.count(word) for passage in passages]
        expected = [sum(counts[first : last + 1]) for first, last in runs.tolist()]
        found = index.counts_in((word,), runs)
        assert found.dtype == np.float64
        assert found.tolist() == expected
        assert index.counts_in((word,), runs[3::5]).tolist() == expected[3::5]


@pytest.mark.usefixtures("small")
def test_a_word_that_a_passage_s_end_cuts_counts_once(library):
    document = bytes_text(library, b"keeperzeppelinharbour wind boat", 4)
    index = PassageIndex(document)
    assert index.passages.starts.tolist() == [0, 12, 24]
    found = {word: scores_of(index, word).nonzero()[0].tolist() for word in ("boat", "wind")}
    assert found == {"boat": [2], "wind": [1]}
    assert scores_of(index, "keeperzeppelinharbour").nonzero()[0].tolist() == [0]


def test_rare_words_weigh_more(library):
    index = PassageIndex(write_texts(library, *["boat rain", "boat wind", "boat", "keeper"]))
    weights = index.word_weights("The boats, the rains and a whale; boats")
    assert weights.keys() == {"boat", "rain"}
    assert weights["boat"] == pytest.approx(np.log(1 + 1.5 / 3.5))
    assert weights["rain"] == pytest.approx(np.log(1 + 3.5 / 1.5))
    assert index.word_weights("the whale?") == {}


@pytest.mark.parametrize("question", ["whale", "is it the", "?!", "7 x", "", "x", "\ud800"])
def test_a_question_without_a_word_of_the_document_gives_zeros(library, question):
    index = PassageIndex(write_texts(library, TEXT))
    assert scores_of(index, question).tolist() == [0.0]
    assert index.word_weights(question) == {}


@pytest.mark.parametrize("texts", [["... !! ? -- ;"], ["the and it"], ["a"], []])
def test_a_document_without_words_has_zeros(library, texts):
    scores = scores_of(PassageIndex(write_texts(library, *texts)), "the whale?")
    assert not scores.any()
    assert len(scores) == len(texts)


def test_a_question_of_five_thousand_words(library):
    document = write_texts(library, *random_texts(3, 2000))
    index = PassageIndex(document)
    question = " ".join(random_texts(4, 5000)) + " " + " ".join(f"other{i}" for i in range(5000))
    expected = by_bm25s(texts_of(index, document), question)
    assert np.allclose(scores_of(index, question), expected, rtol=1e-4)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "gb18030"])
def test_other_languages_are_searched_too(library, monkeypatch, encoding):
    small_passages(monkeypatch, 1, whole=1)
    text = "Маяк горел всю ночь 灯塔的看守人。 他写下了船。"
    index = PassageIndex(write_texts(library, text, encoding=encoding))
    found = scores_of(index, "кто видел, как горел маяк?")
    assert found.nonzero()[0].tolist() == [0, 1]
    assert scores_of(index, "看守人在哪里").argmax() == 4
    assert scores_of(index, "船").nonzero()[0].tolist() == [5]  # a pair that has it


def test_a_character_cut_by_a_border_does_no_harm(library, monkeypatch):
    small_passages(monkeypatch, 2)
    text = "one twé thr foé five"
    cut = PassageIndex(write_texts(library, text, shift=-1))  # the second passage begins in an é
    assert scores_of(cut, "thr").nonzero()[0].tolist() == [1]
    assert scores_of(cut, "twé").nonzero()[0].tolist() == [0]


# --- where the words come from ---


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("harm", [None, "missing", "flipped", "short", "wrong"])
def test_stored_words_score_the_same_and_damaged_ones_are_counted_anew(library, monkeypatch, harm):
    folder = write_texts(library, TEXT, *random_texts(5, 200, 30)).folder
    usual = PassageIndex(Document(folder))
    assert scores_of(usual, "boat").any()
    if harm == "wrong":
        files = store_words(folder, lambda table: table["heads"].fill(0), number=3)
    else:
        files = store_words(folder)
    assert len(files) > 5
    path = Confined.of(folder).path / files[3].file
    if harm == "missing":
        path.unlink()
    if harm == "flipped":
        flip(path, 400)
    if harm == "short":
        os.truncate(path, 100)
    counted, make = [], lexical.word_tables
    monkeypatch.setattr(
        lexical, "word_tables", lambda *given: counted.append(given[1:]) or make(*given)
    )
    index = PassageIndex(Document(folder))
    for question in QUESTIONS:
        assert np.array_equal(scores_of(index, question), scores_of(usual, question))
    assert counted == ([(3,)] if harm else [])
    assert len(index.damaged) == bool(harm)
    if harm:
        assert "damaged" in index.damaged[0] or "cannot read" in index.damaged[0]
        assert "--replace" not in index.damaged[0]  # the document need not be made again
    assert np.array_equal(index.passages.starts, usual.passages.starts)
    assert not usual.damaged


@pytest.mark.usefixtures("small")
def test_an_index_with_fewer_or_more_files_than_there_are(library):
    document = write_texts(library, *random_texts(5, 200))
    usual, folder = PassageIndex(document), document.folder
    tables = list(word_tables.word_tables(document))
    for stored, said in (([tables[0]], len(tables) - 1), ([*tables, tables[0]], 0)):
        put_words(folder, stored)
        index = PassageIndex(Document(folder))
        assert np.array_equal(scores_of(index, "boat"), scores_of(usual, "boat"))
        assert len(index.damaged) == said


@pytest.mark.parametrize("text", [TEXT, "..."])
def test_words_are_counted_once_and_when_they_are_wanted(library, monkeypatch, text):
    made, make = [], lexical.word_tables
    monkeypatch.setattr(lexical, "word_tables", lambda *given: made.append(1) or make(*given))
    index = PassageIndex(write_texts(library, text))
    assert made == []
    first = scores_of(index, "boat")
    assert np.array_equal(scores_of(index, "boat"), first)
    assert made == [1]


def test_tokens_that_do_not_stand_in_the_text_are_damage(library):
    index = PassageIndex(write_texts(library, "one two three", shift=90))
    with pytest.raises(StateMismatch, match=r"is damaged.*13 bytes"):
        scores_of(index, "two")
