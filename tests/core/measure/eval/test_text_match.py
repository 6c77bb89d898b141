"""Exact match, F1 and containment, on answers counted by hand."""

import pytest

from longctx.core.measure.eval.text_match import contained, exact_match, f1, holds, normalized


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("The  Three Bears!", "three bears"),
        ("an apple, a pear; the fig", "apple pear fig"),
        ("theatre and anagram", "theatre and anagram"),  # articles are whole words
        ("«Ёлка» · 200 roubles…", "ёлка 200 roubles"),  # punctuation beyond ASCII
        ("¿don't?", "dont"),
        ("U.S. $5", "us 5"),
        ("A", ""),
        ("", ""),
    ],
)
def test_normalising(text, plain):
    assert normalized(text) == plain


@pytest.mark.parametrize(
    ("accepted", "answer", "match", "overlap"),
    [
        (("three bears",), "The three bears.", 1, 1),
        (("three bears", "bears"), "Bears", 1, 1),
        (("two hundred roubles",), "two hundred", 0, 0.8),  # 2 shared of 3 and 2
        (("two hundred roubles", "200 roubles"), "200 new roubles", 0, 0.8),  # the best one
        (("a b b",), "b b b", 0, 0.8),  # words count as often as they occur
        (("pear",), "", 0, 0),
        (("pear",), "the", 0, 0),  # nothing is left
        (("the",), "a", 1, 1),  # nothing is left of either
        (("Ёлка",), "ёлка", 1, 1),
        (("pear",), "apple", 0, 0),
    ],
)
def test_exact_match_and_f1(accepted, answer, match, overlap):
    assert exact_match(accepted, answer) == match
    assert f1(accepted, answer) == pytest.approx(overlap)


@pytest.mark.parametrize(
    ("accepted", "answer", "right"),
    [
        (("pear",), "He had brought a huge PEAR.", 1),
        (("pear",), "He wore pearls.", 0),
        (("12",), "It was 312.", 0),
        (("12",), "It was 12.", 1),
        (("two hundred",), "two\n  hundred roubles", 1),
        (("3.7rc0", "3.7"), "version 3.7rc0!", 1),
        (("a+b (c)",), "It is a+b (c), I think", 1),  # no pattern
        (("Köln",), "in köln", 1),
        (("pear",), "", 0),
        ((" ",), "pear", 0),
    ],
)
def test_contained(accepted, answer, right):
    assert contained(accepted, answer) == right


def test_a_text_holds_whole_words_and_never_none():
    assert holds("The Pear tree", "pear")
    assert not holds("Pears", "pear")
    assert not holds("pear", "")
