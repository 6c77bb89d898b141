"""Where words and numbers may be cut: nowhere inside them."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longctx.core.passages.boundaries import bounds

# Parts that hold together: `|` where a quotation may begin and end inside the text.
WHOLE = [
    *("7277776", "727777", "3.5", "1,234", "1,234,567.89", "12/05/2021", "2021-03-04", "08:15"),
    *(
        "13:55:36",
        "10.0.0.1",
        "1'000",
        "1\u00a0234\u202f567",
        "1e-5",
        "5km",
        "2\u00bd",
        "v1.2.3"[1:],
    ),
    *("don't", "O'Brien", "don\u2019t", "twenty-two", "QX-7731-B", "x\u2011ray", "max_iter"),
    *(
        "a__b",
        "e\u0301te\u0301",
        "\u0928\u092e\u0938\u094d\u0924\u0947",
        "\u041c\u0430\u044f\u043a",
    ),
    *("-5", "-.5", "+3.5", ".5", "555-0199"),
]
INSIDE = {
    "Cornforth's": {"Cornforth", "Cornforth's"},
    "keepers'": {"keepers"},
    "\u00a3390": {"390", "\u00a3390"},
    "50%": {"50", "50%"},
    "C++,": {"C", "C++"},
    "--all-docs": {"all-docs", "--all-docs"},
    "__init__": {"init", "__init__", "__init", "init__"},
    "_Anna_": {"Anna", "_Anna_", "_Anna", "Anna_"},
    "*_Anna_*": {"Anna", "Anna_"},
    "p.m.": {"p", "m", "m.", "p.m", "p.m."},
    "1914\u20131918": {"1914", "1918", "1914\u20131918"},
    "word--word": {"word", "word--word"},
    "[2000:13:55:36]": {"2000", "13:55:36", "2000:13:55:36"},
    "a.txt": {"a", "txt", "a.txt"},
    "\u706f\u53f0": {"\u706f", "\u53f0", "\u706f\u53f0"},
    "\u7b2c3\u7ae0": {"\u7b2c", "3", "\u7ae0", "\u7b2c3", "3\u7ae0", "\u7b2c3\u7ae0"},
    "\u0e01\u0e47\u0e14": {"\u0e01\u0e47", "\u0e14", "\u0e01\u0e47\u0e14"},
    "$ -- !": set(),
    "": set(),
}


def quotable(text: str) -> set[str]:
    begins, ends = bounds(text)
    places = range(len(text) + 1)
    return {text[i:j] for i in places for j in places[i + 1 :] if begins[i] and ends[j]}


@pytest.mark.parametrize("word", WHOLE)
def test_what_holds_together_is_not_cut(word):
    assert word in quotable(word)
    for text in (word, f"({word})", f"see {word}, then", f"\u201c{word}\u201d"):
        at = text.index(word)
        begins, ends = bounds(text)
        assert not begins[at + 1 : at + len(word)].any()
        assert not ends[at + 1 : at + len(word)].any()
        assert ends[at + len(word)]


@pytest.mark.parametrize("text", INSIDE)
def test_what_may_be_cut(text):
    assert quotable(text) == INSIDE[text]


@given(st.text(st.sampled_from("07a\u00e9\u4e2d'-._,:/ \n$%+(\u0301\u00a0"), max_size=30))
def test_letters_and_digits_are_never_parted(text):
    begins, ends = bounds(text)
    for place in range(1, len(text)):
        before, after = text[place - 1], text[place]
        if before in "07a\u00e9" and after in "07a\u00e9":
            assert not begins[place]
            assert not ends[place]
        if unicodedata.category(after) == "Mn" and before in "07a\u00e9\u4e2d":
            assert not begins[place]
            assert not ends[place]
    for stretch in quotable(text):
        assert not stretch[0].isspace()
        assert not stretch[-1].isspace()


@given(st.text(max_size=40))
def test_every_word_may_be_quoted(text):
    begins, ends = bounds(text)
    assert len(begins) == len(ends) == len(text) + 1
    for place, character in enumerate(text):
        if character.isalnum():  # some bound before it, and some after
            assert begins[: place + 1].any()
            assert ends[place + 1 :].any()
