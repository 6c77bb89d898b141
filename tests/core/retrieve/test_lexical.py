"""BM25 over windows of two units, beside bm25s and the formula written out."""

import os
from itertools import pairwise, product

import numpy as np
import pytest
import torch
from bm25s import BM25
from bm25s_words import by_bm25s_words
from small_documents import flip
from small_words import put_words, store_words
from word_documents import bytes_text, write_texts

from longctx.core.common.errors import StateMismatch
from longctx.core.retrieve import lexical, unit_table, word_tables
from longctx.core.retrieve.lexical import PassageIndex
from longctx.core.store.confined import Confined
from longctx.core.store.document import Document
from longctx.core.store.library import Library
from longctx.core.tokens.stems import stems

# Each line is a unit of three tokens, or the window of the line and the next.
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
    """Units of 3 tokens, and tables of 30."""
    monkeypatch.setattr(unit_table, "UNIT", 3)
    monkeypatch.setattr(word_tables, "FILE_TOKENS", 30)


def scores_of(index: PassageIndex, words: str) -> torch.Tensor:
    """Of each token the better score of its windows."""
    best = index.units.best(index.window_scores(words))
    return torch.from_numpy(np.repeat(best, index.units.lengths))


def random_texts(seed: int, *sizes: int) -> list[str]:
    draw = np.random.default_rng(seed)
    return [" ".join(draw.choice([*WORDS, "the", "of"], size)) for size in sizes]


def window_texts(index: PassageIndex, *documents: Document) -> list[str]:
    """The text of each window; units end between words here."""
    found, units = [], index.units
    for first, last in units.windows.tolist():
        document, source = int(units.documents[first]), int(units.sources[first])
        end = documents[document].manifest.sources[source].size
        after = last + 1
        if after < len(units) and (units.documents[after], units.sources[after]) == (
            document,
            source,
        ):
            end = int(units.starts[after])
        found.append(documents[document].text(source, int(units.starts[first]), end).decode())
    return found


def by_bm25s(texts: list[str], question: str) -> np.ndarray:
    index = BM25(k1=lexical.K1, b=lexical.B, method="lucene")
    index.index(by_bm25s_words(texts), show_progress=False)
    return index.get_scores_from_ids(index.get_tokens_ids([stem for _, _, stem in stems(question)]))


QUESTIONS = [
    "Where is the boat?",
    "Keepers watching the RAIN",
    "boats, boats and more rain?",  # a word that stands twice counts twice
    "whale harbour",
    "wind lantern storm boats sail ships night light keeper rain harbour",
]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("question", QUESTIONS)
def test_scores_of_windows_are_those_of_bm25s(library, question):
    document = write_texts(library, TEXT, *random_texts(1, 100, 2, 3, 4, 61))
    index = PassageIndex(document)
    texts = window_texts(index, document)
    assert texts[0].split() == ["The", "boats", "were", "in", "the", "harbour"]
    scores = index.window_scores(question)
    assert (scores.dtype, scores.shape) == (np.float32, (len(texts),))
    assert scores.max() > 0.2
    assert np.allclose(scores, by_bm25s(texts, question), atol=1e-5)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("question", QUESTIONS)
def test_of_several_documents_words_are_as_rare_as_in_all(library, question):
    texts = random_texts(2, 50, 7, 90), [TEXT], ["..."]
    documents = [write_texts(library, *some, name=f"d{i}") for i, some in enumerate(texts)]
    index = PassageIndex(*documents)
    scores = index.window_scores(question)
    assert np.allclose(scores, by_bm25s(window_texts(index, *documents), question), atol=1e-5)
    alone = PassageIndex(documents[1]).window_scores(question)
    assert not np.allclose(scores[-7:-1], alone)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("common", [True, False])
def test_stems_of_many_units_and_of_few_are_counted_alike(library, monkeypatch, common):
    monkeypatch.setattr(lexical, "_RARE", 1 << 20 if common else 0)
    texts = random_texts(1, 90, 2, 31)
    units = [text.split()[n : n + 3] for text in texts for n in range(0, len(text.split()), 3)]
    index = PassageIndex(
        write_texts(library, *texts[:2], name="a"), write_texts(library, texts[2], name="b")
    )
    for word, width in product(("boat", "ship", "wind", "nothing"), (1, 2, 8)):
        spans = index.units.spans(width)
        counts = [unit.count(word) for unit in units]
        expected = [sum(counts[first : last + 1]) for first, last in spans.tolist()]
        found = index.counts(stems(word)[0][2], width)
        assert found.dtype == np.float64
        assert found.tolist() == expected
        assert index.counts_in(stems(word)[0][2], spans[3::5]).tolist() == expected[3::5]


@pytest.mark.usefixtures("small")
def test_a_word_that_a_unit_s_end_cuts_counts_once(library):
    document = bytes_text(library, b"keeper zeppelin harbour wind", 4)  # cut within each of them
    index = PassageIndex(document)
    assert index.units.windows.tolist() == [[0, 1], [1, 2]]
    found = {word: index.window_scores(word).nonzero()[0].tolist() for word in WORDS[:3]}
    assert found == {"boat": [], "harbour": [0, 1], "keeper": [0]}
    assert index.window_scores("zeppelin").nonzero()[0].tolist() == [0]


@pytest.mark.usefixtures("small")
def test_a_token_has_the_better_score_of_its_windows(library):
    index = PassageIndex(write_texts(library, TEXT, "one whale"))
    scores = scores_of(index, "boat")
    windows = torch.from_numpy(index.window_scores("boat"))
    assert windows.count_nonzero() == 3
    each = [windows[0], *(max(a, b) for a, b in pairwise(windows[:6])), windows[5]]
    expected = torch.stack(each).repeat_interleave(3)[:21]
    assert torch.equal(scores, torch.cat([expected[:21], torch.zeros(2)]))
    assert scores_of(index, "whale").nonzero()[:, 0].tolist() == [21, 22]


