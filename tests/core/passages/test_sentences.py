"""Where sentences and lines begin and end, and ranges of tokens that grow to them."""

import random

import pytest
import torch
from small_documents import HEADER, add_source

from longctx.core.passages.sentences import REACH, grown, sentences, word_begin, word_end
from longctx.core.store.document import Document
from longctx.core.store.library import Library

SENTENCES = [
    # One inner list for each text: its sentences, which the text joins with a space.
    ["Mr. Smith met Dr. Jones.", "They spoke of J. R. Hale.", "Why?"],
    ["See No. 5 and figs. 3, 4, e.g. the map.", "He said no.", "She left at 5."],
    ["He cried: “Stop!” and ran.", "“Come.”", "(He came.)", '"Go!"', "**Bold.**", "End"],
    ["It was in the U.S. Army.", "So... perhaps.", "Well…", "What?!", "Version 3.5.1 is out."],
    ["Ф. Ж. Пушкин писал.", "Кто?", "Он!", "هل هذا صحيح؟", "نعم.", "यह है।", "Ok."],
    ["It leaves Pier No. B12 at 7.", "Lieut. Hale read Vol. IV.", "Cast by Wm. Hale in c. 1702."],
    ["It is Brown v. Hale.", "He said no.", "I said no.", "Rev. Ft. St. Hale sat.", "Sat. 5 May."],
    ["approx. five boats etc. came on Jan. 3.", "Yahoo! is a name."],
]


@pytest.fixture
def document_of(tmp_path):
    """A document of these texts, with a token for every two bytes."""

    def make(*texts: str | bytes) -> Document:
        library = Library.open(tmp_path / "library", create=True)
        with library.writer("book", HEADER, True) as writer:
            for number, text in enumerate(texts):
                data = text.encode() if isinstance(text, str) else text
                add_source(writer, f"{number}.txt", data)
            writer.complete({"none": torch.zeros(0)})
        return library.document("book")

    return make


def cut(text: str) -> list[str]:
    return [text[start:end] for start, end in sentences(text)]


@pytest.mark.parametrize("wanted", SENTENCES, ids=lambda wanted: wanted[0][:12])
def test_sentences_end_at_their_marks_and_not_at_abbreviations(wanted):
    assert cut(" ".join(wanted)) == wanted
    assert cut("  " + "  ".join(wanted) + " \n") == wanted


def test_chinese_and_japanese_need_no_space():
    assert cut("他说。她走了\uff01「好。」然后\uff1f") == [
        "他说。",
        "她走了\uff01",
        "「好。」",
        "然后\uff1f",
    ]


def test_every_line_ends_a_sentence_and_empty_ones_are_none():
    code = "def f(x):\r\n    return x.y\n\n\n# done. Yes\n"
    assert cut(code) == ["def f(x):", "return x.y", "# done.", "Yes"]
    assert cut("1. First. Go on\n2. Second") == ["1. First.", "Go on", "2. Second"]
    assert cut("") == cut(" \n\t\n ") == []


def test_a_run_of_marks_is_one():
    assert cut("." * 50_000 + "a. B") == ["." * 50_000 + "a.", "B"]


@pytest.mark.parametrize("text", ["snake_case", "don't", "naïve", "हिन्दी", "1905", "don\u2019t"])
def test_no_place_in_a_word_is_its_end(text):
    for place in range(1, len(text)):
        assert word_begin(f" {text} ", place + 1) == 1
        assert word_end(f" {text} ", place + 1) == 1 + len(text)


def test_between_words_and_chinese_characters_nothing_is_added():
    for text, place in [("a b", 1), ("a b", 2), ("看守人", 1), ("a-b", 1), ("", 0), ("ab", 2)]:
        assert word_begin(text, place) == word_end(text, place) == place


def test_a_range_grows_to_its_sentences(document_of):
    text = "One is here. Two goes far. Three is the end.\nFour."
    document = document_of(text)
    inside = text.index("goes") // 2  # tokens of two bytes
    first, end = grown(document, inside, inside + 1)
    assert text[2 * first : 2 * end].strip() == "Two goes far."
    over = text.index("Three") // 2 + 1
    first, end = grown(document, inside, over)
    assert text[2 * first : 2 * end].strip(" \n") == "Two goes far. Three is the end."


def test_a_range_stays_in_its_source_and_what_is_whole_stays(document_of):
    document = document_of("no end here", "nor here")
    assert grown(document, 2, 3) == (0, 6)
    assert grown(document, 7, 8) == (6, 10)
    assert grown(document, 0, 6) == (0, 6)
    for wrong in [(5, 7), (3, 3), (9, 11)]:
        with pytest.raises(ValueError, match=r"not of one source|and no"):
            grown(document, *wrong)


def test_where_no_sentence_is_near_words_stay_whole(document_of):
    text = " ".join(["lighthouses"] * 100)
    document = document_of(text)
    first, end = grown(document, 200, 210)
    found = text[2 * first : 2 * end]
    assert set(found.split()) == {"lighthouses"}
    assert 200 - 6 <= first <= 200
    assert 210 <= end <= 210 + 6


def test_a_word_without_an_end_grows_as_far_as_it_may(document_of):
    document = document_of("x" * 2000)
    assert grown(document, 500, 510) == (500 - REACH, 510 + REACH)
    assert grown(document, 500, 510, reach=0) == (500, 510)


@pytest.mark.parametrize(
    "data", [b"\xff\xfe" * 40, b"\n" * 80, "é".encode() * 40, b"a\x00b.\n" * 9]
)
def test_no_bytes_are_too_strange(document_of, data):
    document = document_of(data)
    for first in range(document.manifest.tokens):
        low, high = grown(document, first, first + 1)
        assert 0 <= low <= first < high <= document.manifest.tokens


def test_of_random_texts_every_range_grows_to_sentences_as_the_whole_text_has_them(document_of):
    drawn = random.Random(7)
    words = [
        "the",
        "Keeper",
        "saw.",
        "Boats!",
        "“Yes.”",
        "Mr.",
        "rain,",
        "naïve",
        "看守人。",
        "it?",
        "\n",
    ]
    text = " ".join(drawn.choice(words) for _ in range(400))
    document = document_of(text)
    place = [len(text[:n].encode()) for n in range(len(text) + 1)]
    spans = [(place[start], place[end]) for start, end in sentences(text)]
    compared = 0
    for _ in range(400):
        first = drawn.randrange(document.manifest.tokens - 40)
        end = first + drawn.randrange(1, 40)
        low, high = grown(document, first, end)
        start = max((s for s, e in spans if s <= 2 * first < e), default=2 * first)
        stop = min((e for s, e in spans if s < 2 * end <= e), default=2 * end)
        if 2 * first - start > 2 * REACH or stop - 2 * end > 2 * REACH:
            continue
        compared += 1
        assert (low, high) == (start // 2, -(-stop // 2))
    assert compared > 300
