"""Words and where they stand, beside bm25s' own tokenizer."""

from itertools import pairwise

import pytest
from bm25s.stopwords import STOPWORDS_EN
from bm25s_words import by_bm25s_words
from hypothesis import example, given
from hypothesis import strategies as st

from longctx.core.tokens import stems
from longctx.core.tokens.stems import LONGEST, cut, has_break, tokenized

TEXTS = st.text("abz The-_ 7é\n灯塔かщ́", max_size=60)


def words(text: str) -> list[str]:
    """The stems as they are counted."""
    (found,) = of_each([text])
    return found


def of_each(texts: list[str]) -> list[list[str]]:
    counted, found = tokenized(texts), [[] for _ in texts]
    names = {number: stem for stem, number in counted.vocab.items()}
    for text, number in zip(counted.texts.tolist(), counted.ids.tolist(), strict=True):
        found[text].append(names[number])
    return found


def test_stop_words_are_those_of_bm25s():
    assert set(STOPWORDS_EN) == stems.STOP_WORDS


def test_words_have_their_places_and_stems():
    text = "The Keepers were watching  灯塔!"
    found = stems.stems(text)
    assert [(text[start:end], stem) for start, end, stem in found] == [
        ("Keepers", "keeper"),
        ("were", "were"),
        ("watching", "watch"),
        ("灯", "灯"),
        ("塔", "塔"),
    ]


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        ("İstanbul lights", ["stanbul", "lights"]),  # the small letter of İ is two characters
        ("in aİ İİ boats", ["aİ", "boats"]),
        ("ΟΔΟΣ boats", ["ΟΔΟΣ", "boats"]),
        ("\ud800 x7 \udfff", ["x7"]),
        ("?!", []),
        ("", []),
    ],
)
def test_places_are_those_of_the_text_as_it_stands(text, marked):
    assert [text[start:end] for start, end, _ in stems.stems(text)] == marked


@given(TEXTS)
def test_words_are_those_that_are_counted(text):
    found = stems.stems(text)
    assert [stem for _, _, stem in found] == words(text)
    assert all(start < end for start, end, _ in found)


@given(st.lists(TEXTS, max_size=5))
@example(["The boats", "", "it is", "a İ_7 boat 灯boats", "BOATS", "é́ boat"])
def test_they_are_those_of_bm25s(texts):
    counted = by_bm25s_words(texts)
    names = {number: stem for stem, number in counted.vocab.items()}
    assert of_each(texts) == [[names[number] for number in ids] for ids in counted.ids]
    assert tokenized(texts).vocab.keys() == counted.vocab.keys()


@given(TEXTS, st.lists(st.integers(0, 60), max_size=6))
def test_cuts_leave_words_whole_in_the_piece_where_they_begin(text, places):
    places = sorted(place for place in places if place <= len(text))
    cuts = [0]
    for place in places:
        cuts.append(cut(text, place, cuts[-1]))
    cuts.append(len(text))
    pieces = [words(text[start:end]) for start, end in pairwise(cuts)]
    assert [stem for piece in pieces for stem in piece] == words(text)
    bounds = [0, *places, len(text) + 1]
    begun = [[stem for s, _, stem in stems.stems(text) if a <= s < b] for a, b in pairwise(bounds)]
    assert pieces == begun


def test_letters_without_end_are_cut_into_words_of_the_longest():
    text = "7" * (3 * LONGEST + 1) + " 7"
    assert [end - start for start, end, _ in stems.stems(text)] == [LONGEST] * 3
    assert len(words(text)) == 3
    assert cut(text, 1) == LONGEST
    assert cut(text, LONGEST) == LONGEST
    assert cut(text, LONGEST + 1, LONGEST) == 2 * LONGEST
    assert cut(text, 3 * LONGEST, 3 * LONGEST) == 3 * LONGEST
    assert cut(text, len(text)) == len(text)


@pytest.mark.parametrize(
    ("text", "found"), [("ab7", False), ("a b", True), ("灯", True), ("", False)]
)
def test_breaks_are_what_is_no_letter_of_a_longer_word(text, found):
    assert has_break(text) is found
