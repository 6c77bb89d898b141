"""The line of a passage that answers a question."""

import pytest

from longctx.core.passages.answer_line import answering_piece
from longctx.core.passages.expected import Expected
from longctx.core.passages.matching import Query, pieces


def answering(question: str, text: str, *, language: str = "en", **weights: float) -> str | None:
    query = Query(question, weights, languages=(language,))
    piece = answering_piece(query, text, pieces(text, 0, len(text)))
    return None if piece is None else text[piece.start : piece.end]


def test_words_count_in_the_line_before_too():
    text = "The keeper of the lighthouse had a dog.\nIt was black all over, as dogs go.\nThe end."
    question = "What did the keeper's dog look like, was it black?"
    weights = {"keeper": 2.0, "dog": 1.0, "black": 1.5}
    assert answering(question, text, **weights) == "It was black all over, as dogs go."


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("How many boats were in the harbour?", "There were seven of them on that day."),
        ("Who counted the boats in the harbour?", "It was done by old Jonas and a boy."),
        ("What is the default limit of the harbour?", "boat_limit = none at all, for now"),
    ],
)
def test_what_is_asked_for_counts(question, answer):
    text = f"The boats lay in the harbour all day.\n{answer}\nNobody else was seen there."
    assert answering(question, text, harbour=2.0, boat=1.0) == answer


def test_a_line_that_only_repeats_the_question_is_not_taken():
    text = "## The harbour\nIn the harbour there is a lot of water.\nAll else is sand."
    assert answering("What is in the harbour?", text, harbour=2.0).startswith("In the")


def test_without_a_word_and_without_what_is_asked_there_is_no_line():
    assert answering("Why did it rain?", "Nothing.\nNothing at all is said here.", rain=1.0) is None
    assert answering("How many came?", "Nothing is here.\nBut 17 men came by.").startswith("But")


@pytest.mark.parametrize(
    ("words", "asks"),
    [
        ("Where is the keeper?", True),
        ("where is the keeper", True),
        ("Wie viele Boote lagen dort", True),
        ("何人が来ましたか。", True),
        ("is it", False),
        ("payment failed", False),
        ("where the", False),
        ("", False),
    ],
)
def test_what_is_a_question(words, asks):
    assert Expected(words).is_question is asks


@pytest.mark.parametrize(
    ("question", "text", "kinds"),
    [
        ("When did 1805 end?", "In 1805 it was.", 0),
        ("When did 1805 end?", "In 1806 it was.", 1),
        ("Who is Anna?", "Then Anna came.", 0),
        ("Who is Anna?", "Then Pierre came.", 1),
        ("Who is Anna?", "Pierre came.", 0),
        ("Сколько их было?", "Их было 12.", 1),
        ("Why?", "In 1806 Pierre set x = 1.", 0),
    ],
)
def test_kinds_that_the_question_lacks(question, text, kinds):
    assert Expected(question).kinds_in(text) == kinds
