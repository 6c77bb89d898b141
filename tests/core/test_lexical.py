"""Passages of a document and their BM25, beside the formula written out."""

import hashlib
import math
import re
from collections import Counter

import pytest
import torch
from small_documents import HEADER

from longctx.core import lexical
from longctx.core.errors import StateMismatch
from longctx.core.lexical import PassageIndex
from longctx.core.store.document import Document
from longctx.core.store.library import Library

pytest.importorskip("bm25s", reason="needs the extra longctx[bm25]")
pytest.importorskip("Stemmer", reason="needs the extra longctx[bm25]")

# Each line is a passage of six tokens. After stop words and stemming: what PASSAGE_WORDS says.
TEXT = (
    "The boats were in the harbour "
    "a keeper watched boat after boat "
    "rain and rain and more rain "
    "it is as it was then"
)
PASSAGE_WORDS = [
    ["boat", "were", "harbour"],
    ["keeper", "watch", "boat", "after", "boat"],
    ["rain", "rain", "more", "rain"],
    [],
]


@pytest.fixture
def document_of(tmp_path):
    """A document of these texts: a token for each word, which begins with the space before it."""

    def make(*texts: str, encoding: str = "utf-8", shift: int = 0) -> Document:
        library = Library.open(tmp_path / "library", create=True)
        with library.writer("book", HEADER, False, shard_rows=64) as writer:
            for number, text in enumerate(texts):
                data = text.encode(encoding)
                ends = [len(text[: m.end()].encode(encoding)) for m in re.finditer(r"\S+", text)]
                starts = (torch.tensor([0, *ends[:-1]]) + shift).clamp(min=0)
                writer.begin_source(f"{number}.txt")
                writer.add_bytes(data)
                writer.append("tokens", {"ids": starts.int(), "starts": starts})
                writer.end_source(len(data), hashlib.sha256(data).hexdigest(), encoding, 0)
            writer.complete({"none": torch.zeros(0)})
        return library.document("book")

    return make


def bm25(question: list[str], passages: list[list[str]]) -> list[float]:
    """Lucene's formula, as bm25s has it by default, for stems."""
    k1, b, count = 1.5, 0.75, len(passages)
    mean = sum(map(len, passages)) / count
    scores = []
    for passage in passages:
        score, times = 0.0, Counter(passage)
        for word in question:
            having = sum(word in other for other in passages)
            if having:
                rarity = math.log(1 + (count - having + 0.5) / (having + 0.5))
                length = 1 - b + b * len(passage) / mean
                score += rarity * times[word] / (times[word] + k1 * length)
        scores.append(score)
    return scores


@pytest.mark.parametrize(
    ("question", "stems"),
    [
        ("Where is the boat?", ["where", "boat"]),
        ("Keepers watching the RAIN", ["keeper", "watch", "rain"]),
        ("boats, boats and more rain?", ["boat", "boat", "more", "rain"]),
        ("whale harbour", ["whale", "harbour"]),
    ],
)
def test_scores_are_the_formula_s_by_stems_without_stop_words(
    document_of, monkeypatch, question, stems
):
    monkeypatch.setattr(lexical, "PASSAGE", 6)
    scores = PassageIndex(document_of(TEXT)).scores(question)
    expected = torch.tensor(bm25(stems, PASSAGE_WORDS)).repeat_interleave(6)
    assert expected.max() > 0.2
    assert torch.allclose(scores.pooled, expected, atol=1e-6)
    assert torch.equal(scores.raw, scores.pooled)


def test_passages_have_128_tokens_of_one_source(document_of):
    sizes = (300, 10, 128)
    texts = [" ".join(f"w{number}x{i}" for i in range(n)) for number, n in enumerate(sizes)]
    index = PassageIndex(document_of(*texts))
    assert len(index.scores("none").raw) == 438
    spans = [(0, 128), (128, 256), (256, 300), (300, 310), (310, 438)]
    for word, (first, end) in zip(
        ("w0x0", "w0x255", "w0x299 w0x256", "w1x0 w1x9", "w2x0 w2x127"), spans, strict=True
    ):
        found = index.scores(word).pooled
        assert found.nonzero()[:, 0].tolist() == [*range(first, end)]
        assert found[first:end].unique().numel() == 1


@pytest.mark.parametrize("question", ["whale", "is it the", "?!", "7 x"])
def test_a_question_without_a_word_of_the_document_gives_zeros(document_of, question):
    scores = PassageIndex(document_of(TEXT)).scores(question)
    assert scores.pooled.tolist() == [0.0] * 24


@pytest.mark.parametrize("text", ["... !! ? -- ;", "the and it", "a"])
def test_a_document_without_words_has_zeros(document_of, text):
    assert not PassageIndex(document_of(text)).scores("the whale?").pooled.any()


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "gb18030"])
def test_other_languages_are_searched_too(document_of, monkeypatch, encoding):
    monkeypatch.setattr(lexical, "PASSAGE", 2)
    text = "Маяк горел всю ночь 灯塔的看守人。 他写下了船。"
    index = PassageIndex(document_of(text, encoding=encoding))
    assert index.scores("кто видел, как горел маяк?").pooled.nonzero()[:, 0].tolist() == [0, 1]
    assert index.scores("看守人在哪里").pooled.argmax() == 4  # Han characters count one by one


def test_a_character_cut_by_a_border_does_no_harm(document_of, monkeypatch):
    monkeypatch.setattr(lexical, "PASSAGE", 2)
    text = "one twé thr foé five"
    cut = PassageIndex(document_of(text, shift=-1))  # the second passage begins within an é
    assert cut.scores("thr").pooled.nonzero()[:, 0].tolist() == [2, 3]
    assert cut.scores("one").pooled.nonzero()[:, 0].tolist() == [0, 1]


@pytest.mark.parametrize("text", [TEXT, "..."])
def test_words_are_counted_once_and_when_they_are_wanted(document_of, monkeypatch, text):
    made, make = [], lexical._index
    monkeypatch.setattr(lexical, "_index", lambda document: made.append(1) or make(document))
    index = PassageIndex(document_of(text))
    assert made == []
    first = index.scores("boat").raw.clone()
    assert torch.equal(index.scores("boat").raw, first)
    assert made == [1]


def test_tokens_that_do_not_stand_in_the_text_are_damage(document_of):
    index = PassageIndex(document_of("one two three", shift=90))
    with pytest.raises(StateMismatch, match=r"'book' is damaged.*13 bytes"):
        index.scores("two")
