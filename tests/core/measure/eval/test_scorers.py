"""Scores of hand-made answers."""

import pytest

from longctx.core.measure.eval.scorers import (
    labels_in,
    only_label,
    string_match_all,
    string_match_part,
)

ROOMS = frozenset({"kitchen", "garden", "office"})


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ("12, 34, 56 and 78", 1),
        ("12 and 56", 0.5),
        ("ABCDE is one", 0),
        ("", 0),
        ("1278", 0.5),
    ],
)
def test_all_is_the_share_that_is_named(answer, score):
    assert string_match_all(("12", "34", "56", "78"), answer) == score


def test_case_does_not_count():
    assert string_match_all(("ABCde", "x"), "abcDE X") == 1
    assert string_match_part(("The Lodger",), "it is THE LODGER, of course") == 1


def test_part_is_any_of_them():
    assert string_match_part(("seventeen", "17"), "There are 17.") == 1
    assert string_match_part(("seventeen", "17"), "There are 16.") == 0


@pytest.mark.parametrize(
    ("right", "answer", "score"),
    [
        (("kitchen",), "Mary is in the kitchen.", 1),
        (("kitchen",), " \nKitchen", 1),
        (("kitchen",), "garden", 0),
        (("kitchen",), "kitchen or garden", 0),
        (("kitchen",), "kitchen. Before that she was in the garden.", 1),
        (("kitchen",), "kitchen\nQuestion: where is the garden?", 1),
        (("kitchen",), "It is warm. The kitchen.", 0),
        (("kitchen",), "kitchens", 0),
        (("kitchen",), "", 0),
        (("kitchen", "garden"), "Before the garden it was in the kitchen.", 1),
        (("kitchen", "garden"), "garden", 0),
        (("kitchen", "kitchen"), "kitchen", 1),
        (("kitchen,office",), "the office, the kitchen", 1),
        (("kitchen,office",), "the office", 0),
        (("kitchen,office",), "kitchen, office and garden", 0),
    ],
)
def test_only_the_right_label(right, answer, score):
    assert only_label(ROOMS, right, answer) == score


def test_labels_are_whole_words():
    labels = frozenset({"no", "one", "none", "Bill"})
    assert labels_in(labels, "None of them is known to bill") == ("Bill", "none")
    assert only_label(labels, ("none",), "none") == 1
    assert labels_in(frozenset({"s", "John"}), "John's book, John\u2019s house") == ()
    assert labels_in(frozenset({"office"}), "in the 'office'") == ("office",)


@pytest.mark.parametrize(
    ("right", "answer", "score"),
    [
        (("s,w",), "Go s, then w.", 1),
        (("s,w",), "S,W", 1),
        (("s,w",), "w,s", 0),
        (("s,w",), "s", 0),
        (("s,w",), "s,w,w", 0),
        (("s,s",), "s,s", 1),
        (("s,s",), "s", 0),
        (("s,s",), "s,w,s", 0),
        (("s,w",), "From John's house s, w", 1),
        (("s,w", "n"), "From n: s, w", 1),  # named by the question
    ],
)
def test_the_steps_of_a_path_count_in_order(right, answer, score):
    assert only_label(frozenset("nesw"), right, answer, ordered=True) == score
