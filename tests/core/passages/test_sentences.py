"""Where sentences and lines begin and end, and words."""

import pytest

from longctx.core.passages.sentences import sentences, word_begin, word_end

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
