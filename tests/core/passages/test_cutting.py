"""How a text is cut into passages, next to a transcription of the format."""

import re

import cutting_transcription as transcription
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_passages import small_passages

from longctx.core.passages import cutting
from longctx.core.passages.cutting import SIZES, Sizes, cut

PIECES = [
    *("a", "word ", "Two words. ", "Eight. Or nine! ", " ", "\n", "\n\n", "\r\n", "   \n", "  "),
    *(
        "# Head\n",
        "def f(x):\n",
        "    def g():\n",
        "class\n",
        "From a@b\n",
        "@property\n",
        "x,1,2\n",
    ),
    *("灯塔。", "1. ", "x" * 9, "e.g. ", "\u2028", "#\n", "####### no\n", "define\n", "\u00a0"),
]


def by_words(text: str) -> np.ndarray:
    """Tokens as tokenizers make them: a word with the space before it, a mark, a line's end."""
    found = re.finditer(r" ?\w+| ?[^\w\s]|\n|\s", text)
    return np.array([*(match.start() for match in found), len(text)])


def sizes_of(text: str, places: np.ndarray | None = None) -> list[int]:
    places = by_words(text) if places is None else places
    return np.diff([*cut(text, places), len(places) - 1]).tolist()


@given(
    st.lists(st.sampled_from(PIECES), max_size=60).map("".join),
    st.data(),
    st.sampled_from([Sizes(8, 4, 10, 16), Sizes(2, 1, 2, 4), Sizes(6, 3, 12, 13)]),
)
@settings(max_examples=400, deadline=None)
def test_passages_are_those_of_the_transcription(text, data, sizes):
    inner = data.draw(st.lists(st.integers(0, len(text)), max_size=len(text)))
    places = sorted([*inner, *range(0, len(text), data.draw(st.integers(1, 5)))])
    places = places or [0, 0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cutting, "SIZES", sizes)
        starts = cut(text, np.array(places))
    assert starts == transcription.passages(text, places, sizes)
    assert starts[:1] == [0] * (len(places) > 1)
    lengths = np.diff([*starts, len(places) - 1])
    assert not len(lengths) or 0 < lengths.min() <= lengths.max() <= sizes.whole


def test_prose_is_cut_at_paragraphs_and_sentences():
    sentence = "The keeper wrote of rain and of the boats that came in late. "
    text = f"{sentence * 8}\n\n{sentence * 20}"
    starts = by_words(text)[cut(text, by_words(text))].tolist()
    assert len(f"{sentence * 8}\n\n") in starts
    assert {text[:start].rstrip()[-1] for start in starts[1:]} == {"."}
    assert max(sizes_of(text)) <= SIZES.most


def test_code_is_cut_at_definitions_and_rows_stay_whole():
    body = "    total = total + values[number] * 2\n"
    text = "".join(f"def function_{n}(values):\n{body * 9}\n" for n in range(9))
    starts = by_words(text)[cut(text, by_words(text))].tolist()
    assert len(starts) == 9
    assert all(text[start:].startswith("def function_") for start in starts)
    rows = "".join(f"{n},{n * n},name {n},{n % 7}\n" for n in range(200))
    starts = by_words(rows)[cut(rows, by_words(rows))].tolist()
    assert len(starts) > 10
    assert all(start == 0 or rows[start - 1] == "\n" for start in starts)


def test_a_heading_begins_a_passage():
    part = "Some words of a chapter stand here, and more of them. " * 7
    text = "".join(f"\n## Chapter {n}\n\n{part}\n" for n in range(6))
    starts = by_words(text)[cut(text, by_words(text))].tolist()
    begun = [text[start:].lstrip("\n")[:10] for start in starts]
    assert sum(begin == "## Chapter" for begin in begun) >= 5


@pytest.mark.parametrize(
    "text",
    [
        "word " * 3000,  # no end of a line or sentence
        "x" * 30_000,  # one word
        "a=1;b(c);" * 3000,  # minified code
        ("v," * 299 + "v\n") * 5,  # a table of 300 columns
        "identifier_7 " * 200 + "\n",
        "1. 2. 3. " * 500,
        "...! " * 900,
        "\n" * 2000,
        " " * 2000,
        "灯塔的看守人" * 500,
    ],
)
def test_what_has_few_ends_is_cut_too(text):
    """There is a token for each character, so these texts have long lines."""
    sizes = sizes_of(text, np.arange(len(text) + 1))
    assert sum(sizes) == len(text)
    assert min(sizes[:-1]) > SIZES.least
    assert max(sizes) <= SIZES.whole
    for start in np.cumsum(sizes)[:-1] if " " in text else ():
        assert not text[start - 1 : start + 1].isalnum()


def test_a_line_of_up_to_twice_the_usual_size_stays_whole():
    for length in (161, 256):
        text = "x " * 20 + "\n" + "y " * length + "\n" + "z " * 300
        places = np.array([m.start() for m in re.finditer(r"[a-z]", text)] + [len(text)])
        assert sizes_of(text, places)[:2] == [20, length]
    text = text.replace("y", "y y", 1)
    places = np.array([m.start() for m in re.finditer(r"[a-z]", text)] + [len(text)])
    assert sizes_of(text, places)[:3] == [20, 128, 129]


def test_nothing_has_no_passages():
    assert cut("", np.array([0])) == []
    assert cut("", np.array([0, 0])) == [0]
    assert cut("some text", np.array([4])) == []


def test_passages_of_other_sizes(monkeypatch):
    small_passages(monkeypatch, 8)
    text = "".join(f"one two three {n}.\n" for n in range(50))
    lengths = sizes_of(text)
    assert all(4 <= length <= 10 for length in lengths)
