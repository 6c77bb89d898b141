"""Words and where they stand, beside bm25s' own tokenizer."""

import os
import subprocess
import sys
from itertools import pairwise

import pytest
from bm25s.stopwords import STOPWORDS_EN
from hypothesis import given
from hypothesis import strategies as st

from longctx.core.tokens import stems
from longctx.core.tokens.stems import LONGEST, cut, has_break, tokenized

TEXTS = st.text("abz The-_ 7é\n灯塔かщ́", max_size=60)


def words(text: str) -> list[str]:
    """The stems as they are counted."""
    counted = tokenized([text])
    names = {number: stem for stem, number in counted.vocab.items()}
    return [names[number] for number in counted.ids[0]]


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


def test_words_are_counted_without_jax(tmp_path):
    (tmp_path / "jax.py").write_text("raise SystemError('it would take the memory of the GPU')")
    code = """
import sys
from longctx.core.tokens.stems import tokenized
assert tokenized(["boats came home"]).vocab
assert "jax" not in sys.modules
"""
    paths = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": paths}, check=True
    )