def test_windows_have_128_tokens_of_one_source(library):
    sizes = (300, 10, 128)
    texts = [" ".join(f"w{number}x{i}" for i in range(n)) for number, n in enumerate(sizes)]
    index = PassageIndex(write_texts(library, *texts))
    assert len(scores_of(index, "none")) == 438
    spans = [(0, 128), (128, 256), (192, 300), (300, 310), (310, 438)]
    for word, (first, end) in zip(
        ("w0x0", "w0x191", "w0x299 w0x256", "w1x0 w1x9", "w2x0 w2x127"), spans, strict=True
    ):
        found = scores_of(index, word)
        low = 64 if word == "w0x191" else first  # the middle of two windows
        assert found.nonzero()[:, 0].tolist() == [*range(low, end)]


def test_rare_words_weigh_more(library):
    index = PassageIndex(write_texts(library, *["boat rain", "boat wind", "boat", "keeper"]))
    weights = index.word_weights("The boats, the rains and a whale; boats")
    assert weights.keys() == {"boat", "rain"}
    assert weights["boat"] == pytest.approx(np.log(1 + 1.5 / 3.5))
    assert weights["rain"] == pytest.approx(np.log(1 + 3.5 / 1.5))
    assert index.word_weights("the whale?") == {}
    assert index.stems("The boats") == [(4, 9, "boat")]


@pytest.mark.parametrize("question", ["whale", "is it the", "?!", "7 x", "", "x", "\ud800"])
def test_a_question_without_a_word_of_the_document_gives_zeros(library, question):
    index = PassageIndex(write_texts(library, TEXT))
    assert scores_of(index, question).tolist() == [0.0] * 21
    assert index.word_weights(question) == {}


@pytest.mark.parametrize("texts", [["... !! ? -- ;"], ["the and it"], ["a"], []])
def test_a_document_without_words_has_zeros(library, texts):
    scores = scores_of(PassageIndex(write_texts(library, *texts)), "the whale?")
    assert not scores.any()
    assert len(scores) == sum(len(text.split()) for text in texts)


def test_a_question_of_five_thousand_words(library):
    document = write_texts(library, *random_texts(3, 2000))
    index = PassageIndex(document)
    question = " ".join(random_texts(4, 5000)) + " " + " ".join(f"other{i}" for i in range(5000))
    expected = by_bm25s(window_texts(index, document), question)
    assert np.allclose(index.window_scores(question), expected, rtol=1e-4)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "gb18030"])
def test_other_languages_are_searched_too(library, monkeypatch, encoding):
    monkeypatch.setattr(unit_table, "UNIT", 1)
    text = "Маяк горел всю ночь 灯塔的看守人。 他写下了船。"
    index = PassageIndex(write_texts(library, text, encoding=encoding))
    found = index.window_scores("кто видел, как горел маяк?")
    assert found.nonzero()[0].tolist() == [0, 1]
    assert index.window_scores("看守人在哪里").argmax() in (3, 4)  # Han characters count one by one


def test_a_character_cut_by_a_border_does_no_harm(library, monkeypatch):
    monkeypatch.setattr(unit_table, "UNIT", 2)
    text = "one twé thr foé five"
    cut = PassageIndex(write_texts(library, text, shift=-1))  # the second unit begins in an é
    assert cut.window_scores("thr").nonzero()[0].tolist() == [0, 1]
    assert cut.window_scores("twé").nonzero()[0].tolist() == [0]


# --- where the words come from ---


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("harm", [None, "missing", "flipped", "short", "wrong"])
def test_stored_words_score_the_same_and_damaged_ones_are_counted_anew(library, monkeypatch, harm):
    folder = write_texts(library, TEXT, *random_texts(5, 200, 30)).folder
    usual = PassageIndex(Document(folder))
    assert usual.window_scores("boat").any()
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
        assert np.array_equal(index.window_scores(question), usual.window_scores(question))
    assert counted == ([(3,)] if harm else [])
    assert len(index.damaged) == bool(harm)
    if harm:
        assert "damaged" in index.damaged[0] or "cannot read" in index.damaged[0]
        assert "--replace" not in index.damaged[0]  # the document need not be made again
    assert np.array_equal(index.units.starts, usual.units.starts)
    assert not usual.damaged


@pytest.mark.usefixtures("small")
def test_an_index_with_fewer_or_more_files_than_there_are(library):
    document = write_texts(library, *random_texts(5, 200))
    usual, folder = PassageIndex(document), document.folder
    tables = list(word_tables.word_tables(document))
    for stored, said in (([tables[0]], len(tables) - 1), ([*tables, tables[0]], 0)):
        put_words(folder, stored)
        index = PassageIndex(Document(folder))
        assert np.array_equal(index.window_scores("boat"), usual.window_scores("boat"))
        assert len(index.damaged) == said


@pytest.mark.parametrize("text", [TEXT, "..."])
def test_words_are_counted_once_and_when_they_are_wanted(library, monkeypatch, text):
    made, make = [], lexical.word_tables
    monkeypatch.setattr(lexical, "word_tables", lambda *given: made.append(1) or make(*given))
    index = PassageIndex(write_texts(library, text))
    assert made == []
    first = scores_of(index, "boat").clone()
    assert torch.equal(scores_of(index, "boat"), first)
    assert made == [1]


def test_tokens_that_do_not_stand_in_the_text_are_damage(library):
    index = PassageIndex(write_texts(library, "one two three", shift=90))
    with pytest.raises(StateMismatch, match=r"'book' is damaged.*13 bytes"):
        scores_of(index, "two")
